//! Putting the parts of a trace line into a buffer.
//!
//! Two lines are written for every request while tracing is on, so this avoids the general formatting code.

/// A number in decimal digits.
pub(crate) fn put_decimal(out: &mut Vec<u8>, number: u64) {
    put_digits(out, number, 10);
}

/// A number in hexadecimal digits, with `0x` in front.
pub(crate) fn put_hex(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(b"0x");
    put_digits(out, number, 16);
}

fn put_digits(out: &mut Vec<u8>, mut number: u64, base: u64) {
    // 20 digits hold every number, in base 10 and above.
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[usize::from((number % base).to_le_bytes()[0] & 15)];
        number /= base;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// A payload, with blanks for its NULs and `\xNN` for what would break the line.
pub(crate) fn put_payload(out: &mut Vec<u8>, payload: &[u8]) {
    put_escaped(out, payload, |byte| byte < b' ' || byte == 0x7f, true);
}

/// A path as one word: blanks and NULs are escaped too.
pub(crate) fn put_word(out: &mut Vec<u8>, word: &[u8]) {
    put_escaped(out, word, |byte| byte <= b' ' || byte == 0x7f, false);
}

fn put_escaped(out: &mut Vec<u8>, mut bytes: &[u8], special: impl Fn(u8) -> bool, nul_is_blank: bool) {
    while let Some(clean) = bytes.iter().position(|&byte| special(byte)) {
        out.extend_from_slice(&bytes[..clean]);
        match bytes[clean] {
            0 if nul_is_blank => out.push(b' '),
            byte => {
                out.extend_from_slice(b"\\x");
                out.push(b"0123456789abcdef"[usize::from(byte >> 4)]);
                out.push(b"0123456789abcdef"[usize::from(byte & 15)]);
            }
        }
        bytes = &bytes[clean + 1..];
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_of_every_length_are_as_the_standard_library_writes_them() {
        for number in [0, 7, 9, 10, 15, 16, 255, 256, 4_294_967_296, u64::MAX - 1, u64::MAX] {
            assert_eq!(written(|out| put_decimal(out, number)), number.to_string());
            assert_eq!(written(|out| put_hex(out, number)), format!("{number:#x}"));
        }
    }

    #[test]
    fn payloads_have_blanks_for_nuls_and_no_control_characters() {
        assert_eq!(written(|out| put_payload(out, b"\0a\0\0b c\0")), " a  b c ");
        assert_eq!(written(|out| put_payload(out, b"\x01\n\x1f\x7f~")), "\\x01\\x0a\\x1f\\x7f~");
        assert_eq!(written(|out| put_payload(out, b"")), "");
    }

    #[test]
    fn words_have_no_blanks_at_all() {
        assert_eq!(written(|out| put_word(out, b"/a b\0/c")), "/a\\x20b\\x00/c");
    }
}
