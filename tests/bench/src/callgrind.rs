//! User instructions of a request, counted by valgrind: exact where clocks are noisy.
//!
//! Each daemon plays N requests, then a fresh one 2 N; start and end cost the same in both, so that the difference
//! over N is what one request takes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::client::{Failure, Outcome};
use crate::daemon::{Ground, Kind};
use crate::report::align;

/// Requests of the shorter play.
const REQUESTS: usize = 2000;

/// The table of instructions a request.
pub(crate) fn table(ground: &mut Ground, root: &Path, daemons: &[Kind]) -> String {
    let mut lines = vec![["user instructions a request", "READ", "WRITE"].map(str::to_owned).to_vec()];
    for &kind in daemons.iter().filter(|&&kind| kind != Kind::O) {
        let mut cell = |write| match request(ground, root, kind, write) {
            Ok(count) => count.to_string(),
            Err(error) => format!("– ({error})"),
        };
        lines.push(vec![kind.name().to_owned(), cell(false), cell(true)]);
    }
    align(&lines)
}

/// Instructions of one READ or WRITE.
fn request(ground: &mut Ground, root: &Path, kind: Kind, write: bool) -> Outcome<u64> {
    let once = play(ground, root, kind, write, REQUESTS)?;
    let twice = play(ground, root, kind, write, 2 * REQUESTS)?;
    Ok(twice.saturating_sub(once) / REQUESTS as u64)
}

fn play(ground: &mut Ground, root: &Path, kind: Kind, write: bool, requests: usize) -> Outcome<u64> {
    let counts = root.join("callgrind.out");
    let out = format!("--callgrind-out-file={}", counts.display());
    let mut daemon = ground.start(kind, &["valgrind", "--tool=callgrind", "--quiet", &out])?;
    let mut client = daemon.connect()?;
    client.write(0, "/bench/value", b"12345678")?;
    for at in 0..requests {
        match write {
            true => client.write(0, "/bench/value", if at % 2 == 0 { b"12345679" } else { b"12345678" })?,
            false => client.read("/bench/value", 8).map(drop)?,
        }
    }
    drop(client);
    daemon.stop(Duration::from_secs(30))?;
    let text = fs::read_to_string(&counts);
    let text = text.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", counts.display())))?;
    fs::remove_file(&counts)?;
    total(&text).ok_or_else(|| Failure::Unusable("no total in callgrind's file".to_owned()))
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
