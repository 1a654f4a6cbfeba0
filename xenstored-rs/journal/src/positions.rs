//! Where streams stand whose last records were taken back.

use core::sync::atomic::{
    Ordering::{Acquire, Release},
    compiler_fence,
};

use crate::{
    layout::{POSITION, POSITIONS, TABLE_AT},
    log::{Full, Log, Mark},
};

/// Where a stream stood when the log ended at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The position, as it was set.
    pub value: u64,
    /// It holds for this place: a record of the stream that starts here or later is newer.
    pub at: u64,
}

impl Log {
    /// Sets the position of stream `index`, which holds from `at` on: the mark that the log is about to be rewound to.
    ///
    /// A process that dies in this call leaves the old position or the new one, or the new value at the old place.
    /// That is right too as long as no record of the stream lies between the two places that the new value does not
    /// count in.
    ///
    /// # Errors
    /// If `index` is not below [`POSITIONS`], or there is no block for the entry.
    pub fn set_position(&self, index: u32, value: u64, at: Mark) -> Result<(), Full> {
        if index >= POSITIONS {
            return Err(Full::AtCapacity);
        }
        let entry = entry(index);
        self.make_room_in_table(entry)?;
        self.map.atomic(entry).store(value, Release);
        compiler_fence(Release);
        self.map.atomic(entry + 8).store(at.0 as u64, Release);
        Ok(())
    }

    /// Stream `index` has no position any more: the index is to be used by another.
    pub fn clear_position(&self, index: u32) {
        if index < POSITIONS && entry(index) < self.map.table_reserved() {
            self.map.atomic(entry(index) + 8).store(0, Release);
        }
    }

    /// The position of stream `index`, if one was set in this log.
    #[must_use]
    pub fn position(&self, index: u32) -> Option<Position> {
        if index >= POSITIONS || entry(index) >= self.map.table_reserved() {
            return None;
        }
        let at = self.map.atomic(entry(index) + 8).load(Acquire);
        (at != 0).then(|| Position { value: self.map.atomic(entry(index)).load(Acquire), at })
    }
}

/// Where the entry of an index is.
fn entry(index: u32) -> usize {
    TABLE_AT + index as usize * POSITION
}
