//! Where the daemon is to be found (xen.git `docs/misc/xenstore.txt`; the variables are those of the C library).

use crate::error::{Attempt, Error};
use crate::transport::{Device, Socket, Transport};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::env;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the daemon's socket unless `XENSTORED_RUNDIR` names another.
pub const DEFAULT_RUN_DIR: &str = "/var/run/xenstored";

/// The device through which a guest reaches its ring; where it is missing, the older one.
const DEVICE: &str = "/dev/xen/xenbus";
const OLD_DEVICE: &str = "/proc/xen/xenbus";

/// The daemon's directory: `XENSTORED_RUNDIR`, or [`DEFAULT_RUN_DIR`].
#[must_use]
pub fn run_dir() -> PathBuf {
    env::var_os("XENSTORED_RUNDIR").map_or_else(|| DEFAULT_RUN_DIR.into(), PathBuf::from)
}

/// The daemon's socket: `XENSTORED_PATH`, or `socket` in [`run_dir`].
#[must_use]
pub fn daemon_socket() -> PathBuf {
    env::var_os("XENSTORED_PATH").map_or_else(|| run_dir().join("socket"), PathBuf::from)
}

/// The places to try in turn: the socket, then the device. `XENSTORED_PATH` stands in for both.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    let second = env::var_os("XENSTORED_PATH").map_or_else(|| device(Path::exists).into(), PathBuf::from);
    let first = daemon_socket();
    if first == second { vec![first] } else { vec![first, second] }
}

/// The device. On the older one, whoever reads keeps others from writing, so it is for kernels that have no other.
fn device(exists: impl Fn(&Path) -> bool) -> &'static str {
    if exists(Path::new(DEVICE)) { DEVICE } else { OLD_DEVICE }
}

/// How to wait for a daemon that has no room for another connection yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Waits until it has, as the C library does.
    Wait,
    /// Fails with `EAGAIN`.
    Fail,
}

/// Connects to the first of `places` that lets us.
///
/// # Errors
/// [`Error::Unreachable`] with what came of each.
pub fn open_first(places: &[PathBuf], full: Full) -> Result<Arc<dyn Transport>, Error> {
    let mut attempts = Vec::new();
    for path in places {
        match open_one(path, full) {
            Ok(transport) => return Ok(transport),
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw);
                attempts.push(Attempt { path: path.clone(), errno });
            }
        }
    }
    Err(Error::Unreachable(attempts))
}

/// Connects to a socket, or opens anything else as a device.
fn open_one(path: &Path, full: Full) -> io::Result<Arc<dyn Transport>> {
    if !fs::metadata(path)?.file_type().is_socket() {
        return Ok(Arc::new(Device::open(path)?));
    }
    let address = UnixAddr::new(path).map_err(|_| Errno::EINVAL)?;
    let blocking = SockFlag::SOCK_CLOEXEC;
    let flags = if full == Full::Fail { blocking | SockFlag::SOCK_NONBLOCK } else { blocking };
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    while let Err(errno) = connect(socket.as_raw_fd(), &address) {
        // Nothing of a connection to a local socket is left behind by that.
        if errno != Errno::EINTR {
            return Err(errno.into());
        }
    }
    if full == Full::Fail {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::empty()))?;
    }
    Ok(Arc::new(Socket::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_device_is_for_kernels_without_the_other() {
        assert_eq!(device(|_| true), "/dev/xen/xenbus");
        assert_eq!(device(|path| path == Path::new("/proc/xen/xenbus")), "/proc/xen/xenbus");
        assert_eq!(device(|_| false), "/proc/xen/xenbus");
    }
}
