//! libxenevtchn.
//!
//! A handle is an event file: its descriptor, and its number in the switchboard. The latter is found again by the
//! file's inode, so a descriptor that came through `exec` or over a socket is as good as a new one.

use crate::{broker, fail, status};
use core::ffi::{c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use xen_sim_switchboard::{Errno, Memory, Owner};

/// Flag of `xenevtchn_open`: the descriptor shall survive `exec`.
const NO_CLOEXEC: c_uint = 1;

/// What the daemon holds as `xenevtchn_handle`.
#[derive(Debug)]
pub struct Handle {
    fd: RawFd,
    owner: Owner,
    memory: &'static Memory,
}

impl Handle {
    fn deliver(&self, port: u32) {
        let bytes = port.to_ne_bytes();
        // SAFETY: the buffer is four bytes long. The pipe has room for every port there can be, so this never blocks.
        unsafe { libc::write(self.fd, bytes.as_ptr().cast(), bytes.len()) };
    }

    fn bind(&self, bind: impl Fn() -> Result<u32, Errno>) -> c_int {
        // A daemon that has just died may still hold the port for the moment it takes the broker to notice.
        let bound = bind().or_else(|_| {
            broker::reap();
            bind()
        });
        match bound {
            Ok(port) => {
                self.deliver(port);
                port.cast_signed()
            }
            Err(errno) => fail(errno),
        }
    }
}

fn handle(fd: RawFd) -> Result<*mut Handle, i32> {
    let memory = broker::memory()?;
    // SAFETY: all zero is a valid value of this plain structure.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is ours; a bad descriptor is an error that is looked at.
    if unsafe { libc::fstat(fd, &raw mut stat) } < 0 {
        return Err(libc::EBADF);
    }
    let owner = memory.switchboard().file(stat.st_ino).ok_or(libc::EINVAL)?;
    Ok(Box::into_raw(Box::new(Handle { fd, owner, memory })))
}

fn null(errno: i32) -> *mut Handle {
    fail(errno);
    core::ptr::null_mut()
}

/// Opens an event file.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_open(_logger: *mut c_void, flags: c_uint) -> *mut Handle {
    if flags & !NO_CLOEXEC != 0 {
        return null(libc::EINVAL);
    }
    let opened = broker::event_file().and_then(|file| {
        let fd = file.into_raw_fd();
        if flags & NO_CLOEXEC != 0 {
            // SAFETY: changes a flag of a descriptor that is ours.
            unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        }
        handle(fd)
    });
    opened.unwrap_or_else(null)
}

/// Makes a handle of an event file that is open already.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_fdopen(_logger: *mut c_void, fd: c_int, flags: c_uint) -> *mut Handle {
    if flags != 0 {
        return null(libc::EINVAL);
    }
    handle(fd).unwrap_or_else(null)
}

/// Closes a handle and its descriptor; the ports are unbound once nobody else holds the file.
///
/// # Safety
/// `xce` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_close(xce: *mut Handle) -> c_int {
    if xce.is_null() {
        return 0;
    }
    // SAFETY: by the caller's word this is a handle, made by `handle` and given back just once.
    let handle = unsafe { Box::from_raw(xce) };
    // SAFETY: the descriptor belongs to the handle.
    drop(unsafe { OwnedFd::from_raw_fd(handle.fd) });
    0
}

/// The handle's descriptor.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_fd(xce: *mut Handle) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { (*xce).fd }
}

/// Sends an event through a local port.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_notify(xce: *mut Handle, port: u32) -> c_int {
    // SAFETY: by the caller's word.
    let handle = unsafe { &*xce };
    status(handle.memory.switchboard().notify(handle.owner, port))
}

/// Binds a local port to one that a domain offers.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_bind_interdomain(xce: *mut Handle, domid: u32, remote_port: u32) -> c_int {
    // SAFETY: by the caller's word.
    let handle = unsafe { &*xce };
    handle.bind(|| handle.memory.switchboard().bind_interdomain(handle.owner, domid, remote_port))
}

/// Binds a local port to a virtual interrupt.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_bind_virq(xce: *mut Handle, virq: c_uint) -> c_int {
    // SAFETY: by the caller's word.
    let handle = unsafe { &*xce };
    handle.bind(|| handle.memory.switchboard().bind_virq(handle.owner, virq))
}

/// Would offer a port to a domain, which no store daemon does: always fails, with `ENOSYS`.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_bind_unbound_port(_xce: *mut Handle, _domid: u32) -> c_int {
    fail(libc::ENOSYS)
}

/// Gives a local port back.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_unbind(xce: *mut Handle, port: u32) -> c_int {
    // SAFETY: by the caller's word.
    let handle = unsafe { &*xce };
    status(handle.memory.switchboard().unbind(handle.owner, port))
}

/// The next port at which an event arrived; blocks like the device when there is none and the file may block.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_pending(xce: *mut Handle) -> c_int {
    let mut port = [0; 4];
    // SAFETY: by the caller's word.
    let fd = unsafe { (*xce).fd };
    // SAFETY: the buffer is four bytes long.
    match unsafe { libc::read(fd, port.as_mut_ptr().cast(), port.len()) } {
        4 => u32::from_ne_bytes(port).cast_signed(),
        0.. => fail(libc::EIO),
        _ => -1,
    }
}

/// Lets the next event of a port through. As with the device, a port that is not bound is no error.
///
/// # Safety
/// `xce` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenevtchn_unmask(xce: *mut Handle, port: u32) -> c_int {
    // SAFETY: by the caller's word.
    let handle = unsafe { &*xce };
    if handle.memory.switchboard().unmask(handle.owner, port) == Ok(true) {
        handle.deliver(port);
    }
    0
}

/// Restricts nothing: always succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_restrict(_xce: *mut Handle, _domid: u16) -> c_int {
    0
}
