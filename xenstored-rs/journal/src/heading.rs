//! The first bytes of a file: what it is and whose.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 16 | boot id |
//! | 24 | 4 | version of the format |
//! | 28 | 4 | flags: 1 = begins a history |
//! | 32 | 8 | history |
//! | 40 | 8 | number |
//! | 48 | 8 | log: most bytes of records; image: bytes of content |
//! | 56 | 4 | image: CRC-32C of the content |
//! | 60 | 4 | length of the writer's text |
//! | 64 | 192 | the writer's text, UTF-8 |
//! | 256 | 4 | CRC-32C of the bytes before it |
//!
//! The first three, and the text, stay where they are in every future format: files of another boot and of a newer
//! version are told apart by them.

use core::fmt;
use std::{fs, io, path::Path};

use crate::{
    error::Error,
    layout::{FORMAT, HEADING, IMAGE_MAGIC, LOG_MAGIC},
};

/// Where the number is.
pub(crate) const NUMBER_AT: usize = 40;

const BEGINS: u32 = 1;
const TEXT_AT: usize = 64;
const TEXT_MAX: usize = 192;
const CHECKSUM_AT: usize = TEXT_AT + TEXT_MAX;

/// One start of the host: the kernel's `boot_id`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

impl BootId {
    /// The boot that is.
    ///
    /// # Errors
    /// If the kernel does not tell it.
    pub fn current() -> io::Result<Self> {
        Ok(Self(kernel_uuid("/proc/sys/kernel/random/boot_id")?))
    }

    /// A boot of that number, for tests.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which of the two kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Log,
    Image,
}

impl Form {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Image => "image",
        }
    }

    fn magic(self) -> [u8; 8] {
        match self {
            Self::Log => LOG_MAGIC,
            Self::Image => IMAGE_MAGIC,
        }
    }
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The boot it was written in.
    pub boot: BootId,
    /// A random number that all files of a history share.
    pub history: u64,
    /// The N of its name.
    pub number: u64,
    /// Nothing comes before it.
    pub begins: bool,
    /// Name and version of the program that made it; at most 192 bytes are kept.
    pub writer: String,
}

impl Heading {
    /// The heading of the first log of a new history.
    ///
    /// # Errors
    /// If the kernel gives no random number.
    pub fn first(boot: BootId, number: u64, writer: &str) -> io::Result<Self> {
        let random = kernel_uuid("/proc/sys/kernel/random/uuid")?;
        let mut half = [0; 8];
        half.copy_from_slice(&random[8..]);
        Ok(Self { boot, history: u64::from_le_bytes(half), number, begins: true, writer: fitting(writer).into() })
    }

    /// The heading of the log that continues this one.
    #[must_use]
    pub fn next(&self, writer: &str) -> Self {
        let number = self.number.saturating_add(1);
        Self { number, begins: false, writer: fitting(writer).into(), ..self.clone() }
    }
}

/// The whole of the heading: with what concerns the one file only.
#[derive(Clone, Debug)]
pub(crate) struct FileHeading {
    pub(crate) heading: Heading,
    /// Log: most bytes of records. Image: bytes of content.
    pub(crate) size: u64,
    /// Image: the content's.
    pub(crate) checksum: u32,
}

impl FileHeading {
    pub(crate) fn encode(&self, form: Form) -> [u8; HEADING] {
        let mut bytes = [0; HEADING];
        let writer = fitting(&self.heading.writer).as_bytes();
        let flags = if self.heading.begins { BEGINS } else { 0 };
        let text_len = u32::try_from(writer.len()).unwrap_or(0);
        let fields: [(usize, &[u8]); 10] = [
            (0, &form.magic()),
            (8, &self.heading.boot.0),
            (24, &FORMAT.to_le_bytes()),
            (28, &flags.to_le_bytes()),
            (32, &self.heading.history.to_le_bytes()),
            (NUMBER_AT, &self.heading.number.to_le_bytes()),
            (48, &self.size.to_le_bytes()),
            (56, &self.checksum.to_le_bytes()),
            (60, &text_len.to_le_bytes()),
            (TEXT_AT, writer),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the heading of the file `path`, of which `bytes` is the beginning. `boot`, if given, is the only boot that
    /// is taken.
    pub(crate) fn decode(path: &Path, bytes: &[u8], form: Form, boot: Option<BootId>) -> Result<Self, Error> {
        let not_a_journal = || Error::NotAJournal { path: path.into(), expected: form.name() };
        let bytes: &[u8; HEADING] = bytes.first_chunk().ok_or_else(not_a_journal)?;
        if bytes[..8] != form.magic() {
            return Err(not_a_journal());
        }
        let found_boot = BootId(field(bytes, 8));
        if let Some(boot) = boot.filter(|boot| *boot != found_boot) {
            // All else being right, it is the boot id that is not.
            let mut as_of_this_boot = *bytes;
            as_of_this_boot[8..24].copy_from_slice(&boot.0);
            let summed = crc32c::crc32c(&as_of_this_boot[..CHECKSUM_AT]);
            return Err(if summed == u32::from_le_bytes(field(bytes, CHECKSUM_AT)) {
                Error::damaged(path, 8, "the boot id is wrong")
            } else {
                Error::OtherBoot { path: path.into() }
            });
        }
        let text_len = u32::from_le_bytes(field(bytes, 60)) as usize;
        let text = core::str::from_utf8(&bytes[TEXT_AT..TEXT_AT + text_len.min(TEXT_MAX)]);
        let format = u32::from_le_bytes(field(bytes, 24));
        if format > FORMAT {
            let writer = text.unwrap_or_default().into();
            return Err(Error::Newer { path: path.into(), found: format, writer });
        }
        if crc32c::crc32c(&bytes[..CHECKSUM_AT]) != u32::from_le_bytes(field(bytes, CHECKSUM_AT)) {
            return Err(Error::damaged(path, CHECKSUM_AT, "the checksum of the heading is wrong"));
        }
        let flags = u32::from_le_bytes(field(bytes, 28));
        if format == 0 || flags & !BEGINS != 0 || text_len > TEXT_MAX {
            return Err(Error::damaged(path, 24, "a heading that nobody writes"));
        }
        let Ok(writer) = text else {
            return Err(Error::damaged(path, TEXT_AT, "the writer's text is no text"));
        };
        let heading = Heading {
            boot: found_boot,
            history: u64::from_le_bytes(field(bytes, 32)),
            number: u64::from_le_bytes(field(bytes, NUMBER_AT)),
            begins: flags & BEGINS != 0,
            writer: writer.into(),
        };
        let (size, checksum) = (u64::from_le_bytes(field(bytes, 48)), u32::from_le_bytes(field(bytes, 56)));
        Ok(Self { heading, size, checksum })
    }
}

/// `N` bytes from `at` on.
fn field<const N: usize>(bytes: &[u8; HEADING], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// As much of a text as a heading holds.
fn fitting(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// A UUID that the kernel shows as text.
fn kernel_uuid(path: &str) -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(path)?;
    let digits = text.trim_end().bytes().filter(|byte| *byte != b'-');
    let nibbles: Option<Vec<u8>> =
        digits.map(|digit| char::from(digit).to_digit(16).and_then(|nibble| u8::try_from(nibble).ok())).collect();
    let mut uuid = [0; 16];
    match nibbles {
        Some(nibbles) if nibbles.len() == 32 => {
            for (byte, pair) in uuid.iter_mut().zip(nibbles.chunks(2)) {
                *byte = pair[0] << 4 | pair[1];
            }
            Ok(uuid)
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{path} holds no UUID"))),
    }
}
