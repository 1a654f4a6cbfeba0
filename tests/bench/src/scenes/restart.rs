//! A daemon with 260 000 nodes and a thousand guests is killed and started again, makes its journal short, and is replaced
//! by a live update; a guest works on all the while.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xenstore_wire::{OK, Op};

use super::guests::Worker;
use super::{Stage, big_store};
use crate::client::{Failure, Outcome};
use crate::hosted::Hosted;
use crate::meter::Cost;
use crate::rows::{COMPACTION, RESTART_IMAGE, RESTART_LOG, UPDATE};

/// Guests, the one that works among them.
pub(super) const GUESTS: u16 = 1000;
/// Domains of the quota benchmark that make 260 000 nodes.
const DOMAINS: usize = 489;
/// A journal that is not short by then will not become it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon in the place of the one that the host was started with; it ends with this value.
struct Successor(Child);

impl Drop for Successor {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

/// Seconds from a kill to the first answer, and the longest WRITEs of a guest while the journal is made short and while
/// another process image goes on.
pub(super) fn restart(stage: &mut Stage<'_>) -> Outcome<()> {
    let Some(hosted) = stage.hosts.first() else { return Ok(()) };
    let mut worker = Worker::beside(hosted, GUESTS - 1)?.0;
    let mut client = hosted.daemon.connect()?;
    for domain in 1..=DOMAINS {
        big_store::make(&mut client, domain)?;
    }
    drop(client);
    let journal = hosted.host.socket().with_file_name("journal");

    let (first, from_log) = after_kill(hosted, hosted.daemon.pid(), &mut worker)?;
    stage.add(RESTART_LOG, seconds(from_log));
    // The daemon has its journal made short as soon as it serves.
    let longest = longest_write(&mut worker, || Ok(!is_short(&journal)?))?;
    stage.add(COMPACTION, micros(longest));

    let dead = Pid::from_raw(i32::try_from(first.0.id()).unwrap_or(i32::MAX));
    let (second, from_image) = after_kill(hosted, dead, &mut worker)?;
    drop(first);
    stage.add(RESTART_IMAGE, seconds(from_image));
    longest_write(&mut worker, || Ok(!is_short(&journal)?))?;

    let program = fs::canonicalize(format!("/proc/{}/exe", second.0.id()))?;
    let mut client = hosted.daemon.connect()?;
    let words = [b"live-update\0-f\0", program.as_os_str().as_encoded_bytes(), b"\0"].concat();
    client.request(Op::Control, 0, &words, OK.len())?;
    let longest = thread::scope(|scope| {
        let asked =
            scope.spawn(move || client.request(Op::Control, 0, b"live-update\0-s\0", OK.len()).map(<[u8]>::to_vec));
        let longest = longest_write(&mut worker, || Ok(!asked.is_finished()));
        match asked.join() {
            Ok(answer) if answer.as_deref().is_ok_and(|answer| answer == OK) => longest,
            Ok(answer) => Err(Failure::Unusable(format!("the live update is answered {answer:?}"))),
            Err(_) => Err(Failure::Unusable("the live update is not answered".to_owned())),
        }
    })?;
    stage.add(UPDATE, micros(longest));
    Ok(())
}

/// Kills a daemon and starts another; returns that, and how long it took until a guest is answered.
fn after_kill(hosted: &Hosted, daemon: Pid, worker: &mut Worker) -> Outcome<(Successor, Duration)> {
    let begun = Instant::now();
    kill(daemon, Signal::SIGKILL).map_err(io::Error::from)?;
    let successor = Successor(hosted.launch.spawn()?);
    worker.read()?;
    Ok((successor, begun.elapsed()))
}

/// The longest of the WRITEs that are made while `going_on`.
fn longest_write(worker: &mut Worker, mut going_on: impl FnMut() -> Outcome<bool>) -> Outcome<Duration> {
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while going_on()? {
        let asked = Instant::now();
        worker.write()?;
        longest = longest.max(asked.elapsed());
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Unusable("it does not come to an end".to_owned()));
        }
    }
    Ok(longest)
}

/// Whether a journal is one image and the log from there on.
fn is_short(journal: &Path) -> io::Result<bool> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(journal)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    files.sort();
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()?.split_once('.')).collect();
    Ok(matches!(names[..], [("image", image), ("log", log)] if image == log))
}

fn seconds(time: Duration) -> Cost {
    Cost { cpu: time.as_secs_f64(), wall: time.as_secs_f64() }
}

fn micros(time: Duration) -> Cost {
    Cost { cpu: time.as_secs_f64() * 1e6, wall: time.as_secs_f64() * 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_journal_has_one_image_and_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let short = |files: &[&str]| {
            for file in files {
                fs::write(dir.path().join(file), "").unwrap();
            }
            is_short(dir.path()).unwrap()
        };
        assert!(!short(&["log.2"]));
        assert!(short(&["image.2"]));
        assert!(!short(&["log.3"]));
        assert!(!short(&["image.3.77.new"]));
    }
}
