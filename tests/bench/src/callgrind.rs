//! User instructions of a request, counted by valgrind: exact where clocks are noisy.
//!
//! Each daemon plays N requests, then a fresh one 2 N; start and end cost the same in both, so that the difference
//! over N is what one request takes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::client::{Failure, Outcome};
use crate::daemon::{Daemon, Ground, Kind};
use crate::report::align;
use crate::scenes::Worker;

/// Requests of the shorter play.
const REQUESTS: usize = 2000;

/// A daemon under valgrind has this long to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where requests come from.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A socket.
    Socket,
    /// The ring of a guest beside so many others.
    Ring(u16),
}

/// The columns of the table.
const COLUMNS: [(&str, Way, bool); 6] = [
    ("READ", Way::Socket, false),
    ("WRITE", Way::Socket, true),
    ("guest's READ beside 1", Way::Ring(1), false),
    ("beside 1000", Way::Ring(1000), false),
    ("guest's WRITE beside 1", Way::Ring(1), true),
    ("beside 1000", Way::Ring(1000), true),
];

/// The table of instructions a request.
pub(crate) fn table(ground: &mut Ground, root: &Path, daemons: &[Kind]) -> String {
    let mut lines = vec![vec!["user instructions a request".to_owned()]];
    lines[0].extend(COLUMNS.iter().map(|(title, ..)| (*title).to_owned()));
    for &kind in daemons.iter().filter(|&&kind| kind != Kind::O) {
        let mut line = vec![kind.name().to_owned()];
        line.extend(COLUMNS.iter().map(|&(_, way, write)| {
            match (way, kind) {
                // It would take minutes; the table of CPU times tells as much.
                (Way::Ring(2..), Kind::C) => "–".to_owned(),
                _ => request(ground, root, kind, way, write)
                    .map_or_else(|error| format!("– ({error})"), |count| count.to_string()),
            }
        }));
        lines.push(line);
    }
    align(&lines)
}

/// Instructions of one READ or WRITE.
fn request(ground: &mut Ground, root: &Path, kind: Kind, way: Way, write: bool) -> Outcome<u64> {
    let once = play(ground, root, kind, way, write, REQUESTS)?;
    let twice = play(ground, root, kind, way, write, 2 * REQUESTS)?;
    Ok(twice.saturating_sub(once) / REQUESTS as u64)
}

fn play(ground: &mut Ground, root: &Path, kind: Kind, way: Way, write: bool, requests: usize) -> Outcome<u64> {
    let counts = root.join("callgrind.out");
    let out = format!("--callgrind-out-file={}", counts.display());
    let wrapper = ["valgrind", "--tool=callgrind", "--quiet", &out];
    match way {
        Way::Socket => {
            let mut daemon = ground.start(kind, &wrapper)?;
            play_on_socket(&daemon, write, requests)?;
            daemon.stop(PATIENCE)?;
        }
        Way::Ring(crowd) => {
            let mut hosted = ground.start_on_host(kind, &wrapper, &[])?;
            let (mut worker, _others) = Worker::beside(&hosted, crowd)?;
            (0..requests).try_for_each(|_| if write { worker.write() } else { worker.read() })?;
            hosted.daemon.stop(PATIENCE)?;
        }
    }
    let text = fs::read_to_string(&counts);
    let text = text.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", counts.display())))?;
    fs::remove_file(&counts)?;
    total(&text).ok_or_else(|| Failure::Unusable("no total in callgrind's file".to_owned()))
}

fn play_on_socket(daemon: &Daemon, write: bool, requests: usize) -> Outcome<()> {
    let mut client = daemon.connect()?;
    client.write(0, "/bench/value", b"12345678")?;
    for at in 0..requests {
        match write {
            true => client.write(0, "/bench/value", if at % 2 == 0 { b"12345679" } else { b"12345678" })?,
            false => client.read("/bench/value", 8).map(drop)?,
        }
    }
    Ok(())
}

/// Instructions of a whole run, from the text of a callgrind file.
fn total(text: &str) -> Option<u64> {
    let number = |name| {
        text.lines().rev().find_map(|line: &str| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    number("totals:").or_else(|| number("summary:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_stands_at_the_end_of_the_file() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 5\nfn=(1)\n1 5\ntotals: 1234567\n"), Some(1_234_567));
        assert_eq!(total("events: Ir\nsummary: 99\n"), Some(99));
        assert_eq!(total("events: Ir\n"), None);
    }
}
