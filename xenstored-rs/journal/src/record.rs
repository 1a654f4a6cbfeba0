//! Records: what a log is made of.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | CRC-32C, begun with the length, of all from offset 8 to the end |
//! | 4 | 4 | length of the payload |
//! | 8 | 2 | kind |
//! | 10 | 2 | flags; none is known |
//! | 12 | 4 | connection |
//! | 16 | 8 | time, ns |
//! | 24 | | payload, then zeroes up to a multiple of 8 |
//!
//! What the checksum is taken of begins and ends at a multiple of 8: by words that is far quicker than by bytes.

use std::path::Path;

use crate::{
    error::Error,
    layout::{RECORDS_AT, padded},
    log::Span,
};

/// Bytes before the payload.
pub(crate) const HEADER: usize = 24;
/// Where that begins which the checksum is taken of.
const SUMMED_AT: usize = 8;

/// One record, as it is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it starts, in bytes from the start of the file.
    pub offset: u64,
    /// What it is, by its writer's numbers.
    pub kind: u16,
    /// The connection it is about, by its writer's numbers.
    pub conn: u32,
    /// When it was written, in the writer's nanoseconds.
    pub time: u64,
    /// The rest.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Where the payload is in the log it was read from.
    #[must_use]
    pub fn span(&self) -> Span {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).saturating_add(HEADER);
        Span { start, len: self.payload.len() }
    }
}

/// The count in the payload of a record that [`Log::send`](crate::Log::send) wrote; `None` if the payload is none of
/// its kind.
#[must_use]
pub fn sent_count(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_le_bytes)
}

/// The checksum that belongs into the first four bytes of a record, of which `whole` has header, payload and padding.
///
/// # Panics
/// If there is not as much as a header.
#[must_use]
pub fn record_checksum(whole: &[u8]) -> u32 {
    let len = u32::from_le_bytes([whole[4], whole[5], whole[6], whole[7]]);
    crc32c::crc32c_append(len, &whole[SUMMED_AT..])
}

/// The header without checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) len: u32,
    pub(crate) kind: u16,
    pub(crate) conn: u32,
    pub(crate) time: u64,
}

impl RecordHeader {
    /// The header, with the checksum's place to be filled in.
    pub(crate) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.kind.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.conn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }
}

/// The records of a log, first to last. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    path: &'a Path,
    /// What is sealed, from [`RECORDS_AT`] on.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, at: 0 }
    }

    fn read(&mut self) -> Result<Record<'a>, Error> {
        let damaged = |what| Error::damaged(self.path, RECORDS_AT + self.at, what);
        let whole = &self.bytes[self.at..];
        let Some((header, rest)) = whole.split_first_chunk::<HEADER>() else {
            return Err(damaged("the tail is inside of a record's header"));
        };
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if len > rest.len() || padded(len) > rest.len() {
            return Err(damaged("a record that is longer than what is sealed"));
        }
        let payload = &rest[..len];
        if record_checksum(&whole[..HEADER + padded(len)])
            != u32::from_le_bytes([header[0], header[1], header[2], header[3]])
        {
            return Err(damaged("the checksum of a record is wrong"));
        }
        if header[10..12] != [0, 0] {
            return Err(damaged("a record with unknown flags"));
        }
        let mut time = [0; 8];
        time.copy_from_slice(&header[16..24]);
        let record = Record {
            offset: (RECORDS_AT + self.at) as u64,
            kind: u16::from_le_bytes([header[8], header[9]]),
            conn: u32::from_le_bytes([header[12], header[13], header[14], header[15]]),
            time: u64::from_le_bytes(time),
            payload,
        };
        self.at += HEADER + padded(len);
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.at = self.bytes.len();
        }
        Some(read)
    }
}

impl core::iter::FusedIterator for Records<'_> {}
