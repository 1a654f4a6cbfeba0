//! Control commands.

use super::string;
use crate::guard::guard_request;
use crate::handle::xs_handle;
use crate::text;
use libc::{c_char, c_uint, c_void};
use std::ptr::null_mut;
use xenstore_wire::Op;

/// Runs a command of the daemon's own and returns what it says. `data` are the arguments, each with its NUL.
///
/// # Safety
/// `h` is a handle, `cmd` a string, `data` is `len` bytes; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_control_command(
    h: *mut xs_handle,
    cmd: *const c_char,
    data: *mut c_void,
    len: c_uint,
) -> *mut c_char {
    guard_request(null_mut(), || {
        // SAFETY: both are what the caller promises.
        let (handle, command) = unsafe { text::subject(h, cmd) }?;
        // SAFETY: as above.
        let arguments = unsafe { text::bytes(data, len) }?;
        let (said, _) = string(&handle, Op::Control, 0, &[command, arguments])?;
        Ok(said.into_raw().cast())
    })
}

/// The older name of `xs_control_command`.
///
/// # Safety
/// As for `xs_control_command`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_debug_command(
    h: *mut xs_handle,
    cmd: *const c_char,
    data: *mut c_void,
    len: c_uint,
) -> *mut c_char {
    // SAFETY: the same is promised.
    unsafe { xs_control_command(h, cmd, data, len) }
}
