//! Values to bytes.

use std::collections::BTreeMap;

use super::{FORMAT, FRAME, MAGIC, PIECE, Tag};
use crate::permission::Permissions;

/// Permission lists of which is remembered where they stood.
const LATELY: usize = 1024;

/// Writes an image, piece by piece, into a sink.
pub(crate) struct Writer<'s> {
    sink: &'s mut dyn FnMut(&[u8]),
    /// Frame and body of the section that is being written.
    section: Vec<u8>,
    tag: Option<Tag>,
    sum: u32,
    lists: BTreeMap<Permissions, u32>,
    /// Where lists stood in memory that were written lately, with their places: most nodes share a few.
    lately: Box<[(usize, u32); LATELY]>,
}

impl<'s> Writer<'s> {
    /// Begins an image.
    pub(crate) fn new(sink: &'s mut dyn FnMut(&[u8])) -> Self {
        let section = Vec::with_capacity(PIECE + (PIECE / 8));
        let lately = Box::new([(0, 0); LATELY]);
        let mut writer = Self { sink, section, tag: None, sum: 0, lists: BTreeMap::new(), lately };
        writer.put(MAGIC);
        writer.put(&[FORMAT]);
        writer
    }

    /// Ends the section before, and begins another.
    pub(crate) fn section(&mut self, tag: Tag) {
        self.end_piece();
        self.tag = Some(tag);
        self.section.resize(FRAME, 0);
    }

    /// Begins a record, which has a byte at least: the section may be cut in front of it.
    pub(crate) fn record(&mut self) {
        if self.section.len() >= PIECE
            && let Some(tag) = self.tag
        {
            self.section(tag);
        }
    }

    /// Ends the image.
    pub(crate) fn finish(mut self) {
        self.end_piece();
        let sum = self.sum.to_le_bytes();
        self.put(&sum);
    }

    fn end_piece(&mut self) {
        let Some(tag) = self.tag else { return };
        let mut section = std::mem::take(&mut self.section);
        let len = u32::try_from(section.len() - FRAME).expect("a record is far shorter");
        section[0] = tag as u8;
        section[1] = tag.version();
        section[2..FRAME].copy_from_slice(&len.to_le_bytes());
        self.put(&section);
        section.clear();
        self.section = section;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        (self.sink)(bytes);
    }

    /// A byte as it is.
    pub(crate) fn byte(&mut self, byte: u8) {
        self.section.push(byte);
    }

    /// A number.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.section.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.section.push(low_bits(number));
    }

    /// A count of things in memory.
    pub(crate) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// Bytes with their count.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.section.extend_from_slice(bytes);
    }

    /// Bytes of which there may be many, with their count; records of their own follow the one that holds it.
    pub(crate) fn many_bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        for piece in bytes.chunks(PIECE) {
            self.record();
            self.section.extend_from_slice(piece);
        }
    }

    /// A permission list: its place among those written before, or that and the list itself. Equal lists are one.
    pub(crate) fn permissions(&mut self, permissions: &Permissions) {
        let address = permissions.address();
        let slot = (address >> 4) % LATELY;
        if self.lately[slot].0 == address {
            self.number(u64::from(self.lately[slot].1));
            return;
        }
        let next = u32::try_from(self.lists.len()).expect("fewer lists than nodes");
        let place = match self.lists.get(permissions) {
            Some(&place) => place,
            None => {
                self.lists.insert(permissions.clone(), next);
                next
            }
        };
        self.lately[slot] = (address, place);
        self.number(u64::from(place));
        if place == next {
            permissions.save_entries(self);
        }
    }
}

/// The seven lowest bits.
fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}
