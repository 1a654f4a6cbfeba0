//! Writing a payload in place.

use crate::{
    log::{Log, Span},
    record::HEADER,
};

/// Room behind the last record. What is written there counts once it is sealed; dropped, it never did.
///
/// The room holds anything at first: what was written there and taken back, or zeroes.
#[derive(Debug)]
pub struct Tail<'a> {
    log: &'a mut Log,
    len: usize,
}

impl<'a> Tail<'a> {
    /// Room for `len` bytes, which was made.
    pub(crate) fn new(log: &'a mut Log, len: usize) -> Self {
        Self { log, len }
    }

    /// The room, to be written to.
    pub fn bytes(&mut self) -> &mut [u8] {
        let start = self.log.map.tail() + HEADER;
        self.log.map.unsealed(start..start + self.len)
    }

    /// Makes a record of the first `len` bytes. Returns where they are.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn seal(self, kind: u16, conn: u32, time: u64, len: usize) -> Span {
        assert!(len <= self.len, "{len} bytes of a tail of {}", self.len);
        self.log.seal(kind, conn, time, len)
    }
}
