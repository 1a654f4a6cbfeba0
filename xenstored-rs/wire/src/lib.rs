#![forbid(unsafe_code)]
//! The xenstore wire protocol, shared by the daemon and by clients.
//!
//! A message is a 16-byte [`Header`] and up to [`PAYLOAD_MAX`] bytes of payload, the same on a socket, on
//! `/dev/xen/xenbus` and on a guest's ring (protocol document `docs/misc/xenstore.txt`; numbers of
//! `public/io/xs_wire.h`). This crate knows what a message looks like, not what it means: paths, permissions and
//! the store itself live in `xenstore-core`.
//!
//! - [`Op`]: the message types and their names
//! - [`XsError`]: the error names that may cross the wire
//! - [`split_message`] and [`Decoder`]: bytes to messages, in any split
//! - [`put_message`] and friends: messages to bytes
//! - [`payload`]: the strings and numbers inside a payload

mod decoder;
mod encoder;
mod error;
mod header;
mod op;
pub mod payload;

pub use decoder::{Decoder, Message, TooLong, split_message};
pub use encoder::{put_error, put_event, put_message, put_ok, put_with};
pub use error::XsError;
pub use header::{HEADER_SIZE, Header};
pub use op::Op;

/// Most bytes that a payload may have, in either direction (`XENSTORE_PAYLOAD_MAX`).
pub const PAYLOAD_MAX: usize = 4096;

/// Most bytes of a relative path, counted after `/local/domain/<domid>/` (`XENSTORE_REL_PATH_MAX`).
pub const REL_PATH_MAX: usize = 2048;

/// Most bytes of an absolute path that the protocol header names (`XENSTORE_ABS_PATH_MAX`).
pub const ABS_PATH_MAX: usize = 3072;

/// Payload of a successful reply that carries no data: `OK` and a NUL.
pub const OK: &[u8] = b"OK\0";
