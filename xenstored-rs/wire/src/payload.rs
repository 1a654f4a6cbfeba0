//! The strings and numbers inside a payload.
//!
//! Strings end with a NUL each. Numbers are decimal digits and nothing else: no sign, no blank, no empty string, so
//! that a slip of the caller never turns into domain 0.

use crate::XsError;

/// The one string of a payload that must be exactly one: its only NUL is its last byte, which is cut off.
///
/// # Errors
/// `EINVAL` for no NUL, an inner NUL or an empty payload (`docs/misc/xenstore.txt`, "path|").
pub fn one_string(payload: &[u8]) -> Result<&[u8], XsError> {
    match payload.split_last() {
        Some((0, string)) if !string.contains(&0) => Ok(string),
        _ => Err(XsError::Inval),
    }
}

/// The first NUL-ended string and all that follows it.
///
/// # Errors
/// `EINVAL` where there is no NUL.
pub fn string_and_rest(payload: &[u8]) -> Result<(&[u8], &[u8]), XsError> {
    let nul = payload.iter().position(|&byte| byte == 0).ok_or(XsError::Inval)?;
    Ok((&payload[..nul], &payload[nul + 1..]))
}

/// Every NUL-ended string in turn; bytes behind the last NUL are no string and are left out.
pub fn strings(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = payload.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1);
    payload[..end].split_inclusive(|&byte| byte == 0).map(|string| &string[..string.len() - 1])
}

/// Exactly `N` strings.
///
/// # Errors
/// `EINVAL` for any other count.
pub fn exactly<const N: usize>(payload: &[u8]) -> Result<[&[u8]; N], XsError> {
    let mut found = strings(payload);
    let mut out = [&[][..]; N];
    for slot in &mut out {
        *slot = found.next().ok_or(XsError::Inval)?;
    }
    if found.next().is_some() { Err(XsError::Inval) } else { Ok(out) }
}

/// A decimal number of a payload.
///
/// # Errors
/// `EINVAL` for anything but digits, and for a number that `T` cannot hold.
pub fn number<T: TryFrom<u64>>(string: &[u8]) -> Result<T, XsError> {
    if string.is_empty() {
        return Err(XsError::Inval);
    }
    let mut value = 0u64;
    for &byte in string {
        if !byte.is_ascii_digit() {
            return Err(XsError::Inval);
        }
        let digit = u64::from(byte - b'0');
        value = value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(XsError::Inval)?;
    }
    T::try_from(value).map_err(|_| XsError::Inval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain(b"/a\0", Ok(&b"/a"[..]))]
    #[case::empty_string(b"\0", Ok(&b""[..]))]
    #[case::nothing(b"", Err(XsError::Inval))]
    #[case::no_nul(b"/a", Err(XsError::Inval))]
    #[case::inner_nul(b"/a\0b\0", Err(XsError::Inval))]
    fn one_string_wants_one_nul_at_the_end(#[case] payload: &[u8], #[case] want: Result<&[u8], XsError>) {
        assert_eq!(one_string(payload), want);
    }

    #[test]
    fn strings_leave_out_what_no_nul_ends() {
        assert_eq!(strings(b"a\0\0b\0tail").collect::<Vec<_>>(), [&b"a"[..], b"", b"b"]);
        assert_eq!(strings(b"tail").count(), 0);
        assert_eq!(strings(b"").count(), 0);
    }

    #[test]
    fn exactly_counts() {
        assert_eq!(exactly::<2>(b"a\0b\0"), Ok([&b"a"[..], b"b"]));
        assert_eq!(exactly::<2>(b"a\0"), Err(XsError::Inval));
        assert_eq!(exactly::<2>(b"a\0b\0c\0"), Err(XsError::Inval));
    }

    #[rstest]
    #[case::zero(b"0", Ok(0))]
    #[case::leading_zeros(b"0005", Ok(5))]
    #[case::most(b"65535", Ok(65535))]
    #[case::too_large(b"65536", Err(XsError::Inval))]
    #[case::overflow(b"99999999999999999999999", Err(XsError::Inval))]
    #[case::empty(b"", Err(XsError::Inval))]
    #[case::minus(b"-1", Err(XsError::Inval))]
    #[case::plus(b"+1", Err(XsError::Inval))]
    #[case::blank(b" 1", Err(XsError::Inval))]
    #[case::trailing(b"1 ", Err(XsError::Inval))]
    #[case::hex(b"0x1", Err(XsError::Inval))]
    fn numbers_are_decimal_digits(#[case] string: &[u8], #[case] want: Result<u16, XsError>) {
        assert_eq!(number::<u16>(string), want);
    }
}
