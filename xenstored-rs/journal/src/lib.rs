//! What a daemon must have written down to survive its own death, in files it shares with nobody but its successor.
//!
//! This crate knows bytes, kinds and numbers. What a record means is the business of who writes it.
//!
//! # Files
//!
//! A [`Directory`] (mode 0700, files 0600) holds `log.N` and `image.N`, N strictly decimal:
//!
//! - `log.N` is a sequence of records in a file that is mapped and shared. A record counts from the moment the log's
//!   tail is stored behind it: one store. A process that is killed loses nothing that was sealed, without a system call
//!   having been made for it.
//! - `image.N` is the state at the beginning of `log.N`. The first log of a history has none.
//!
//! A history is a chain of logs, each continuing the one before. Recovery is the newest whole image and all logs from
//! its number on. Every file says the boot it belongs to, because what it tells of (sockets, rings, domains) dies with
//! the host; files of another boot are reported and never used.
//!
//! The files are safe from the death of the process, not from that of the kernel, and are meant for a file system in
//! memory (tmpfs). Blocks are allocated before they are touched, so a full file system is an error and no signal.
//!
//! # Exactly once
//!
//! A socket forgets bytes when they are read, and cannot take back what was sent. [`Log::receive`] and [`Log::send`]
//! make the system call with its message header inside the log: the kernel writes the count of bytes there before the
//! call returns, and a process can be killed before the call or after it, but not in between. So the log always tells
//! what the call under way at the death took or sent: see [`Log::settled`].

mod blocks;
mod directory;
mod dump;
mod error;
mod heading;
mod image;
mod layout;
mod log;
mod log_file;
mod mapping;
mod note;
mod positions;
mod record;
mod suspect;
mod tail;
mod transfer;

pub use directory::{Directory, Found, Plan};
pub use dump::dump;
pub use error::Error;
pub use heading::{BootId, Heading};
pub use image::{Image, ImageWriter};
pub use layout::{FORMAT, POSITIONS, RECORDS_AT};
pub use log::{Full, Log, Mark, Span};
pub use log_file::LogFile;
pub use note::{Note, Settled};
pub use positions::Position;
pub use record::{Record, Records, record_checksum, sent_count};
pub use suspect::{Execution, Suspect};
pub use tail::Tail;
pub use transfer::{Received, TransferError};
