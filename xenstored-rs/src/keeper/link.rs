//! The daemon's side of its keeper.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, socketpair};

use crate::cli::TakeOver;

use super::message::{Key, Message, Received, receive, send};
use super::process::{ARGUMENT, command_line, door};

/// Between two looks at whether the keeper has read everything, which nothing announces.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a keeper that is sent away may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the daemon talks to its keeper.
#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    /// The process, where this daemon started it: its end must be waited for.
    child: Option<Child>,
}

/// What a keeper held.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The socket that clients connect to.
    pub(crate) listener: Option<OwnedFd>,
    /// The event channels.
    pub(crate) event_channels: Option<OwnedFd>,
    /// Clients, each with its connection's number among all that ever were.
    pub(crate) clients: Vec<(u64, OwnedFd)>,
    /// All that is of a take-over that is not done.
    pub(crate) unfinished: Option<TakeOver>,
}

/// Why nothing could be had from a keeper.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// No keeper is there.
    #[error("no keeper is there")]
    Absent,
    /// It serves another daemon, or broke off.
    #[error("the keeper does not hand over what it holds")]
    Refused(#[source] io::Error),
}

/// Asks the keeper of a run directory for all that it holds; it is this daemon's from then on.
///
/// # Errors
/// Where none is there, or it serves another daemon.
pub(crate) fn fetch(socket: &Path) -> Result<(Link, Kept), LinkError> {
    let link = knock(socket).map_err(|_| LinkError::Absent)?;
    let mut kept = Kept::default();
    loop {
        match receive(&link).map_err(LinkError::Refused)? {
            Received::Message(Message::Held(key), Some(descriptor)) => match key {
                Key::Listener => kept.listener = Some(descriptor),
                Key::EventChannels => kept.event_channels = Some(descriptor),
                Key::Client(life) => kept.clients.push((life, descriptor)),
                Key::Unfinished(from) => kept.unfinished = Some(from),
            },
            Received::Message(Message::All, _) => break,
            Received::Message(..) => {}
            Received::End => return Err(LinkError::Refused(io::ErrorKind::ConnectionReset.into())),
        }
    }
    rustix::io::ioctl_fionbio(&link, true).map_err(|error| LinkError::Refused(error.into()))?;
    Ok((Link { socket: link, child: None }, kept))
}

/// Bytes that were sent and are not read at the other end.
fn outstanding(socket: &OwnedFd) -> io::Result<u64> {
    xen_ffi::process::unread_bytes(socket.as_fd())
}

fn knock(path: &Path) -> io::Result<OwnedFd> {
    let link = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&link, &SocketAddrUnix::new(path)?)?;
    Ok(link)
}

/// Starts a keeper, which holds nothing yet. `store` is the socket of the store, `wait` how long the keeper waits after a
/// stop; `program` with `arguments` is what it starts where a daemon dies and nobody else replaces it.
///
/// # Errors
/// If the kernel has no process or descriptor left.
pub(crate) fn spawn(
    socket: &Path,
    store: &Path,
    wait: Duration,
    program: &Path,
    arguments: &[OsString],
) -> io::Result<Link> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    // Made here, for who comes before the keeper has begun: it holds all that was sent to it from now on.
    let door = door(socket)?;
    let child = Command::new("/proc/self/exe")
        .arg0("xenstored-rs")
        .arg(ARGUMENT)
        .args(command_line(socket, store, wait, program, arguments))
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(door))
        // What ends the daemon from a terminal must not end the keeper.
        .process_group(0)
        .spawn()?;
    Ok(Link { socket: ours, child: Some(child) })
}

impl Link {
    /// Has a descriptor held.
    ///
    /// # Errors
    /// `WouldBlock` where the keeper is behind; otherwise it is gone.
    pub(crate) fn keep(&self, key: Key, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        send(&self.socket, Message::Keep(key), Some(descriptor))
    }

    /// Has a descriptor let go.
    ///
    /// # Errors
    /// As [`Link::keep`].
    pub(crate) fn let_go(&self, key: Key) -> io::Result<()> {
        send(&self.socket, Message::Drop(key), None)
    }

    /// Says that the end that follows is wanted.
    ///
    /// # Errors
    /// As [`Link::keep`].
    pub(crate) fn stopping(&self) -> io::Result<()> {
        send(&self.socket, Message::Stopping, None)
    }

    /// Waits until the keeper has taken all that was sent to it.
    ///
    /// # Errors
    /// If it does not in time.
    pub(crate) fn settle(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        // What is sent is taken from this end's account as it is read at the other.
        while outstanding(&self.socket)? > 0 {
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends the keeper away with all that it holds, and waits until it has let go.
    ///
    /// # Errors
    /// As [`Link::keep`].
    pub(crate) fn dismiss(self) -> io::Result<()> {
        send(&self.socket, Message::Dismissed, None)?;
        let patience = Timespec::try_from(PATIENCE).ok();
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], patience.as_ref())?;
        self.bury();
        Ok(())
    }

    /// Waits for the end of a keeper that is gone, so that nothing is left of it. Tells how it ended, where this daemon
    /// started it.
    pub(crate) fn bury(self) -> Option<ExitStatus> {
        let mut child = self.child?;
        // One that has ended is not changed by that: how it did stands before its end of the link is closed.
        let _ = child.kill();
        child.wait().ok()
    }
}

/// To learn of the keeper's end, by poll: it says nothing on its own.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
