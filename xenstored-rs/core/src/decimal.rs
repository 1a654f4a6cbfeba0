//! Decimal numbers into bytes, without the formatting machinery on the request path.

/// Appends `value` in decimal digits.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_are_those_of_display() {
        for value in [0, 9, 10, 65535, u64::MAX] {
            let mut out = Vec::new();
            super::put(&mut out, value);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
