//! Domains.

use super::{done, string};
use crate::guard::{Failure, guard_request};
use crate::handle::{handle, xs_handle};
use libc::{c_char, c_int, c_uint, c_ulong};
use std::ptr::null_mut;
use xenstore_wire::Op;

/// Makes a domain known whose ring is in frame `mfn`, with event channel port `eventchn`.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_introduce_domain(h: *mut xs_handle, domid: c_uint, mfn: c_ulong, eventchn: c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        done(&handle, Op::Introduce, 0, &[format!("{domid}\0{mfn}\0{eventchn}\0").as_bytes()])
    })
}

/// Gives a domain the rights of another.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_set_target(h: *mut xs_handle, domid: c_uint, target: c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        done(&handle, Op::SetTarget, 0, &[format!("{domid}\0{target}\0").as_bytes()])
    })
}

/// Lets a domain's next shutdown be told of again.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_resume_domain(h: *mut xs_handle, domid: c_uint) -> bool {
    // SAFETY: the caller promises the handle.
    guard_request(false, || unsafe { with_domain(h, domid, Op::Resume) })
}

/// Forgets a domain.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_release_domain(h: *mut xs_handle, domid: c_uint) -> bool {
    // SAFETY: the caller promises the handle.
    guard_request(false, || unsafe { with_domain(h, domid, Op::Release) })
}

/// A request whose payload is a domain.
///
/// # Safety
/// `h` is a handle or NULL.
unsafe fn with_domain(h: *mut xs_handle, domid: c_uint, op: Op) -> Result<bool, Failure> {
    // SAFETY: that is the caller's promise.
    let handle = unsafe { handle(h)? };
    done(&handle, op, 0, &[format!("{domid}\0").as_bytes()])
}

/// Returns the path of a domain's own nodes.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_domain_path(h: *mut xs_handle, domid: c_uint) -> *mut c_char {
    guard_request(null_mut(), || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let (path, _) = string(&handle, Op::GetDomainPath, 0, &[format!("{domid}\0").as_bytes()])?;
        Ok(path.into_raw().cast())
    })
}

/// Whether a domain is introduced; false also when that cannot be known.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_is_domain_introduced(h: *mut xs_handle, domid: c_uint) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let take = |payload: &[u8]| payload.split(|&byte| byte == 0).next() != Some(b"F");
        let domain = format!("{domid}\0");
        Ok(handle.link.request(Op::IsDomainIntroduced, 0, &[domain.as_bytes()], handle.until(), take)?)
    })
}

/// Returns the event channel port by which a domain is suspended, or -1. It opens a connection of its own.
#[unsafe(no_mangle)]
pub extern "C" fn xs_suspend_evtchn_port(domid: c_int) -> c_int {
    guard_request(-1, || {
        let h = xs_handle::open(0)?;
        let path = format!("/local/domain/{domid}/device/suspend/event-channel\0");
        // SAFETY: the handle was just opened.
        let handle = unsafe { &*h };
        let port = handle.link.request(Op::Read, 0, &[path.as_bytes()], handle.until(), atoi);
        // SAFETY: nobody else has the handle.
        unsafe { xs_handle::close(h) };
        Ok(port?.unwrap_or(-1))
    })
}

/// The number in front of a value, as `atoi` reads it; nothing for an empty value.
fn atoi(value: &[u8]) -> Option<c_int> {
    if value.is_empty() {
        return None;
    }
    let value = value.trim_ascii_start();
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| i64::from(byte & 0xf));
    let number = digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(digit));
    let number = if negative { number.saturating_neg() } else { number };
    Some(c_int::try_from(number).unwrap_or(if negative { c_int::MIN } else { c_int::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::port(b"17", Some(17))]
    #[case::empty(b"", None)]
    #[case::junk_behind(b"17x", Some(17))]
    #[case::junk(b"x", Some(0))]
    #[case::negative(b" -3", Some(-3))]
    #[case::huge(b"99999999999999999999", Some(c_int::MAX))]
    fn ports_are_read_as_c_reads_them(#[case] value: &[u8], #[case] want: Option<c_int>) {
        assert_eq!(atoi(value), want);
    }
}
