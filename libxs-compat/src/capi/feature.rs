//! What a daemon offers (since Xen 4.21).

use super::done;
use crate::guard::{Failure, guard_request};
use crate::handle::{handle, xs_handle};
use crate::text;
use libc::c_uint;
use xenstore_client::platform::Monitor;
use xenstore_wire::Op;

/// What the daemon offers to this connection, asked once a handle.
pub(super) fn supported(handle: &xs_handle) -> Result<c_uint, Failure> {
    let known = *handle.features.lock();
    if let Some(features) = known {
        return Ok(features);
    }
    let features = handle.link.request(Op::GetFeature, 0, &[], handle.until(), number)?;
    if !handle.reconnects {
        *handle.features.lock() = Some(features);
    }
    Ok(features)
}

/// The number in front of an answer; 0 if there is none, as `strtoul` reads it.
pub(super) fn number(payload: &[u8]) -> c_uint {
    let digits = payload.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0u64, |number, byte| number.saturating_mul(10).saturating_add(u64::from(byte & 0xf)));
    c_uint::try_from(number).unwrap_or(c_uint::MAX)
}

/// Tells what the daemon offers to the caller: bits of `XENSTORE_SERVER_FEATURE_*`. `ENOSYS` from a daemon that does
/// not know the question.
///
/// # Safety
/// `h` is a handle, `features` a place for the bits; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_features_supported(h: *mut xs_handle, features: *mut c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let value = supported(&handle)?;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(features, value) };
        Ok(true)
    })
}

/// Tells what the daemon offers to a domain.
///
/// # Safety
/// `h` is a handle, `features` a place for the bits; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_features_domain(h: *mut xs_handle, domid: c_uint, features: *mut c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let domain = format!("{domid}\0");
        let value = handle.link.request(Op::GetFeature, 0, &[domain.as_bytes()], handle.until(), number)?;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(features, value) };
        Ok(true)
    })
}

/// Limits what the daemon offers to a domain that is not introduced yet.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_set_features_domain(h: *mut xs_handle, domid: c_uint, features: c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        done(&handle, Op::SetFeature, 0, &[format!("{domid}\0{features}\0").as_bytes()])
    })
}
