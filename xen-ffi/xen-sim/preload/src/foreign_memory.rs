//! libxenforeignmemory, and the older call of libxenctrl for the same.

use crate::{fail, mapping};
use core::ffi::{c_int, c_uint, c_ulong, c_void};
use core::ptr;
use xen_sim_switchboard::PAGE_SIZE;

/// Opens access to other domains' memory.
#[unsafe(no_mangle)]
pub extern "C" fn xenforeignmemory_open(_logger: *mut c_void, _flags: c_uint) -> *mut c_void {
    crate::open_handle()
}

/// Closes it; pages stay mapped.
#[unsafe(no_mangle)]
pub extern "C" fn xenforeignmemory_close(_fmem: *mut c_void) -> c_int {
    0
}

/// Maps a frame of a domain: its ring, by its frame number. No other frame can be mapped, nor more than one.
///
/// # Safety
/// `frames` points at `pages` frame numbers; `errors` is null or has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenforeignmemory_map(
    _fmem: *mut c_void,
    domid: u32,
    prot: c_int,
    pages: usize,
    frames: *const c_ulong,
    errors: *mut c_int,
) -> *mut c_void {
    if pages != 1 {
        fail(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: by the caller's word there is one frame number.
    let frame = unsafe { *frames };
    let map = mapping::map_ring(domid, prot, |view| view.gfn == frame);
    if !errors.is_null() {
        let error = if map.is_null() { -libc::EINVAL } else { 0 };
        // SAFETY: by the caller's word there is room for one.
        unsafe { *errors = error };
        // With room for errors of single pages the call itself fails only when none could be mapped at all.
    }
    map
}

/// Unmaps foreign frames.
///
/// # Safety
/// `start` was given by [`xenforeignmemory_map`] and nothing refers to the pages any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenforeignmemory_unmap(_fmem: *mut c_void, start: *mut c_void, pages: usize) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { mapping::unmap(start, pages) }
}

/// libxenctrl's way to map frames of a domain that follow each other: here one, its ring.
#[unsafe(no_mangle)]
pub extern "C" fn xc_map_foreign_range(
    _xch: *mut c_void,
    domid: u32,
    size: c_int,
    prot: c_int,
    frame: c_ulong,
) -> *mut c_void {
    if usize::try_from(size) != Ok(PAGE_SIZE) {
        fail(libc::EINVAL);
        return ptr::null_mut();
    }
    mapping::map_ring(domid, prot, |view| view.gfn == frame)
}
