//! Calls of libxenctrl: the life of a domain.

use crate::sys;
use std::io;
use std::ptr;
use std::ptr::NonNull;

/// libxenctrl's handle.
#[derive(Debug)]
pub(crate) struct Control(NonNull<sys::xc_interface>);

impl Control {
    /// Opens the interface of the hypervisor.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: without loggers the library makes its own; there are no flags.
        let handle = unsafe { sys::xc_interface_open(ptr::null_mut(), ptr::null_mut(), 0) };
        NonNull::new(handle).map(Self).ok_or_else(|| failed("xc_interface_open"))
    }

    pub(crate) fn raw(&self) -> *mut sys::xc_interface {
        self.0.as_ptr()
    }

    /// Makes an empty PV domain of one processor that may have so much memory, KiB. It is paused.
    pub(crate) fn create(&self, domid: u16, memory: u64) -> io::Result<()> {
        // SAFETY: the structure is of numbers, for all of which 0 is a value.
        let mut config: sys::xen_domctl_createdomain = unsafe { std::mem::zeroed() };
        config.max_vcpus = 1;
        config.max_evtchn_port = 1023;
        config.max_grant_frames = 4;
        config.grant_opts = 1;
        config.handle[14..].copy_from_slice(&domid.to_be_bytes());
        let mut number = u32::from(domid);
        // SAFETY: the handle is open; both pointers are to what the call reads and fills.
        let created = unsafe { sys::xc_domain_create(self.raw(), &raw mut number, &raw mut config) };
        check("xc_domain_create", created)?;
        // SAFETY: the handle is open.
        check("xc_domain_max_vcpus", unsafe { sys::xc_domain_max_vcpus(self.raw(), number, 1) })?;
        // SAFETY: the handle is open.
        check("xc_domain_setmaxmem", unsafe { sys::xc_domain_setmaxmem(self.raw(), number, memory) })?;
        Ok(())
    }

    /// A new port of the domain's that domain 0 may bind.
    pub(crate) fn alloc_port(&self, domid: u16) -> io::Result<u32> {
        // SAFETY: the handle is open.
        let port = unsafe { sys::xc_evtchn_alloc_unbound(self.raw(), domid.into(), 0) };
        check("xc_evtchn_alloc_unbound", port)?;
        u32::try_from(port).map_err(io::Error::other)
    }

    /// Whether a domain's port is bound to one of another domain's.
    pub(crate) fn is_bound(&self, domid: u16, port: u32) -> io::Result<bool> {
        // SAFETY: the structure is of numbers, for all of which 0 is a value.
        let mut status: sys::xc_evtchn_status_t = unsafe { std::mem::zeroed() };
        status.dom = domid;
        status.port = port;
        // SAFETY: the handle is open, and the structure is what the call reads and fills.
        check("xc_evtchn_status", unsafe { sys::xc_evtchn_status(self.raw(), &raw mut status) })?;
        Ok(status.status == sys::EVTCHNSTAT_interdomain)
    }

    /// Lets a new domain run.
    pub(crate) fn unpause(&self, domid: u16) -> io::Result<()> {
        // SAFETY: the handle is open.
        check("xc_domain_unpause", unsafe { sys::xc_domain_unpause(self.raw(), domid.into()) })
    }

    /// Lets a suspended domain go on, told that nothing happened to it.
    pub(crate) fn resume(&self, domid: u16) -> io::Result<()> {
        // SAFETY: the handle is open.
        check("xc_domain_resume", unsafe { sys::xc_domain_resume(self.raw(), domid.into(), 1) })
    }

    /// Takes a domain apart. It is gone when nobody maps its memory any more.
    pub(crate) fn destroy(&self, domid: u16) -> io::Result<()> {
        // SAFETY: the handle is open.
        check("xc_domain_destroy", unsafe { sys::xc_domain_destroy(self.raw(), domid.into()) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library and is closed here only.
        unsafe { sys::xc_interface_close(self.raw()) };
    }
}

/// The error of a call that has just failed, named after it.
pub(crate) fn failed(call: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

/// Makes an error of a negative result.
pub(crate) fn check(call: &str, result: i32) -> io::Result<()> {
    if result < 0 { Err(failed(call)) } else { Ok(()) }
}
