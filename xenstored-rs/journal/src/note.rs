//! The note: which call on a socket was under way, and what it moved.
//!
//! It stands in the log's header and is valid for one tail: that at which the call was made. Sealing the call's record
//! moves the tail on and makes the note old, in one store. A process that is killed between two instructions leaves
//! either no valid note and the call not made, or a valid one with the count that the kernel stored, or the record.

use core::sync::atomic::{
    Ordering::{Relaxed, Release},
    compiler_fence,
};
use std::path::Path;

use crate::{
    error::Error,
    layout::{
        MSG_LEN_AT, NOTE_CALL_AT, NOTE_CONN_AT, NOTE_KIND_AT, NOTE_MAX_AT, NOTE_PREFIX_AT, NOTE_TAIL_AT, NOTE_TIME_AT,
        first_half, padded,
    },
    log::{Log, Span},
    mapping::Call,
    record::HEADER,
};

/// What the call under way at a death moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Bytes were taken from a socket.
    Received {
        /// The connection.
        conn: u32,
        /// When.
        time: u64,
        /// Kind of the record that is to come of it.
        kind: u16,
        /// Bytes of the payload that stand before those received.
        prefix: usize,
        /// Bytes received.
        count: usize,
    },
    /// Bytes were put into a socket.
    Sent {
        /// The connection.
        conn: u32,
        /// When.
        time: u64,
        /// Kind of the record that is to come of it.
        kind: u16,
        /// Bytes sent.
        count: usize,
    },
}

/// The record that the call under way at a death has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Bytes that were taken from a socket.
    Received {
        /// The connection.
        conn: u32,
        /// The record's kind.
        kind: u16,
        /// Where the payload is, with what stands before the bytes received.
        span: Span,
        /// Bytes received.
        count: usize,
    },
    /// The count of bytes that were put into a socket.
    Sent {
        /// The connection.
        conn: u32,
        /// The record's kind.
        kind: u16,
        /// Bytes sent.
        count: usize,
    },
}

/// The record that is to come of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent {
    pub(crate) kind: u16,
    pub(crate) conn: u32,
    pub(crate) time: u64,
    pub(crate) prefix: usize,
    pub(crate) max: usize,
}

impl Log {
    /// Writes the note for the next call. It becomes valid when the call is made.
    pub(crate) fn write_note(&self, intent: Intent) {
        self.clear_note();
        let fields = [
            (NOTE_TAIL_AT, self.map.tail() as u64),
            (NOTE_KIND_AT, u64::from(intent.kind)),
            (NOTE_CONN_AT, u64::from(intent.conn)),
            (NOTE_TIME_AT, intent.time),
            (NOTE_PREFIX_AT, intent.prefix as u64),
            (NOTE_MAX_AT, intent.max as u64),
        ];
        for (at, value) in fields {
            self.map.atomic(at).store(value, Relaxed);
        }
    }

    /// Makes the note invalid, before whatever comes next.
    pub(crate) fn clear_note(&self) {
        self.map.atomic(NOTE_CALL_AT).store(0, Release);
        // Nothing of what follows may come before it. Only this thread's own order counts: a killed process has done
        // all it did before, and nothing after.
        compiler_fence(Release);
    }
}

impl Note {
    /// Reads the note of a header whose tail is `tail`, with blocks up to `reserved`. `None` if it is not valid, or
    /// nothing was moved.
    pub(crate) fn decode(
        path: &Path,
        number: impl Fn(usize) -> u64,
        tail: usize,
        reserved: usize,
    ) -> Result<Option<Self>, Error> {
        let damaged = |at, what| Error::damaged(path, at, what);
        let call = match number(NOTE_CALL_AT) {
            0 => return Ok(None),
            other => Call::from_number(other).ok_or_else(|| damaged(NOTE_CALL_AT, "a note of an unknown call"))?,
        };
        if number(NOTE_TAIL_AT) != tail as u64 {
            return Ok(None);
        }
        let size = |at| usize::try_from(number(at)).unwrap_or(usize::MAX);
        let (prefix, max) = (size(NOTE_PREFIX_AT), size(NOTE_MAX_AT));
        let count = first_half(number(MSG_LEN_AT)) as usize;
        let kind = u16::try_from(number(NOTE_KIND_AT)).map_err(|_| damaged(NOTE_KIND_AT, "a note's kind"))?;
        let conn = u32::try_from(number(NOTE_CONN_AT)).map_err(|_| damaged(NOTE_CONN_AT, "a note's connection"))?;
        let time = number(NOTE_TIME_AT);
        if count > max {
            return Err(damaged(MSG_LEN_AT, "a note of more bytes than were asked for"));
        }
        if count == 0 {
            return Ok(None);
        }
        let len = match call {
            Call::Receive => prefix.checked_add(count),
            Call::Send => Some(8),
        };
        if len.is_none_or(|len| len > reserved || tail + HEADER + padded(len) > reserved) {
            return Err(damaged(NOTE_PREFIX_AT, "a note of more bytes than there is room for"));
        }
        Ok(Some(match call {
            Call::Receive => Self::Received { conn, time, kind, prefix, count },
            Call::Send => Self::Sent { conn, time, kind, count },
        }))
    }
}
