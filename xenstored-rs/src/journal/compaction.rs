//! Making the journal short again while requests are served.
//!
//! The log goes on in a new file, and a copy of this process, made by fork, writes down what the store is at that
//! moment. The copy sees nothing of what comes after it and delays nobody. When it is done, the logs before are of no
//! more use.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use rustix::process::{PidfdFlags, pidfd_open};
use tracing::{info, warn};
use xen_ffi::process::{Forked, close_inherited, end, fork, stand_back};
use xenstore_core::Config;

use super::journaled::Journaled;

/// How long to wait after one that failed.
const RETRY: Duration = Duration::from_secs(10);

/// A compaction that is under way, or when the next may be.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    running: Option<Running>,
    /// Not before this time.
    not_before: Duration,
}

/// The journal stays long, for now.
#[derive(Debug)]
pub(crate) struct NotShort;

#[derive(Debug)]
struct Running {
    child: Pid,
    /// Tells of the child's end.
    end: OwnedFd,
    /// The image that it writes.
    number: u64,
}

impl Compaction {
    /// Has one done soon, or the one that is under way come to its end; how that goes is told as for any.
    pub(crate) fn want(&mut self, journaled: &mut Journaled) {
        if self.running.is_none() {
            journaled.compact_soon();
            self.not_before = Duration::ZERO;
        }
    }

    /// Starts one where the journal asks for it. `shell` tells the shell's part of the image. The child's end is told
    /// through `token`.
    ///
    /// # Errors
    /// If it cannot be started, of which the log has the reason; it is tried again after a while.
    pub(crate) fn start_if_due(
        &mut self,
        journaled: &mut Journaled,
        shell: impl FnOnce(&Config) -> Vec<u8>,
        registry: &Registry,
        token: Token,
        now: Duration,
    ) -> Result<(), NotShort> {
        if self.running.is_some() || now < self.not_before || !journaled.wants_compaction() {
            return Ok(());
        }
        self.start(journaled, shell, registry, token).map_err(|error| {
            warn!(error = &*error, "the journal cannot be made short now");
            self.not_before = now + RETRY;
            NotShort
        })
    }

    fn start(
        &mut self,
        journaled: &mut Journaled,
        shell: impl FnOnce(&Config) -> Vec<u8>,
        registry: &Registry,
        token: Token,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let number = journaled.rotate()?;
        let daemon = getpid();
        match fork()? {
            Forked::Child => {
                // A copy of a socket would keep its client waiting, and the next daemon from listening. Where the kernel
                // is too old to close them all at once, they go with the process.
                let _ = close_inherited();
                // Where the daemon has one processor for itself, it has half of it otherwise.
                let _ = stand_back();
                // Nobody waits for it once the daemon is gone, and the next daemon has its own.
                let _ = set_pdeathsig(Signal::SIGKILL);
                if getppid() != daemon {
                    end(1);
                }
                let written = journaled.write_image(&shell(journaled.started()));
                if let Err(error) = &written {
                    warn!(error = error as &dyn std::error::Error, "the store cannot be written down");
                }
                end(u8::from(written.is_err()))
            }
            Forked::Parent { child } => {
                let child = Pid::from_raw(child);
                let end = watch(child, registry, token)?;
                self.running = Some(Running { child, end, number });
                Ok(())
            }
        }
    }

    /// Takes note that the child ended. Tells the number of the image if it is whole.
    pub(crate) fn ended(&mut self, journaled: &mut Journaled, registry: &Registry, now: Duration) -> Option<u64> {
        let Running { child, end, number } = self.running.take()?;
        let _ = registry.deregister(&mut SourceFd(&end.as_fd().as_raw_fd()));
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => {
                journaled.forget_before(number);
                Some(number)
            }
            status => {
                warn!(?status, "the store was not written down; the journal stays long");
                self.not_before = now + RETRY;
                None
            }
        }
    }

    /// When to look again, where one is due and failed before.
    pub(crate) fn next_deadline(&self, journaled: &Journaled) -> Option<Duration> {
        (self.running.is_none() && journaled.wants_compaction()).then_some(self.not_before)
    }
}

/// Has the end of a child told.
fn watch(child: Pid, registry: &Registry, token: Token) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(child.as_raw()).ok_or(io::ErrorKind::InvalidInput)?;
    let end = pidfd_open(pid, PidfdFlags::empty())?;
    registry.register(&mut SourceFd(&end.as_raw_fd()), token, Interest::READABLE)?;
    info!(child = child.as_raw(), "the journal is made short");
    Ok(end)
}
