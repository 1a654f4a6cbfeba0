//! The files by which the kernel hands the store domain its own ring.

use std::{
    fs::{self, OpenOptions},
    io,
    os::fd::AsFd as _,
    path::Path,
};

use crate::{error::Error, id::Port, shared_page::SharedPage};

/// The kernel's xenstore ring, mapped by `mmap`.
pub const RING_FILE: &str = "/proc/xen/xsd_kva";

/// The number of the kernel's event channel port for that ring, in decimal.
pub const PORT_FILE: &str = "/proc/xen/xsd_port";

/// Maps the ring of the domain this runs in, from `file`, which is [`RING_FILE`] on Linux.
///
/// # Errors
/// `ENOENT` where Xen is not running or this is not the first domain; otherwise whatever opening or mapping left.
pub fn map_own_ring(file: &Path) -> Result<SharedPage, Error> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .map_err(|source| Error::new("opening the kernel's xenstore ring", source))?;
    SharedPage::map_file(opened.as_fd())
}

/// Reads the kernel's port for its own ring from `file`, which is [`PORT_FILE`] on Linux.
///
/// # Errors
/// Whatever reading the file left; without an errno if it does not hold a port.
pub fn read_own_port(file: &Path) -> Result<Port, Error> {
    const CALL: &str = "reading the kernel's xenstore port";
    let text = fs::read(file).map_err(|source| Error::new(CALL, source))?;
    parse_port(&text).ok_or_else(|| {
        let shown = text[..text.len().min(32)].escape_ascii();
        Error::new(CALL, io::Error::new(io::ErrorKind::InvalidData, format!("\"{shown}\" is no port")))
    })
}

/// A decimal number of 31 bits but 0, with or without an end of line.
fn parse_port(text: &[u8]) -> Option<Port> {
    let digits = text.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: i32 = str::from_utf8(digits).ok()?.parse().ok()?;
    u32::try_from(number).ok().filter(|&number| number != 0).map(Port)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::with_an_end_of_line(b"29\n", Some(29))]
    #[case::without(b"29", Some(29))]
    #[case::the_largest(b"2147483647\n", Some(0x7fff_ffff))]
    #[case::too_large(b"2147483648\n", None)]
    #[case::none(b"0\n", None)]
    #[case::empty(b"", None)]
    #[case::a_line_only(b"\n", None)]
    #[case::signed(b"+29\n", None)]
    #[case::negative(b"-1\n", None)]
    #[case::hexadecimal(b"0x1d\n", None)]
    #[case::more(b"29 30\n", None)]
    fn a_port_is_a_decimal_number(#[case] text: &[u8], #[case] port: Option<u32>) {
        assert_eq!(parse_port(text), port.map(Port));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file for writing, which the interpreter does not do")]
    fn a_file_of_the_right_shape_is_a_ring_and_a_port() {
        let dir = tempfile::tempdir().unwrap();
        let (ring, port) = (dir.path().join("xsd_kva"), dir.path().join("xsd_port"));
        fs::write(&ring, [0x5a; crate::PAGE_SIZE]).unwrap();
        fs::write(&port, "7\n").unwrap();
        assert_eq!(map_own_ring(&ring).unwrap().read_u32(0), 0x5a5a_5a5a);
        assert_eq!(read_own_port(&port).unwrap(), Port(7));
    }

    #[test]
    fn what_is_missing_or_wrong_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert_eq!(map_own_ring(&missing).unwrap_err().errno(), Some(libc::ENOENT));
        assert_eq!(read_own_port(&missing).unwrap_err().errno(), Some(libc::ENOENT));
        let wrong = dir.path().join("wrong");
        fs::write(&wrong, "no number").unwrap();
        let error = read_own_port(&wrong).unwrap_err();
        assert_eq!(error.errno(), None);
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "\"no number\" is no port");
    }
}
