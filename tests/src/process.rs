//! What `/proc` says of a process.

use std::fs;

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

/// Whether a process with this id exists.
#[must_use]
pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false)
}
