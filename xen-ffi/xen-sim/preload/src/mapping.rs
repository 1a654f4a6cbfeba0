//! Mapping and unmapping ring pages, for the libraries that do it.

use crate::broker;
use core::ffi::{c_int, c_void};
use core::ptr;
use xen_sim_switchboard::{DomainView, PAGE_SIZE};

/// Maps the ring page of the domain if it is there and `wanted` says it is the page that is meant; else null and
/// `EINVAL`.
pub(crate) fn map_ring(domid: u32, protection: c_int, wanted: impl Fn(&DomainView) -> bool) -> *mut c_void {
    let mapped = broker::memory().and_then(|memory| {
        let view = u16::try_from(domid).ok().and_then(|domid| memory.switchboard().existing(domid));
        let view = view.filter(|view| !view.flags.dying && wanted(view)).ok_or(libc::EINVAL)?;
        memory.map_page(view.slot, protection).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    });
    match mapped {
        Ok(place) => place.as_ptr().cast(),
        Err(errno) => {
            crate::fail(errno);
            ptr::null_mut()
        }
    }
}

/// Unmaps whole pages.
///
/// # Safety
/// They were mapped by [`map_ring`] and nothing refers to them any more.
pub(crate) unsafe fn unmap(start: *mut c_void, pages: usize) -> c_int {
    let Some(size) = pages.checked_mul(PAGE_SIZE) else { return crate::fail(libc::EINVAL) };
    // SAFETY: by the caller's word.
    unsafe { libc::munmap(start, size) }
}
