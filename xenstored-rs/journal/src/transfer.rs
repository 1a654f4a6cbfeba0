//! Moving bytes through a socket, exactly once whatever happens.

use std::{io, os::fd::BorrowedFd};

use crate::{
    log::{Full, Log, Span},
    note::Intent,
    record::HEADER,
};

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The log has no room for the record. The socket was not touched.
    #[error(transparent)]
    Full(#[from] Full),
    /// The socket's error; `WouldBlock` if it has no bytes, or takes none, at present.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// What receiving came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes came, and are sealed in a record.
    Bytes {
        /// The record's payload: the prefix, then the bytes.
        span: Span,
        /// How many bytes came.
        count: usize,
    },
    /// The other end sends no more. There is no record of that.
    End,
}

impl Log {
    /// Receives up to `max` bytes from a socket and seals a record of them, whose payload is `prefix` and the bytes.
    /// Does not wait. Descriptors that are sent along are closed by the kernel.
    ///
    /// # Errors
    /// If there is no room for `max` bytes, or the socket gives none. No record was made then.
    pub fn receive(
        &self,
        socket: BorrowedFd<'_>,
        kind: u16,
        conn: u32,
        time: u64,
        prefix: &[u8],
        max: usize,
    ) -> Result<Received, TransferError> {
        self.make_room(prefix.len().saturating_add(max))?;
        let start = self.map.tail() + HEADER;
        self.map.write(start, prefix);
        self.write_note(Intent { kind, conn, time, prefix: prefix.len(), max });
        let place = start + prefix.len()..start + prefix.len() + max;
        let count = self.map.receive(socket, &place)?;
        if count == 0 {
            return Ok(Received::End);
        }
        Ok(Received::Bytes { span: self.seal(kind, conn, time, prefix.len() + count), count })
    }

    /// Sends what a socket takes of `bytes`, and seals a record of how many it was; see
    /// [`sent_count`](crate::sent_count). Does not wait, and makes no signal.
    ///
    /// # Errors
    /// If there is no room for the record, or the socket takes nothing. No record was made then.
    pub fn send(
        &self,
        socket: BorrowedFd<'_>,
        kind: u16,
        conn: u32,
        time: u64,
        bytes: &[u8],
    ) -> Result<usize, TransferError> {
        self.make_room(size_of::<u64>())?;
        self.write_note(Intent { kind, conn, time, prefix: 0, max: bytes.len() });
        let count = self.map.send(socket, bytes)?;
        if count > 0 {
            self.append(kind, conn, time, &[&(count as u64).to_le_bytes()])?;
        }
        Ok(count)
    }
}
