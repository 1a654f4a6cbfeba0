//! Quotas (since Xen 4.22).

use super::done;
use super::feature::number;
use crate::block::Block;
use crate::guard::{Failure, guard_request};
use crate::handle::{handle, xs_handle};
use crate::text;
use libc::{c_char, c_uint};
use std::ptr::null_mut;
use xenstore_wire::Op;

/// Returns the names of the quotas that the daemon knows; `num` is how many. `ENOSYS` from a daemon that does not know
/// the question.
///
/// # Safety
/// `h` is a handle, `num` a place for the count; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_quota_names(h: *mut xs_handle, num: *mut c_uint) -> *mut *const c_char {
    guard_request(null_mut(), || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let take = |payload: &[u8]| {
            let names = payload.split(|&byte| byte == 0).next().unwrap_or_default();
            let mut names: Vec<u8> = names.iter().map(|&byte| if byte == b' ' { 0 } else { byte }).collect();
            names.push(0);
            Block::of_strings(&names)
        };
        let (block, count) = handle.link.request(Op::GetQuota, 0, &[], handle.until(), take)??;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(num, text::count(count)) };
        Ok(block.into_raw().cast())
    })
}

/// Tells a quota's value for domains that have none of their own; 0 is no limit.
///
/// # Safety
/// `h` is a handle, `quota` a string, `value` a place for the value; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_global_quota(h: *mut xs_handle, quota: *const c_char, value: *mut c_uint) -> bool {
    // SAFETY: the caller promises them.
    guard_request(false, || unsafe { get(h, "", quota, value) })
}

/// Sets a quota's value for domains that have none of their own.
///
/// # Safety
/// `h` is a handle, `quota` a string; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_set_global_quota(h: *mut xs_handle, quota: *const c_char, value: c_uint) -> bool {
    // SAFETY: the caller promises them.
    guard_request(false, || unsafe { set(h, "", quota, value) })
}

/// Tells a quota's value for a domain.
///
/// # Safety
/// `h` is a handle, `quota` a string, `value` a place for the value; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_domain_quota(
    h: *mut xs_handle,
    domid: c_uint,
    quota: *const c_char,
    value: *mut c_uint,
) -> bool {
    // SAFETY: the caller promises them.
    guard_request(false, || unsafe { get(h, &format!("{domid}\0"), quota, value) })
}

/// Sets a quota's value for a domain.
///
/// # Safety
/// `h` is a handle, `quota` a string; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_set_domain_quota(
    h: *mut xs_handle,
    domid: c_uint,
    quota: *const c_char,
    value: c_uint,
) -> bool {
    // SAFETY: the caller promises them.
    guard_request(false, || unsafe { set(h, &format!("{domid}\0"), quota, value) })
}

/// Asks for a value, with a domain's string in front if there is one.
///
/// # Safety
/// `h` is a handle, `quota` a string, `value` a place for the value; each may be NULL.
unsafe fn get(h: *mut xs_handle, domain: &str, quota: *const c_char, value: *mut c_uint) -> Result<bool, Failure> {
    // SAFETY: both are what the caller promises.
    let (handle, quota) = unsafe { text::subject(h, quota) }?;
    let found = handle.link.request(Op::GetQuota, 0, &[domain.as_bytes(), quota], handle.until(), number)?;
    // SAFETY: the caller promises the place.
    unsafe { text::tell(value, found) };
    Ok(true)
}

/// Sets a value, with a domain's string in front if there is one.
///
/// # Safety
/// `h` is a handle, `quota` a string; each may be NULL.
unsafe fn set(h: *mut xs_handle, domain: &str, quota: *const c_char, value: c_uint) -> Result<bool, Failure> {
    // SAFETY: both are what the caller promises.
    let (handle, quota) = unsafe { text::subject(h, quota) }?;
    done(&handle, Op::SetQuota, 0, &[domain.as_bytes(), quota, format!("{value}\0").as_bytes()])
}
