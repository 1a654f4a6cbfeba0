//! What a failed call leaves: its name and its errno.

use core::{ffi::c_int, ptr::NonNull};
use std::io;

/// A call to the host that failed. The text names the call; the cause is the source.
#[derive(Debug, thiserror::Error)]
#[error("{call} failed")]
pub struct Error {
    call: &'static str,
    source: io::Error,
}

impl Error {
    pub(crate) fn new(call: &'static str, source: io::Error) -> Self {
        Self { call, source }
    }

    /// The error of `call`, which has just set errno.
    pub(crate) fn last_os(call: &'static str) -> Self {
        Self::new(call, io::Error::last_os_error())
    }

    /// What failed: the name of a C function, or a file and what was done with it.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The error number that the call left; `None` where the failure has none, such as a library that is not found.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// The result of a function that returns a negative number on failure.
pub(crate) fn check(call: &'static str, result: c_int) -> Result<c_int, Error> {
    if result < 0 { Err(Error::last_os(call)) } else { Ok(result) }
}

/// The result of a function that returns a null pointer on failure.
pub(crate) fn check_pointer<T>(call: &'static str, result: *mut T) -> Result<NonNull<T>, Error> {
    NonNull::new(result).ok_or_else(|| Error::last_os(call))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_call_and_its_errno_are_kept() {
        let error = Error::new("xengnttab_map_grant_ref", io::Error::from_raw_os_error(libc::ENODEV));
        assert_eq!(error.call(), "xengnttab_map_grant_ref");
        assert_eq!(error.errno(), Some(libc::ENODEV));
        assert_eq!(error.to_string(), "xengnttab_map_grant_ref failed");
        assert!(error.source().unwrap().to_string().contains("No such device"));
    }

    #[test]
    fn zero_and_more_are_no_failure() {
        assert_eq!(check("f", 0).unwrap(), 0);
        assert_eq!(check("f", 7).unwrap(), 7);
        assert!(check("f", -1).is_err());
        assert!(check_pointer::<u8>("f", core::ptr::null_mut()).is_err());
    }
}
