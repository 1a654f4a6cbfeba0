//! Stand-ins of the C functions. What they note and what they fail belongs to the calling thread, so to one test.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    cell::{Cell, RefCell},
    collections::VecDeque,
    ffi::{c_int, c_uint, c_void},
    ptr,
};

use xen_ffi::PAGE_SIZE;
use xen_sys as sys;

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static FAILURE: Cell<Option<(&'static str, c_int)>> = const { Cell::new(None) };
    static SIGNALS: RefCell<VecDeque<c_int>> = const { RefCell::new(VecDeque::new()) };
    static LAST_PORT: Cell<c_int> = const { Cell::new(0) };
    static FD: Cell<c_int> = const { Cell::new(-1) };
}

/// The calls since this was last asked, with their arguments.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

/// Lets the next call of a function fail.
pub(crate) fn fail(call: &'static str, errno: c_int) {
    FAILURE.set(Some((call, errno)));
}

/// Lets a port signal.
pub(crate) fn signal(port: c_int) {
    SIGNALS.with_borrow_mut(|signals| signals.push_back(port));
}

/// Notes a call; whether it is to work.
fn works(call: &str, arguments: &str) -> bool {
    CALLS.with_borrow_mut(|calls| calls.push(format!("{call} {arguments}").trim_end().to_owned()));
    match FAILURE.get() {
        Some((failing, errno)) if failing == call => {
            FAILURE.set(None);
            set_errno(errno);
            false
        }
        _ => true,
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's errno is valid for as long as the thread lives.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

fn result(works: bool, value: c_int) -> c_int {
    if works { value } else { -1 }
}

/// A handle that is never looked into.
fn handle<T>(works: bool) -> *mut T {
    if works { ptr::without_provenance_mut(0x1000) } else { ptr::null_mut() }
}

fn page_layout() -> Layout {
    Layout::from_size_align(PAGE_SIZE, PAGE_SIZE).unwrap()
}

fn map(works: bool) -> *mut c_void {
    if works {
        // SAFETY: the layout's size is not zero.
        unsafe { alloc_zeroed(page_layout()) }.cast()
    } else {
        ptr::null_mut()
    }
}

fn unmap(page: *mut c_void) {
    // SAFETY: the tests hand back what `map` allocated, once: that is what they are about.
    unsafe { dealloc(page.cast(), page_layout()) };
}

fn next_port() -> c_int {
    LAST_PORT.set(LAST_PORT.get() + 1);
    LAST_PORT.get()
}

macro_rules! stand_in {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $returns:ty $body:block)*) => {$(
        // SAFETY: the name and the signature are those of the library's function, which this stands in for.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $returns $body
    )*};
}

stand_in! {
    fn xenevtchn_open(_logger: *mut sys::xentoollog_logger, flags: c_uint) -> *mut sys::xenevtchn_handle {
        handle(works("xenevtchn_open", &flags.to_string()))
    }
    fn xenevtchn_fdopen(_logger: *mut sys::xentoollog_logger, fd: c_int, flags: c_uint) -> *mut sys::xenevtchn_handle {
        assert_eq!(flags, 0);
        FD.set(fd);
        handle(works("xenevtchn_fdopen", &fd.to_string()))
    }
    fn xenevtchn_close(_handle: *mut sys::xenevtchn_handle) -> c_int {
        if FD.get() >= 0 {
            // SAFETY: the library's function closes the descriptor that it was given, and so does this.
            unsafe { libc::close(FD.replace(-1)) };
        }
        result(works("xenevtchn_close", ""), 0)
    }
    fn xenevtchn_fd(_handle: *mut sys::xenevtchn_handle) -> c_int {
        FD.get()
    }
    fn xenevtchn_notify(_handle: *mut sys::xenevtchn_handle, port: sys::evtchn_port_t) -> c_int {
        result(works("xenevtchn_notify", &port.to_string()), 0)
    }
    fn xenevtchn_bind_interdomain(_handle: *mut sys::xenevtchn_handle, domain: u32, port: sys::evtchn_port_t) -> c_int {
        result(works("xenevtchn_bind_interdomain", &format!("{domain} {port}")), next_port())
    }
    fn xenevtchn_bind_virq(_handle: *mut sys::xenevtchn_handle, virq: c_uint) -> c_int {
        result(works("xenevtchn_bind_virq", &virq.to_string()), next_port())
    }
    fn xenevtchn_unbind(_handle: *mut sys::xenevtchn_handle, port: sys::evtchn_port_t) -> c_int {
        result(works("xenevtchn_unbind", &port.to_string()), 0)
    }
    fn xenevtchn_pending(_handle: *mut sys::xenevtchn_handle) -> c_int {
        if !works("xenevtchn_pending", "") {
            return -1;
        }
        SIGNALS.with_borrow_mut(VecDeque::pop_front).unwrap_or_else(|| {
            set_errno(libc::EAGAIN);
            -1
        })
    }
    fn xenevtchn_unmask(_handle: *mut sys::xenevtchn_handle, port: sys::evtchn_port_t) -> c_int {
        result(works("xenevtchn_unmask", &port.to_string()), 0)
    }

    fn xengnttab_open(_logger: *mut sys::xentoollog_logger, flags: c_uint) -> *mut sys::xengnttab_handle {
        handle(works("xengnttab_open", &flags.to_string()))
    }
    fn xengnttab_close(_handle: *mut sys::xengnttab_handle) -> c_int {
        result(works("xengnttab_close", ""), 0)
    }
    fn xengnttab_set_max_grants(_handle: *mut sys::xengnttab_handle, count: u32) -> c_int {
        result(works("xengnttab_set_max_grants", &count.to_string()), 0)
    }
    fn xengnttab_map_grant_ref(
        _handle: *mut sys::xengnttab_handle,
        domain: u32,
        grant: u32,
        protection: c_int
    ) -> *mut c_void {
        map(works("xengnttab_map_grant_ref", &format!("{domain} {grant} {protection}")))
    }
    fn xengnttab_unmap(_handle: *mut sys::xengnttab_handle, page: *mut c_void, count: u32) -> c_int {
        unmap(page);
        result(works("xengnttab_unmap", &count.to_string()), 0)
    }

    fn xenforeignmemory_open(
        _logger: *mut sys::xentoollog_logger,
        flags: c_uint
    ) -> *mut sys::xenforeignmemory_handle {
        handle(works("xenforeignmemory_open", &flags.to_string()))
    }
    fn xenforeignmemory_close(_handle: *mut sys::xenforeignmemory_handle) -> c_int {
        result(works("xenforeignmemory_close", ""), 0)
    }
    fn xenforeignmemory_map(
        _handle: *mut sys::xenforeignmemory_handle,
        domain: u32,
        protection: c_int,
        pages: usize,
        frames: *const sys::xen_pfn_t,
        errors: *mut c_int
    ) -> *mut c_void {
        assert!(errors.is_null());
        // SAFETY: the caller passes a list of as many frames as it announces, at least one.
        let frame = unsafe { *frames };
        map(works("xenforeignmemory_map", &format!("{domain} {protection} {pages} {frame}")))
    }
    fn xenforeignmemory_unmap(_handle: *mut sys::xenforeignmemory_handle, page: *mut c_void, pages: usize) -> c_int {
        unmap(page);
        result(works("xenforeignmemory_unmap", &pages.to_string()), 0)
    }
}
