//! Opening and closing.

use crate::guard::guard;
use crate::handle::{handle, xs_handle};
use libc::{c_uint, c_ulong};
use std::ptr::null_mut;

/// Opens a connection: to the socket that `xs_daemon_socket` names, else to the device of a guest; `XENSTORED_PATH`
/// stands in for both. `flags` are `XS_UNWATCH_FILTER` and `XS_OPEN_RECONNECT`; others mean nothing.
///
/// `errno` is that of the last attempt.
#[unsafe(no_mangle)]
pub extern "C" fn xs_open(flags: c_ulong) -> *mut xs_handle {
    guard(null_mut(), || xs_handle::open(flags))
}

/// Opens a connection: `xs_open(0)`.
#[unsafe(no_mangle)]
pub extern "C" fn xs_daemon_open() -> *mut xs_handle {
    xs_open(0)
}

/// Opens a connection: `xs_open(0)`. It is not read-only.
#[unsafe(no_mangle)]
pub extern "C" fn xs_daemon_open_readonly() -> *mut xs_handle {
    xs_open(0)
}

/// Opens a connection: `xs_open(0)`.
#[unsafe(no_mangle)]
pub extern "C" fn xs_domain_open() -> *mut xs_handle {
    xs_open(0)
}

/// Closes a connection; NULL is none. In a child of a fork this does what `xs_daemon_destroy_postfork` does.
///
/// # Safety
/// No other thread may be in a call with the handle, and none may use it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_close(xsh: *mut xs_handle) {
    guard((), || {
        if !xsh.is_null() {
            // SAFETY: it is a handle, and the last use of it, as the caller promises.
            unsafe { xs_handle::close(xsh) };
        }
        Ok(())
    });
}

/// Closes a connection, as `xs_close` does.
///
/// # Safety
/// As for `xs_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_daemon_close(h: *mut xs_handle) {
    // SAFETY: the same is promised.
    unsafe { xs_close(h) };
}

/// Throws a connection away in a child of a fork; the parent's goes on.
///
/// # Safety
/// As for `xs_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_daemon_destroy_postfork(h: *mut xs_handle) {
    // SAFETY: the same is promised.
    unsafe { xs_close(h) };
}

/// Does nothing and returns false: confining a connection was removed from the protocol.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_restrict(h: *mut xs_handle, domid: c_uint) -> bool {
    let _ = domid;
    // SAFETY: that is the caller's promise.
    guard(false, || unsafe { handle(h) }.map(|_| false))
}
