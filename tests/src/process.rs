//! What `/proc` says of a process.

use crate::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A number of `/proc/<pid>/status`, in the unit that the kernel prints there (KiB for memory).
///
/// # Panics
/// When the process or the field is not there.
#[must_use]
pub fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {field} in the status of process {pid}"))
}

/// Anonymous memory in use, KiB.
///
/// # Panics
/// When the process is gone.
#[must_use]
pub fn anonymous_kib(pid: u32) -> u64 {
    status(pid, "RssAnon")
}

/// Number of open descriptors.
///
/// # Panics
/// When the process is gone.
#[must_use]
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

/// Time on a processor so far, nanoseconds, all threads together.
///
/// # Panics
/// When the process is gone.
#[must_use]
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    tasks
        .filter_map(|task| {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// The keepers of a run directory: a daemon's second processes, which outlive it.
///
/// # Panics
/// When `/proc` cannot be read.
#[must_use]
pub fn keepers(run_dir: &Path) -> Vec<u32> {
    let socket = run_dir.join("keeper");
    with_words(|words| words.get(1) == Some(&&b"--keeper"[..]) && words.get(2) == Some(&socket.as_os_str().as_bytes()))
}

/// The daemons, keepers apart, on whose command line a directory is named.
///
/// # Panics
/// When `/proc` cannot be read.
#[must_use]
pub fn daemons(dir: &Path) -> Vec<u32> {
    let pid_file = dir.join("pid");
    let pid_file = pid_file.as_os_str().as_bytes();
    with_words(|words| words.get(1) != Some(&&b"--keeper"[..]) && words.contains(&pid_file))
}

/// Ends every process on whose command line a directory is named, whoever started it: a daemon, its keeper, the daemon
/// that the keeper started meanwhile.
///
/// # Panics
/// When `/proc` cannot be read, or they do not end.
pub fn end_all_of(dir: &Path) {
    let dir = dir.as_os_str().as_bytes();
    let names_it = |word: &&[u8]| word.windows(dir.len()).any(|part| part == dir);
    wait::until("the processes of a directory end", || {
        let left = with_words(|words| words.iter().any(names_it));
        for pid in &left {
            let pid = Pid::from_raw(i32::try_from(*pid).expect("a pid fits"));
            let _ = kill(pid, Signal::SIGKILL);
        }
        left.is_empty()
    });
}

/// Processes with such words on their command line. One that has ended has none.
fn with_words(wanted: impl Fn(&[&[u8]]) -> bool) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc is there");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_wanted = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        wanted(&words)
    };
    pids.filter(is_wanted).collect()
}

/// Whether a process with this id exists.
#[must_use]
pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false)
}
