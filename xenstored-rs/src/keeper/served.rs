//! The daemon as its keeper sees it.
//!
//! The end of the link would tell of the daemon's end, were it not that a copy of the daemon, which writes the store down,
//! has the link for a moment too. So the process is watched itself.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, pidfd_open};

/// The daemon that a keeper keeps for.
#[derive(Debug)]
pub(super) struct Served {
    link: OwnedFd,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// It was there, and this tells of its end.
    Watched(OwnedFd),
    /// It is gone already.
    Gone,
    /// It cannot be watched: the link is all that tells of it.
    Unknown,
}

impl Served {
    /// The process that made the socket at the other end.
    pub(super) fn new(link: OwnedFd) -> Self {
        let process = match rustix::net::sockopt::socket_peercred(&link) {
            Ok(peer) => match pidfd_open(peer.pid, PidfdFlags::empty()) {
                Ok(end) => Process::Watched(end),
                Err(rustix::io::Errno::SRCH) => Process::Gone,
                Err(_) => Process::Unknown,
            },
            Err(_) => Process::Unknown,
        };
        Self { link, process }
    }

    /// How to talk to it.
    pub(super) fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// What to wait for: something on the link, or the end of the process.
    pub(super) fn add_to<'a>(&'a self, waiting: &mut Vec<PollFd<'a>>) {
        waiting.push(PollFd::new(&self.link, PollFlags::IN));
        if let Process::Watched(end) = &self.process {
            waiting.push(PollFd::new(end, PollFlags::IN));
        }
    }

    /// Whether it was gone before it could be watched.
    pub(super) fn was_gone(&self) -> bool {
        matches!(self.process, Process::Gone)
    }
}
