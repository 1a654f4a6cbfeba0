//! The clock of the daemon.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the host's start, which never goes back and is the same for every process: what a daemon wrote down of it
/// means the same to the next.
pub(crate) fn now() -> Duration {
    // The kernel has this clock always.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}
