//! What C hands over: strings that may be NULL, and bytes with a length.

use crate::guard::Failure;
use crate::handle::{InUse, handle, xs_handle};
use libc::{c_char, c_uint, c_void};
use nix::errno::Errno;
use std::ffi::CStr;

/// A string with its NUL, which is also how it is sent.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// `string` is NULL or points to a string that stays as it is while the result is used.
pub(crate) unsafe fn string<'a>(string: *const c_char) -> Result<&'a [u8], Failure> {
    if string.is_null() {
        return Err(Failure(Errno::EINVAL));
    }
    // SAFETY: it is not NULL, and the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(string) }.to_bytes_with_nul())
}

/// The handle and the string that most functions begin with.
///
/// # Errors
/// `EINVAL` if one of them is NULL.
///
/// # Safety
/// As for [`handle`] and [`string`].
pub(crate) unsafe fn subject<'a>(h: *mut xs_handle, path: *const c_char) -> Result<(InUse<'a>, &'a [u8]), Failure> {
    // SAFETY: that is the caller's promise.
    let handle = unsafe { handle(h) }?;
    // SAFETY: as above.
    let path = unsafe { string(path) }?;
    Ok((handle, path))
}

/// Bytes; NULL is none.
///
/// # Errors
/// `EINVAL` for NULL with a length.
///
/// # Safety
/// `data` is NULL or points to `len` bytes that stay as they are while the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: c_uint) -> Result<&'a [u8], Failure> {
    match (data.is_null(), usize::try_from(len)) {
        (_, Ok(0)) => Ok(&[]),
        // SAFETY: it is not NULL, and the rest is the caller's promise.
        (false, Ok(len)) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
        _ => Err(Failure(Errno::EINVAL)),
    }
}

/// Writes a result to a place that the caller may have left out.
///
/// # Safety
/// `place` is NULL or valid for writing.
pub(crate) unsafe fn tell<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not NULL, and the rest is the caller's promise.
        unsafe { place.write(value) };
    }
}

/// A length or count for C.
pub(crate) fn count(number: usize) -> c_uint {
    c_uint::try_from(number).unwrap_or(c_uint::MAX)
}
