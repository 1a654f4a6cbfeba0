//! Permissions.

use super::done;
use crate::block::Block;
use crate::guard::{Failure, guard, guard_request};
use crate::handle::xs_handle;
use crate::{text, xs_permissions, xs_transaction_t};
use libc::{c_char, c_uint};
use nix::errno::Errno;
use std::ffi::CStr;
use std::fmt::Write;
use std::ptr::null_mut;
use xenstore_wire::{Op, PAYLOAD_MAX, payload};

/// Bits of `xs_permissions.perms` (`xenstore_lib.h`).
const READ: c_uint = 1;
const WRITE: c_uint = 2;
const BOTH: c_uint = READ | WRITE;
/// Set by nobody outside the daemon, and taken off before sending.
const IGNORE: c_uint = 0x10;
/// Bytes of the shortest entry in a request: a letter, a digit and a NUL.
const SHORTEST: usize = 3;

/// Returns a node's permissions as an array; `num` is how many. The first entry is the owner and what all others may do.
///
/// # Safety
/// `h` is a handle, `path` a string, `num` a place for the count; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_get_permissions(
    h: *mut xs_handle,
    t: xs_transaction_t,
    path: *const c_char,
    num: *mut c_uint,
) -> *mut xs_permissions {
    guard_request(null_mut(), || {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        let take = |list: &[u8]| payload::strings(list).map(parse).collect::<Result<Vec<_>, _>>();
        let entries = handle.link.request(Op::GetPerms, t, &[path], handle.until(), take)??;
        let block = Block::of_permissions(&entries)?;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(num, text::count(entries.len())) };
        Ok(block.into_raw().cast())
    })
}

/// Sets a node's permissions.
///
/// # Safety
/// `h` is a handle, `path` a string, `perms` are `num_perms` entries; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_set_permissions(
    h: *mut xs_handle,
    t: xs_transaction_t,
    path: *const c_char,
    perms: *mut xs_permissions,
    num_perms: c_uint,
) -> bool {
    guard_request(false, || {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        let count = usize::try_from(num_perms).map_err(|_| Failure(Errno::E2BIG))?;
        let entries = match (perms.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(Failure(Errno::EINVAL)),
            // SAFETY: the caller promises that many entries.
            (false, count) => unsafe { std::slice::from_raw_parts(perms.cast_const(), count) },
        };
        if count > PAYLOAD_MAX / SHORTEST {
            // However many the caller says there are, they are not looked at.
            return Err(Failure(Errno::E2BIG));
        }
        let mut list = String::new();
        for entry in entries {
            let letter = match entry.perms & !IGNORE {
                0 => 'n',
                READ => 'r',
                WRITE => 'w',
                BOTH => 'b',
                _ => return Err(Failure(Errno::EINVAL)),
            };
            // The daemon is told of a domain as the C library does: as a number with a sign.
            let _written = write!(list, "{letter}{}\0", entry.id.cast_signed());
        }
        done(&handle, Op::SetPerms, t, &[path, list.as_bytes()])
    })
}

/// Reads `num` permissions from as many strings, one behind the other.
///
/// # Safety
/// `perms` has room for `num` entries; `strings` are `num` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_strings_to_perms(perms: *mut xs_permissions, num: c_uint, strings: *const c_char) -> bool {
    guard(false, || {
        let count = usize::try_from(num).map_err(|_| Failure(Errno::EINVAL))?;
        if count > 0 && (perms.is_null() || strings.is_null()) {
            return Err(Failure(Errno::EINVAL));
        }
        let mut next = strings;
        for slot in 0..count {
            // SAFETY: there is a string for each entry.
            let string = unsafe { CStr::from_ptr(next) }.to_bytes();
            let entry = parse(string)?;
            // SAFETY: there is room for each entry.
            unsafe { perms.wrapping_add(slot).write(entry) };
            next = next.wrapping_add(string.len()).wrapping_add(1);
        }
        Ok(true)
    })
}

/// Reads an entry as the C library does: its number may be signed, octal or hexadecimal.
fn parse(string: &[u8]) -> Result<xs_permissions, Failure> {
    let malformed = Failure(Errno::EINVAL);
    let (letter, number) = string.split_first().ok_or(malformed)?;
    let perms = match letter {
        b'n' => 0,
        b'r' => READ,
        b'w' => WRITE,
        b'b' => BOTH,
        _ => return Err(malformed),
    };
    let number = strtol(number).ok_or(malformed)?;
    // A number beyond an `unsigned int` loses its upper bits there, too.
    let id = c_uint::try_from(number & i64::from(c_uint::MAX)).unwrap_or(c_uint::MAX);
    Ok(xs_permissions { id, perms })
}

/// The number that a string consists of, as `strtol` with base 0 reads it; blanks may stand in front.
fn strtol(string: &[u8]) -> Option<i64> {
    let string = string.trim_ascii_start();
    let (negative, digits) = match string {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let (radix, digits) = match digits {
        [b'0', b'x' | b'X', digits @ ..] => (16, digits),
        [b'0', digits @ ..] if !digits.is_empty() => (8, digits),
        digits => (10, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = char::from(byte).to_digit(radix)?;
        value = value.saturating_mul(radix.into()).saturating_add(digit.into());
    }
    Some(if negative { value.saturating_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::decimal("r10", Some((10, READ)))]
    #[case::octal("r010", Some((8, READ)))]
    #[case::hexadecimal("b0x1F", Some((31, BOTH)))]
    #[case::negative("w-1", Some((c_uint::MAX, WRITE)))]
    #[case::zero("n0", Some((0, 0)))]
    #[case::plus("n+7", Some((7, 0)))]
    #[case::blank("n 7", Some((7, 0)))]
    #[case::no_number("n", None)]
    #[case::no_letter("7", None)]
    #[case::unknown_letter("x7", None)]
    #[case::trailing("n7x", None)]
    #[case::not_octal("n08", None)]
    #[case::empty("", None)]
    fn entries_are_read_as_c_reads_them(#[case] string: &str, #[case] want: Option<(c_uint, c_uint)>) {
        let want = want.map(|(id, perms)| xs_permissions { id, perms }).ok_or(Failure(Errno::EINVAL));
        assert_eq!(parse(string.as_bytes()), want);
    }
}
