//! Foreign memory (libxenforeignmemory): frames of other domains, without their leave. For the control domain only.

use core::{ptr, ptr::NonNull};
use std::{io, rc::Rc};

use xen_sys as sys;

use crate::{
    error::{Error, check_pointer},
    id::DomId,
    shared_page::SharedPage,
};

#[derive(Debug)]
struct Handle(NonNull<sys::xenforeignmemory_handle>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library and is closed here only.
        unsafe { sys::xenforeignmemory_close(self.0.as_ptr()) };
    }
}

/// The device for foreign memory. It stays open until the last page that was mapped through it is unmapped.
#[derive(Debug)]
pub struct ForeignMemory {
    handle: Rc<Handle>,
}

impl ForeignMemory {
    /// Opens the device.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV` where Xen is not running, `EACCES` without the right to it.
    pub fn open() -> Result<Self, Error> {
        // SAFETY: without a logger the library makes its own; there are no flags.
        let handle = unsafe { sys::xenforeignmemory_open(ptr::null_mut(), 0) };
        Ok(Self { handle: Rc::new(Handle(check_pointer("xenforeignmemory_open", handle)?)) })
    }

    /// Maps the page at guest frame number `gfn` of `domain`, for reading and writing.
    ///
    /// # Errors
    /// `EINVAL` if the domain has no such frame, `ESRCH` without such a domain, `EPERM` without the right to it.
    pub fn map(&self, domain: DomId, gfn: u64) -> Result<SharedPage, Error> {
        const CALL: &str = "xenforeignmemory_map";
        let gfn =
            sys::xen_pfn_t::try_from(gfn).map_err(|_| Error::new(CALL, io::Error::from_raw_os_error(libc::EINVAL)))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the handle is open and the list has one frame, as many as are announced. Without a list for the
        // errors of single frames the library fails the whole call for one, with its errno.
        let mapped = unsafe {
            sys::xenforeignmemory_map(
                self.handle.0.as_ptr(),
                domain.into(),
                protection,
                1,
                &raw const gfn,
                ptr::null_mut(),
            )
        };
        let base = check_pointer(CALL, mapped)?.cast();
        let handle = Rc::clone(&self.handle);
        let unmap = move |base: NonNull<u8>| {
            // SAFETY: the page was mapped through this handle, and the closure runs once.
            unsafe { sys::xenforeignmemory_unmap(handle.0.as_ptr(), base.as_ptr().cast(), 1) };
        };
        // SAFETY: the library has just mapped this page for reading and writing; only `unmap` ends that, and nobody
        // else in this process knows the address.
        Ok(unsafe { SharedPage::from_raw(base, unmap) })
    }
}
