//! What the kernel says about a daemon: CPU time and memory; and where it may run.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::client::{Failure, Outcome};

/// The CPU clock of one process, all its threads together, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock {
    pid: Pid,
    clock: ClockId,
}

impl CpuClock {
    /// The clock of `pid`.
    pub(crate) fn of(pid: Pid) -> Outcome<Self> {
        Ok(Self { pid, clock: clock_getcpuclockid(pid)? })
    }

    /// CPU time used so far, read once the process sleeps: the kernel books a stretch of work only at its end.
    pub(crate) fn now(&self) -> Outcome<Duration> {
        for _ in 0..500 {
            thread::sleep(Duration::from_micros(100));
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
            if state(&stat) != Some('R') {
                break;
            }
        }
        Ok(clock_gettime(self.clock)?.into())
    }
}

/// The state letter of a `/proc/PID/stat` line; the name before it may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Anonymous memory that is resident now.
    pub(crate) anonymous: u64,
    /// Most that was resident at any time, less what is mapped from files and shared now.
    pub(crate) peak: u64,
}

impl Memory {
    /// Memory of `pid` now.
    pub(crate) fn of(pid: Pid) -> Outcome<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status"))?)
            .ok_or_else(|| Failure::Unusable("no memory figures in /proc/PID/status".to_owned()))
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        let others = field("RssFile")? + field("RssShmem")?;
        Some(Self { anonymous: field("RssAnon")?, peak: field("VmHWM")?.saturating_sub(others) })
    }

    /// The larger of both figures, in MiB.
    pub(crate) fn mebibytes(&self) -> f64 {
        self.anonymous.max(self.peak) as f64 / 1024.0
    }
}

/// Which processors the client and the daemons run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Both on the same one: no wake-up crosses processors.
    Together,
    /// On one each.
    Apart,
    /// As the kernel likes.
    Free,
}

impl Place {
    /// The place with this name on the command line.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "together" => Some(Self::Together),
            "apart" => Some(Self::Apart),
            "free" => Some(Self::Free),
            _ => None,
        }
    }
}

/// The processors that the client and the daemons are kept on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    client: usize,
    daemon: usize,
}

impl Places {
    /// Chooses among the processors that this process may use, the last first, since interrupts tend to be served on
    /// the first; `None` where nothing is to be kept or there are too few.
    pub(crate) fn choose(place: Place) -> Option<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut usable = (0..CpuSet::count()).rev().filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
        let daemon = usable.next()?;
        match place {
            Place::Together => Some(Self { client: daemon, daemon }),
            Place::Apart => Some(Self { client: usable.next()?, daemon }),
            Place::Free => None,
        }
    }

    /// Keeps this process on the client's processor.
    pub(crate) fn take_client(self) -> io::Result<()> {
        pin(self.client)
    }

    /// Keeps this process, and what it starts, on the daemons' processor.
    pub(crate) fn take_daemon(self) -> io::Result<()> {
        pin(self.daemon)
    }
}

/// Where everything runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Clients of sockets, and their daemons.
    pub(crate) sockets: Option<Places>,
    /// Guests, and their daemons: on a processor each even where clients of sockets share one, since guests spin.
    pub(crate) guests: Option<Places>,
    /// Guests can spin without taking their daemon's time.
    pub(crate) guests_spin: bool,
}

impl Layout {
    /// Chooses among the processors that this process may use now.
    pub(crate) fn choose(place: Place) -> Self {
        let sockets = Places::choose(place);
        let guests = sockets.map(|together| Places::choose(Place::Apart).unwrap_or(together));
        let several = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        Self { sockets, guests, guests_spin: guests.map_or(several, |places| places.client != places.daemon) }
    }
}

fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Raises the limit of open descriptors as far as it goes, for this process and the daemons it starts; returns it.
pub(crate) fn raise_descriptor_limit() -> Outcome<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_any_name() {
        assert_eq!(state("12 (a) R (b)) S 1 12"), Some('S'));
        assert_eq!(state("12 broken"), None);
    }

    #[test]
    fn memory_is_read_from_a_status_file() {
        let status =
            "Name:\tx\nVmHWM:\t    9000 kB\nRssAnon:\t    5000 kB\nRssFile:\t    2000 kB\nRssShmem:\t     100 kB\n";
        let memory = Memory::parse(status).unwrap();
        assert_eq!(memory, Memory { anonymous: 5000, peak: 6900 });
        assert_eq!(Memory::parse("Name:\tx\n"), None);
    }

    #[test]
    fn the_cpu_clock_of_this_process_goes_forward() {
        let clock = CpuClock::of(Pid::this()).unwrap();
        let before = clock.now().unwrap();
        let sum: u64 = (0..1_000_000u64).map(std::hint::black_box).sum();
        assert!(sum > 0 && clock.now().unwrap() > before);
    }
}
