//! libxenmanage (Xen 4.21 and newer): the state of domains by a stable interface.

use core::{ffi::c_uint, ptr, ptr::NonNull};
use std::collections::BTreeMap;

use xen_sys as sys;

use super::{DomainState, Life, UniqueId, gone};
use crate::{
    error::{Error, check, check_pointer},
    id::DomId,
};

/// libxenmanage's handle. It is closed once, when this is dropped.
#[derive(Debug)]
pub struct Manage {
    handle: NonNull<sys::xenmanage_handle>,
    /// Changes that were taken from the hypervisor before a failure, and not yet told.
    untold: BTreeMap<DomId, DomainState>,
}

impl Manage {
    /// Opens the library; `None` if the hypervisor that runs is older than its interface.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV` where Xen is not running, `EACCES` without the right to it.
    pub fn open() -> Result<Option<Self>, Error> {
        // SAFETY: without a logger the library makes its own; there are no flags.
        let handle = unsafe { sys::xenmanage_open(ptr::null_mut(), 0) };
        let manage = Self { handle: check_pointer("xenmanage_open", handle)?, untold: BTreeMap::new() };
        match manage.get(DomId(0)) {
            // An older hypervisor refuses the question's number, or the version that it is asked in.
            Err(error) if matches!(error.errno(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EACCES)) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(manage)),
        }
    }

    /// Asks for one domain. A number that names none is [`Life::Gone`].
    ///
    /// # Errors
    /// `EPERM` or `EACCES` without the right to ask, `EINVAL` for a number that never names a domain.
    pub fn get(&self, domid: DomId) -> Result<DomainState, Error> {
        let (mut state, mut unique_id) = (0, 0);
        // SAFETY: the handle is open; the places to store to are valid, and null is allowed for what is not wanted.
        let result = unsafe {
            sys::xenmanage_get_domain_info(
                self.handle.as_ptr(),
                domid.into(),
                &raw mut state,
                ptr::null_mut(),
                &raw mut unique_id,
            )
        };
        match check("xenmanage_get_domain_info", result) {
            Err(error) if error.errno() == Some(libc::ESRCH) => Ok(gone(domid)),
            Err(error) => Err(error),
            Ok(_) => Ok(decode(domid, state, unique_id)),
        }
    }

    /// Every domain whose state changed since this was last asked, as told at
    /// [`DomainStates::changes`](super::DomainStates::changes).
    ///
    /// # Errors
    /// `EACCES` if this domain did not bind the signal of domain states, `EPERM` without the right to ask.
    pub fn changes(&mut self) -> Result<Vec<DomainState>, Error> {
        while let Some(state) = self.next_change()? {
            self.untold.insert(state.domid, state);
        }
        Ok(core::mem::take(&mut self.untold).into_values().collect())
    }

    fn next_change(&self) -> Result<Option<DomainState>, Error> {
        let (mut domid, mut state, mut unique_id) = (0, 0, 0);
        // SAFETY: the handle is open; the places to store to are valid, and null is allowed for what is not wanted.
        let result = unsafe {
            sys::xenmanage_poll_changed_domain(
                self.handle.as_ptr(),
                &raw mut domid,
                &raw mut state,
                ptr::null_mut(),
                &raw mut unique_id,
            )
        };
        match check("xenmanage_poll_changed_domain", result) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
            // The library passes on a number of 16 bits.
            Ok(_) => Ok(Some(decode(DomId(u16::try_from(domid).unwrap_or(u16::MAX)), state, unique_id))),
        }
    }
}

impl Drop for Manage {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library and is closed here only.
        unsafe { sys::xenmanage_close(self.handle.as_ptr()) };
    }
}

/// A domain that vanished has no state and no id.
fn decode(domid: DomId, state: c_uint, unique_id: u64) -> DomainState {
    let has = |bit: u32| state & bit != 0;
    let life = if !has(sys::XENMANAGE_GETDOMSTATE_STATE_EXIST) || unique_id == 0 {
        return gone(domid);
    } else if has(sys::XENMANAGE_GETDOMSTATE_STATE_DEAD) {
        Life::Dead
    } else if has(sys::XENMANAGE_GETDOMSTATE_STATE_DYING) {
        Life::Dying
    } else {
        Life::Alive
    };
    let shutdown = has(sys::XENMANAGE_GETDOMSTATE_STATE_SHUTDOWN);
    DomainState { domid, life, shutdown, unique_id: Some(UniqueId::Hypervisor(unique_id)) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::running(1, Life::Alive, false)]
    #[case::shut_down(1 | 2, Life::Alive, true)]
    #[case::being_torn_down(1 | 2 | 4, Life::Dying, true)]
    #[case::dead(1 | 8, Life::Dead, false)]
    fn the_bits_are_a_state(#[case] bits: c_uint, #[case] life: Life, #[case] shutdown: bool) {
        let unique_id = Some(UniqueId::Hypervisor(5));
        assert_eq!(decode(DomId(3), bits, 5), DomainState { domid: DomId(3), life, shutdown, unique_id });
    }

    #[test]
    fn a_record_without_state_or_id_is_of_a_domain_that_is_gone() {
        assert_eq!(decode(DomId(3), 0, 0), gone(DomId(3)));
        assert_eq!(decode(DomId(3), 1, 0), gone(DomId(3)));
    }
}
