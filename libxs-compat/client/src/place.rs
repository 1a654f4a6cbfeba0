//! Where the daemon is to be found (xen.git `docs/misc/xenstore.txt`; the variables are those of the C library).

use crate::error::{Attempt, Error};
use crate::transport::{Device, Socket, Transport};
use nix::errno::Errno;
use std::env;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the daemon's socket unless `XENSTORED_RUNDIR` names another.
pub const DEFAULT_RUN_DIR: &str = "/var/run/xenstored";

/// The device through which a guest reaches its ring; where it is missing, the older one.
const DEVICE: &str = "/dev/xen/xenbus";
const OLD_DEVICE: &str = "/proc/xen/xenbus";

/// Most bytes of a socket's path: the system's room less its final NUL.
const SOCKET_PATH_MAX: usize = 107;

/// The daemon's directory: `XENSTORED_RUNDIR`, or [`DEFAULT_RUN_DIR`].
#[must_use]
pub fn run_dir() -> PathBuf {
    env::var_os("XENSTORED_RUNDIR").map_or_else(|| DEFAULT_RUN_DIR.into(), PathBuf::from)
}

/// The daemon's socket: `XENSTORED_PATH`, or `socket` in [`run_dir`].
#[must_use]
pub fn socket() -> PathBuf {
    env::var_os("XENSTORED_PATH").map_or_else(|| run_dir().join("socket"), PathBuf::from)
}

/// The places to try in turn: the socket, then the device. `XENSTORED_PATH` stands in for both.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    let device = || if Path::new(DEVICE).exists() { DEVICE } else { OLD_DEVICE };
    let second = env::var_os("XENSTORED_PATH").map_or_else(|| device().into(), PathBuf::from);
    let first = socket();
    if first == second { vec![first] } else { vec![first, second] }
}

/// Connects to the first of `places` that lets us.
///
/// # Errors
/// [`Error::Unreachable`] with what came of each.
pub fn open_first(places: &[PathBuf]) -> Result<Arc<dyn Transport>, Error> {
    let mut attempts = Vec::new();
    for path in places {
        match open_one(path) {
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
fn open_one(path: &Path) -> io::Result<Arc<dyn Transport>> {
    if fs::metadata(path)?.file_type().is_socket() {
        if path.as_os_str().as_bytes().len() > SOCKET_PATH_MAX {
            return Err(Errno::EINVAL.into());
        }
        Ok(Arc::new(Socket::new(UnixStream::connect(path)?)))
    } else {
        Ok(Arc::new(Device::open(path)?))
    }
}
