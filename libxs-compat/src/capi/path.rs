//! Where the daemon is, and what needs no daemon.

use crate::events::is_subpath;
use crate::guard::{Failure, guard};
use crate::text;
use libc::{c_char, c_int, c_uint, c_void};
use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

/// The daemon's directory unless `XENSTORED_RUNDIR` names another, and its socket there.
const RUN_DIR: &CStr = c"/var/run/xenstored";
const SOCKET: &CStr = c"/var/run/xenstored/socket";

/// The value of a variable of the environment, where it lies.
fn variable(name: &CStr) -> Option<*const c_char> {
    // SAFETY: the name is a string; that nobody changes the environment meanwhile is up to the program, as always.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    (!value.is_null()).then_some(value.cast_const())
}

/// Returns the daemon's directory: `XENSTORED_RUNDIR`, or the usual one. It is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn xs_daemon_rundir() -> *const c_char {
    guard(null(), || Ok(variable(c"XENSTORED_RUNDIR").unwrap_or(RUN_DIR.as_ptr())))
}

/// Returns the daemon's socket: `XENSTORED_PATH`, or `socket` in its directory. It is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn xs_daemon_socket() -> *const c_char {
    /// The paths that were made so far. They are few, and stay, since callers may still hold them.
    static MADE: Mutex<Vec<CString>> = Mutex::new(Vec::new());
    guard(null(), || {
        if let Some(path) = variable(c"XENSTORED_PATH") {
            return Ok(path);
        }
        let Some(dir) = variable(c"XENSTORED_RUNDIR") else { return Ok(SOCKET.as_ptr()) };
        // SAFETY: a variable's value is a string.
        let dir = unsafe { CStr::from_ptr(dir) }.to_bytes();
        let path = CString::new([dir, b"/socket"].concat()).map_err(|_| Failure(Errno::EINVAL))?;
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made.iter().find(|known| **known == path).map(|known| known.as_ptr());
        Ok(known.unwrap_or_else(|| {
            let start = path.as_ptr();
            made.push(path);
            start
        }))
    })
}

/// Returns what `xs_daemon_socket` returns: there is no other socket for those who only read.
#[unsafe(no_mangle)]
pub extern "C" fn xs_daemon_socket_ro() -> *const c_char {
    xs_daemon_socket()
}

/// Whether `child` is `parent` or, by its letters, below it; below `/` nothing is.
///
/// # Safety
/// Both are strings or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_path_is_subpath(parent: *const c_char, child: *const c_char) -> bool {
    guard(false, || {
        // SAFETY: both are what the caller promises.
        let parent = unsafe { text::string(parent) }?;
        // SAFETY: as above.
        let child = unsafe { text::string(child) }?;
        let bare = |string: &'static [u8]| string.strip_suffix(b"\0").unwrap_or(string);
        Ok(is_subpath(bare(parent), bare(child)))
    })
}

/// Writes all of `data` to a descriptor, however often it takes.
///
/// # Safety
/// `data` is `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_write_all(fd: c_int, data: *const c_void, len: c_uint) -> bool {
    guard(false, || {
        let mut rest = usize::try_from(len).map_err(|_| Failure(Errno::EINVAL))?;
        let mut next = data;
        while rest > 0 {
            // SAFETY: `rest` bytes are left of what the caller promises; a wrong address is an error of the system's.
            let written = unsafe { libc::write(fd, next, rest) };
            match usize::try_from(written) {
                Ok(0) => return Err(Failure(Errno::EIO)),
                Ok(written) => {
                    next = next.wrapping_byte_add(written);
                    rest = rest.saturating_sub(written);
                }
                Err(_) if Errno::last() == Errno::EINTR => {}
                Err(_) => return Err(Failure(Errno::last())),
            }
        }
        Ok(true)
    })
}
