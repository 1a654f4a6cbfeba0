//! An engine as bytes, and back.
//!
//! An image holds everything that a later call on the engine can come to depend on, so that the engine made from it goes
//! on exactly as the one that was saved: the same replies, events, errors and numbers. Nodes stand in it one after the
//! other by number, as they do in memory; no path of a node is written or looked up. Equal engines have equal images.
//!
//! # Format
//!
//! Eight bytes of magic and a byte for the format's version, then sections, then a CRC-32C of all that (`u32`,
//! little-endian). A section is a tag and a version of a byte each, the length of its body (`u32`, little-endian) and
//! the body. Sections come in the order of [`Tag`]; one with much in it comes in several pieces, cut between records. A
//! section's version rises when something is added to it; older ones are still read.
//!
//! Numbers are unsigned LEB128, signed ones zigzag first; bytes have their count in front. A permission list is written
//! where it is first used; later uses name its place among all lists.
//!
//! Each struct is saved and restored in the module `image` below its own: `save` takes it apart to its last field, so
//! with a new field it does not compile until that was thought of.

mod error;
mod reader;
mod stored;
mod writer;

pub use error::{ImageError, ImageFault};
pub(crate) use reader::Reader;
pub(crate) use stored::Stored;
pub(crate) use writer::Writer;

/// First bytes of an image.
const MAGIC: &[u8; 8] = b"xsengine";

/// Version of what is around the sections.
const FORMAT: u8 = 1;

/// Bytes before the first section.
const START: usize = MAGIC.len() + 1;

/// Bytes in front of a section's body.
const FRAME: usize = 6;

/// Bytes of the checksum at the end.
const SUM: usize = 4;

/// Bytes after which a section goes on in another piece.
const PIECE: usize = 64 << 10;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// Settings that the engine was started with.
    Settings = 1,
    /// Counters, the time, queues.
    Engine = 2,
    /// Domains and their limits.
    Domains = 3,
    /// Every node.
    Nodes = 4,
    /// Where the tree begins, and who owns how much of it.
    Store = 5,
    /// Open snapshots and what they keep.
    Snapshots = 6,
    /// Connections with their transactions, input and output.
    Connections = 7,
    /// Watches in the order of registration.
    Watches = 8,
    /// Which guest changed which node last.
    Writers = 9,
}

impl Tag {
    /// The version of such sections that this engine writes, which is the newest that it reads.
    const fn version(self) -> u8 {
        1
    }
}

#[cfg(test)]
mod tests;
