//! The ways to a daemon: a stream socket, or the device through which a guest reaches its ring.

use crate::descriptors::{Descriptors, Noted};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use nix::unistd::{read, write};
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A stream of bytes to a daemon and back. Several threads use it at once, one of them for receiving.
///
/// `as_fd` must give a descriptor that can be polled: the background reader waits on it.
pub trait Transport: AsFd + Debug + Send + Sync + 'static {
    /// Sends some of `bytes`, at least one, and returns how many.
    ///
    /// Where that can be avoided it does not wait for room: `WouldBlock` then asks the caller to wait for it.
    ///
    /// # Errors
    /// Those of the system; none of them raises a signal.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Receives at least one byte into `room`, waiting until there is one, and returns how many; 0 at the end of the
    /// stream.
    ///
    /// # Errors
    /// Those of the system; `WouldBlock` when nothing came before `until`, at once when that has passed.
    fn receive(&self, room: &mut [u8], until: Option<Instant>) -> io::Result<usize>;

    /// Whether the bytes of several messages may be sent in one piece. A device may look at the first alone.
    fn takes_batches(&self) -> bool {
        false
    }

    /// Ends both directions for everybody, as far as the transport can: whoever waits in it returns.
    fn shut(&self);

    /// Notes the descriptors that are open, for as long as they are.
    fn note(&self, descriptors: &Arc<Descriptors>) {
        let _ = descriptors;
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket {
    noted: OnceLock<Noted>,
    fd: OwnedFd,
}

impl Socket {
    /// Takes over a connected stream socket.
    #[must_use]
    pub fn new(stream: impl Into<OwnedFd>) -> Self {
        Self { noted: OnceLock::new(), fd: stream.into() }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Transport for Socket {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        retry(|| send(self.fd.as_raw_fd(), bytes, flags))
    }

    fn receive(&self, room: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
        let Some(until) = until else {
            return retry(|| recv(self.fd.as_raw_fd(), room, MsgFlags::empty()));
        };
        loop {
            match retry(|| recv(self.fd.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            wait_ready(self.as_fd(), PollFlags::POLLIN, Some(until))?;
        }
    }

    fn takes_batches(&self) -> bool {
        true
    }

    fn shut(&self) {
        // A peer that is gone already has done the same.
        let _ended = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
    }

    fn note(&self, descriptors: &Arc<Descriptors>) {
        self.noted.get_or_init(|| descriptors.note(&self.fd));
    }
}

/// A character device that carries xenstore messages, such as `/dev/xen/xenbus`.
///
/// It is never read before it says that there is something: a thread that waits inside `read` keeps others from
/// writing on the old `/proc/xen/xenbus`, where both share a lock on the file's position.
#[derive(Debug)]
pub struct Device {
    noted: OnceLock<[Noted; 2]>,
    fd: OwnedFd,
    /// Readable from [`Transport::shut`] on: nothing else wakes those who wait for the device.
    ended: EventFd,
}

impl Device {
    /// Opens the device at `path`.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = nix::libc::O_CLOEXEC | nix::libc::O_NOCTTY;
        let fd = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?.into();
        let ended = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { noted: OnceLock::new(), fd, ended })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Transport for Device {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| write(&self.fd, bytes))
    }

    fn receive(&self, room: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
        let [_, ended] =
            wait_for([(self.fd.as_fd(), PollFlags::POLLIN), (self.ended.as_fd(), PollFlags::POLLIN)], until)?;
        if ended.is_empty() { retry(|| read(&self.fd, room)) } else { Ok(0) }
    }

    fn shut(&self) {
        // Were its counter full, it would be readable already.
        let _ended = self.ended.write(1);
    }

    fn note(&self, descriptors: &Arc<Descriptors>) {
        self.noted.get_or_init(|| [descriptors.note(&self.fd), descriptors.note(&self.ended)]);
    }
}

/// Calls again what a signal interrupted.
fn retry(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Waits until `fd` is ready for one of `wanted` or in error, and returns for what.
///
/// # Errors
/// `WouldBlock` when `until` has passed; those of `poll`.
pub(crate) fn wait_ready(fd: BorrowedFd<'_>, wanted: PollFlags, until: Option<Instant>) -> io::Result<PollFlags> {
    let [ready] = wait_for([(fd, wanted)], until)?;
    Ok(ready)
}

/// [`wait_ready`] for the first of several.
fn wait_for<const N: usize>(
    wanted: [(BorrowedFd<'_>, PollFlags); N],
    until: Option<Instant>,
) -> io::Result<[PollFlags; N]> {
    let mut fds = wanted.map(|(fd, flags)| PollFd::new(fd, flags));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match poll(&mut fds, poll_timeout(left)) {
            Ok(0) if left == Some(Duration::ZERO) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(fds.map(|fd| fd.revents().unwrap_or_else(|| fd.events()))),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Milliseconds for `poll`, rounded up so that waiting never ends early and spins.
fn poll_timeout(left: Option<Duration>) -> PollTimeout {
    let Some(left) = left else { return PollTimeout::NONE };
    PollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
}
