//! The limits that the host sets, from which the daemon's own caps derive.

use std::fs;
use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What the host allows. `None` where the host does not say (no `/proc`, another kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Descriptors that this process may have open.
    pub nofile: u64,
    /// Highest value that `nofile` could be given on this host (`/proc/sys/fs/nr_open`).
    pub nr_open: Option<u64>,
    /// Memory mappings that a process may have (`vm.max_map_count`); every mapped ring is one.
    pub max_map_count: Option<u64>,
    /// Bytes of memory of the host (`MemTotal`).
    pub mem_total: Option<u64>,
}

impl HostLimits {
    /// Reads the limits as they are now. Raise them first ([`raise_nofile`]).
    ///
    /// # Errors
    /// If the kernel refuses to tell the descriptor limit.
    pub fn read() -> io::Result<Self> {
        let (nofile, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(Self {
            nofile,
            nr_open: read_number("/proc/sys/fs/nr_open"),
            max_map_count: read_number("/proc/sys/vm/max_map_count"),
            mem_total: fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(mem_total),
        })
    }
}

/// What [`raise_nofile`] did: soft limits in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The soft limit before.
    pub from: u64,
    /// The soft limit now.
    pub to: u64,
}

/// Raises the soft limit of open descriptors to the hard limit. The hard limit is the administrator's and stays.
///
/// # Errors
/// If the kernel refuses; the limit is then as it was, and the daemon can go on with it.
pub fn raise_nofile() -> io::Result<Raised> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(Raised { from: soft, to: hard })
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The bytes that `/proc/meminfo` calls `MemTotal`.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem_total_is_in_bytes() {
        let meminfo = "MemTotal:        3921012 kB\nMemFree:          123 kB\n";
        assert_eq!(mem_total(meminfo), Some(3_921_012 * 1024));
    }

    #[test]
    fn meminfo_without_the_line_or_with_junk_is_none() {
        for text in
            ["", "MemFree: 12 kB\n", "MemTotal: many kB\n", "MemTotal: 12\n", "MemTotal: 18446744073709551615 kB\n"]
        {
            assert_eq!(mem_total(text), None, "{text:?}");
        }
    }

    #[test]
    fn raising_takes_the_soft_limit_to_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let raised = raise_nofile().unwrap();
        assert!(raised.from <= raised.to);
        assert_eq!(raised.to, hard);
        assert_eq!(HostLimits::read().unwrap().nofile, hard);
        assert_eq!(raise_nofile().unwrap(), Raised { from: hard, to: hard });
    }

    #[test]
    fn this_host_says_what_it_allows() {
        let limits = HostLimits::read().unwrap();
        assert!(limits.nofile > 0);
        assert!(limits.nr_open.is_some_and(|number| number >= 1024));
        assert!(limits.max_map_count.is_some_and(|number| number > 0));
        assert!(limits.mem_total.is_some_and(|bytes| bytes > 1 << 20));
    }
}
