//! The bytes that were received, until they are messages.

use crate::error::Cause;
use crate::transport::Transport;
use std::time::Instant;
use xenstore_wire::{HEADER_SIZE, Message, PAYLOAD_MAX, split_message};

/// Bytes of room: a handful of messages of the greatest length, or some hundreds of events.
const ROOM: usize = 8 * (HEADER_SIZE + PAYLOAD_MAX);

/// Received bytes in the order they came. Whoever holds it is the one who receives.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Which connection of the link the bytes are from.
    pub(crate) epoch: u32,
    /// Empty until the first use: an idle connection keeps no buffer.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last receiving filled all the room there was, so that more may be there.
    pub(crate) filled_up: bool,
}

impl Inbox {
    /// No bytes yet of connection number `epoch`.
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch, buffer: Vec::new(), start: 0, end: 0, filled_up: false }
    }

    /// Receives once, waiting until `until` for the first byte. `false` when that has passed.
    ///
    /// # Errors
    /// Why the connection is at its end.
    pub(crate) fn fill(&mut self, transport: &dyn Transport, until: Option<Instant>) -> Result<bool, Cause> {
        if self.buffer.is_empty() {
            // Fresh from the system where possible: what is never used is then never there.
            self.buffer = vec![0; ROOM];
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        match transport.receive(&mut self.buffer[self.end..], until) {
            Ok(0) => Err(Cause::Ended),
            Ok(count) => {
                self.end += count;
                self.filled_up = self.end == self.buffer.len();
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the first whole message.
    ///
    /// # Errors
    /// [`Cause::TooLong`] for a header that announces too much.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message<'_>>, Cause> {
        let pending = &self.buffer[self.start..self.end];
        let Some((message, rest)) = split_message(pending).map_err(|_| Cause::TooLong)? else { return Ok(None) };
        self.start = self.end - rest.len();
        if rest.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        Ok(Some(message))
    }
}
