//! A timer that rings once, a second after it was wound.
//!
//! It is a descriptor of its own, since a time-out of the poll itself would cost each turn of a busy loop the setting
//! and clearing of a timer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

/// How long it takes.
const PERIOD: Duration = Duration::from_secs(1);

/// The timer.
#[derive(Debug)]
pub(crate) struct Ticker {
    timer: TimerFd,
    wound: bool,
}

impl Ticker {
    /// A timer that is not wound, telling through `token`.
    ///
    /// # Errors
    /// If the kernel has no descriptors left.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer, wound: false })
    }

    /// Winds it, unless it is wound. Where the kernel refuses, the next attempt may do better.
    pub(crate) fn wind(&mut self) {
        if !self.wound {
            let set = self.timer.set(Expiration::OneShot(PERIOD.into()), TimerSetTimeFlags::empty());
            self.wound = set.is_ok();
        }
    }

    /// Takes note that it rang.
    pub(crate) fn rang(&mut self) {
        self.wound = false;
        // What it counted is of no interest, and it was told of once.
        let _ = self.timer.unset();
    }
}
