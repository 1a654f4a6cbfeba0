//! libxenmanage: states of domains, as Xen tells from 4.21 on.

use crate::{broker, fail};
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use xen_sim_switchboard::{DOMID_FIRST_RESERVED, DomainView, Switchboard};

const STATE_EXIST: c_uint = 1;
const STATE_SHUTDOWN: c_uint = 2;
/// Nothing of it runs any more. The state before, in which Xen takes its memory apart, does not last here.
const STATE_DEAD: c_uint = 8;

/// What domain 0 may: control the host and its hardware.
const CAPS_OF_DOMAIN_0: c_uint = 3;

/// Opens the interface. From now on the host tells of new domains too.
#[unsafe(no_mangle)]
pub extern "C" fn xenmanage_open(_logger: *mut c_void, _flags: c_uint) -> *mut c_void {
    match broker::memory() {
        Ok(memory) => {
            memory.switchboard().report_changes();
            crate::empty_handle()
        }
        Err(errno) => {
            fail(errno);
            ptr::null_mut()
        }
    }
}

/// Closes the interface.
#[unsafe(no_mangle)]
pub extern "C" fn xenmanage_close(_hdl: *mut c_void) -> c_int {
    0
}

/// Where a domain's state is to be written; any may be null.
struct Out {
    state: *mut c_uint,
    caps: *mut c_uint,
    unique_id: *mut u64,
}

impl Out {
    /// Writes all of it; a domain that is gone has nothing but zeroes.
    ///
    /// # Safety
    /// What is not null may be written to.
    unsafe fn put(&self, domid: u16, view: Option<DomainView>) {
        let state = view.map_or(0, |view| {
            STATE_EXIST
                | if view.flags.shutdown { STATE_SHUTDOWN } else { 0 }
                | if view.flags.dying { STATE_DEAD } else { 0 }
        });
        let caps = if domid == 0 && view.is_some() { CAPS_OF_DOMAIN_0 } else { 0 };
        if !self.state.is_null() {
            // SAFETY: by the caller's word.
            unsafe { self.state.write(state) };
        }
        if !self.caps.is_null() {
            // SAFETY: by the caller's word.
            unsafe { self.caps.write(caps) };
        }
        if !self.unique_id.is_null() {
            // SAFETY: by the caller's word.
            unsafe { self.unique_id.write(view.map_or(0, |view| view.unique_id)) };
        }
    }
}

/// The state of one domain; -1 with `EINVAL` for an id that no domain has, `ESRCH` when there is no such.
///
/// # Safety
/// The last three are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenmanage_get_domain_info(
    _hdl: *mut c_void,
    domid: c_uint,
    state: *mut c_uint,
    caps: *mut c_uint,
    unique_id: *mut u64,
) -> c_int {
    let Some(domid) = u16::try_from(domid).ok().filter(|&domid| domid < DOMID_FIRST_RESERVED) else {
        return fail(libc::EINVAL);
    };
    match broker::memory().and_then(|memory| memory.switchboard().existing(domid).ok_or(libc::ESRCH)) {
        Ok(view) => {
            // SAFETY: by the caller's word.
            unsafe { Out { state, caps, unique_id }.put(domid, Some(view)) };
            0
        }
        Err(errno) => fail(errno),
    }
}

/// The next domain whose state changed; -1 with `ENOENT` when there is none, `EACCES` unless the interrupt of changed
/// domains is bound.
///
/// # Safety
/// The last three are null or may be written to; `domid` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xenmanage_poll_changed_domain(
    _hdl: *mut c_void,
    domid: *mut c_uint,
    state: *mut c_uint,
    caps: *mut c_uint,
    unique_id: *mut u64,
) -> c_int {
    let changed = broker::memory().map(|memory| memory.switchboard());
    match changed.and_then(|board: &Switchboard| Ok((board.take_changed()?, board))) {
        Ok((changed, board)) => {
            // SAFETY: by the caller's word.
            unsafe { domid.write(changed.into()) };
            // SAFETY: by the caller's word.
            unsafe { Out { state, caps, unique_id }.put(changed, board.existing(changed)) };
            0
        }
        Err(errno) => fail(errno),
    }
}
