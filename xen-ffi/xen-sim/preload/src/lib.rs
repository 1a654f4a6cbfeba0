//! A library to preload into a xenstore daemon, so that it runs on a simulated Xen host.
//!
//! It answers the calls of libxenevtchn, libxengnttab, libxenforeignmemory, libxenmanage and libxenctrl that such a
//! daemon makes, and offers the few files of a Xen host. `XEN_SIM_SOCKET` names the broker's socket; the broker is
//! asked for the host's memory and for event files, everything else happens in that memory.
//!
//! Functions carry the C names and signatures of Xen 4.17's headers (libxenmanage: of 4.21's). Results and `errno` are
//! those of Xen on Linux.

#![allow(unreachable_pub, reason = "the functions are reached by their C names, never by a path")]

mod broker;
mod domain_control;
mod event_channel;
mod files;
mod foreign_memory;
mod grant_table;
mod loader;
mod manage;
mod mapping;
mod resource_limit;

/// Sets `errno` and gives the C value of failure.
fn fail(errno: i32) -> i32 {
    // SAFETY: has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own errno is always there.
    unsafe { place.write(errno) };
    -1
}

/// The C value of a result: 0, or -1 and `errno`.
fn status(result: Result<(), i32>) -> i32 {
    result.map_or_else(fail, |()| 0)
}

/// A handle for libraries whose handles hold nothing here.
fn empty_handle() -> *mut core::ffi::c_void {
    static HANDLE: u8 = 0;
    (&raw const HANDLE).cast_mut().cast()
}

/// Opens such a handle; null and `errno` where there is no host.
fn open_handle() -> *mut core::ffi::c_void {
    match broker::memory() {
        Ok(_) => empty_handle(),
        Err(errno) => {
            fail(errno);
            core::ptr::null_mut()
        }
    }
}
