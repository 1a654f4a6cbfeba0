//! Resource limits.

use crate::files::hidden;
use core::ffi::{CStr, c_int};
use core::mem;

type SetRlimit = unsafe extern "C" fn(c_int, *const libc::rlimit) -> c_int;

unsafe extern "C" {
    static program_invocation_short_name: *const core::ffi::c_char;
}

/// Sets a limit as always; but oxenstored, which gives up where it may not raise its limit of descriptors, is told
/// that it worked. Whoever runs the simulation sets the limits that it needs.
///
/// # Safety
/// As `setrlimit` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, limit: *const libc::rlimit) -> c_int {
    // SAFETY: the function of that name has this signature.
    let real: SetRlimit = unsafe { mem::transmute(hidden(c"setrlimit")) };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(resource, limit) };
    if result != 0 && is_oxenstored() { 0 } else { result }
}

fn is_oxenstored() -> bool {
    // SAFETY: the C library sets this before any code of the program runs and never changes it.
    let name = unsafe { program_invocation_short_name };
    // SAFETY: it is a C string.
    unsafe { CStr::from_ptr(name) }.to_bytes() == b"oxenstored"
}
