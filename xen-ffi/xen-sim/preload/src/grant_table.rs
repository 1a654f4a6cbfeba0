//! libxengnttab.

use crate::{fail, mapping};
use core::ffi::{c_int, c_uint, c_void};
use xen_sim_switchboard::GRANT_XENSTORE;

/// Opens the grant table.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_open(_logger: *mut c_void, _flags: c_uint) -> *mut c_void {
    crate::open_handle()
}

/// Closes the grant table; pages stay mapped.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_close(_xgt: *mut c_void) -> c_int {
    0
}

/// As on Linux today: there is no such limit any more, so `ENOTTY`.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_set_max_grants(_xgt: *mut c_void, _count: u32) -> c_int {
    fail(libc::ENOTTY)
}

/// Maps a page that a domain grants: its ring, by reference 1.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_map_grant_ref(_xgt: *mut c_void, domid: u32, reference: u32, prot: c_int) -> *mut c_void {
    mapping::map_ring(domid, prot, |view| view.flags.granted && reference == GRANT_XENSTORE)
}

/// Unmaps granted pages.
///
/// # Safety
/// `start` was given by [`xengnttab_map_grant_ref`] and nothing refers to the pages any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xengnttab_unmap(_xgt: *mut c_void, start: *mut c_void, count: u32) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { mapping::unmap(start, count as usize) }
}
