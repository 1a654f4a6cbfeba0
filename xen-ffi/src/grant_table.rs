//! Grants (libxengnttab): pages that other domains allow this one to map.

use core::{ptr, ptr::NonNull};
use std::rc::Rc;

use xen_sys as sys;

use crate::{
    error::{Error, check, check_pointer},
    id::{DomId, GrantRef},
    shared_page::SharedPage,
};

#[derive(Debug)]
struct Handle(NonNull<sys::xengnttab_handle>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library and is closed here only.
        unsafe { sys::xengnttab_close(self.0.as_ptr()) };
    }
}

/// The grant device. It stays open until the last page that was mapped through it is unmapped.
#[derive(Debug)]
pub struct GrantTable {
    handle: Rc<Handle>,
}

impl GrantTable {
    /// Opens the grant device.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV` where Xen is not running, `EACCES` without the right to it.
    pub fn open() -> Result<Self, Error> {
        // SAFETY: without a logger the library makes its own; there are no flags.
        let handle = unsafe { sys::xengnttab_open(ptr::null_mut(), 0) };
        Ok(Self { handle: Rc::new(Handle(check_pointer("xengnttab_open", handle)?)) })
    }

    /// Asks for room for `count` mapped pages. Kernels without such a limit do not know the request; that is no error.
    ///
    /// # Errors
    /// `EINVAL` for a count that the kernel does not allow, `EBUSY` after the first page was mapped.
    pub fn set_max_grants(&self, count: u32) -> Result<(), Error> {
        // SAFETY: the handle is open.
        let result = unsafe { sys::xengnttab_set_max_grants(self.handle.0.as_ptr(), count) };
        match check("xengnttab_set_max_grants", result) {
            Err(error) if error.errno() != Some(libc::ENOTTY) => Err(error),
            _ => Ok(()),
        }
    }

    /// Maps the page that `domain` grants, for reading and writing.
    ///
    /// # Errors
    /// `EINVAL` and its like if the domain or its grant is not there or does not allow it, `ENOSPC` or `ENOMEM` when
    /// the process has too many mappings.
    pub fn map(&self, domain: DomId, grant: GrantRef) -> Result<SharedPage, Error> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the handle is open; the hypervisor judges the rest.
        let mapped =
            unsafe { sys::xengnttab_map_grant_ref(self.handle.0.as_ptr(), domain.into(), grant.0, protection) };
        let base = check_pointer("xengnttab_map_grant_ref", mapped)?.cast();
        let handle = Rc::clone(&self.handle);
        let unmap = move |base: NonNull<u8>| {
            // SAFETY: the page was mapped through this handle, and the closure runs once.
            unsafe { sys::xengnttab_unmap(handle.0.as_ptr(), base.as_ptr().cast(), 1) };
        };
        // SAFETY: the library has just mapped this page for reading and writing; only `unmap` ends that, and nobody
        // else in this process knows the address.
        Ok(unsafe { SharedPage::from_raw(base, unmap) })
    }
}
