//! The server's side of a domain's xenstore ring.
//!
//! The page holds a ring of bytes for requests and one for replies, each with two free-running indices, then words for
//! features, the connection's state and errors (`xen/io/xs_wire.h`). The guest may write anything anywhere at any time:
//! an index is read once and judged before it is used, and nothing that is read twice is taken to be the same.
//!
//! Not here: telling the other side. After bytes were taken or put, and after a reset, its event channel is to be
//! notified by the caller.

use std::sync::atomic::{Ordering::SeqCst, fence};

use crate::{id::Port, shared_page::SharedPage};

mod span;

pub use span::{IndexError, RING_SIZE, Spans, filled, readable, writable};

/// Offsets in the page, in bytes.
mod offset {
    pub(super) const REQUESTS: usize = 0;
    pub(super) const REPLIES: usize = 1024;
    pub(super) const REQUEST_CONSUMER: usize = 2048;
    pub(super) const REQUEST_PRODUCER: usize = 2052;
    pub(super) const REPLY_CONSUMER: usize = 2056;
    pub(super) const REPLY_PRODUCER: usize = 2060;
    pub(super) const FEATURES: usize = 2064;
    pub(super) const CONNECTION: usize = 2068;
    pub(super) const ERROR: usize = 2072;
    pub(super) const PORT: usize = 2076;
}

/// What the server tells the guest about the end of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RingFault {
    /// The server lost the ring or its event channel.
    Communication = 1,
    /// The indices of the ring cannot be.
    Index = 2,
    /// What came does not follow the protocol.
    Protocol = 3,
}

/// What the word for the connection's state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// In use.
    Connected,
    /// The guest, or who built it, wants a fresh start.
    ReconnectRequested,
}

/// The four indices at one look. They run through all of `u32` and wrap; none has been judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indices {
    /// Next request byte that the server takes.
    pub request_consumer: u32,
    /// Next request byte that the guest writes.
    pub request_producer: u32,
    /// Next reply byte that the guest takes.
    pub reply_consumer: u32,
    /// Next reply byte that the server writes.
    pub reply_producer: u32,
}

/// A domain's ring, from the server's side.
#[derive(Debug)]
pub struct Ring {
    page: SharedPage,
}

impl Ring {
    /// Serves the ring in `page`. Nothing in it changes.
    #[must_use]
    pub fn new(page: SharedPage) -> Self {
        Self { page }
    }

    /// Copies request bytes to `buffer`, as many as there are and fit, and leaves them in the ring. Returns how many.
    ///
    /// # Errors
    /// [`IndexError`] if the indices cannot be; nothing is copied then.
    pub fn peek(&self, buffer: &mut [u8]) -> Result<usize, IndexError> {
        self.copy_requests(buffer).map(|(_, copied)| copied)
    }

    /// As [`Ring::peek`]; tells from which index on, too.
    fn copy_requests(&self, buffer: &mut [u8]) -> Result<(u32, usize), IndexError> {
        let consumer = self.page.read_u32(offset::REQUEST_CONSUMER);
        let producer = self.page.read_u32(offset::REQUEST_PRODUCER);
        let spans = readable(producer, consumer, buffer.len())?;
        // The bytes are read after the index that says they are there.
        fence(SeqCst);
        let (first, rest) = buffer.split_at_mut(spans.first.len());
        self.page.copy_out(offset::REQUESTS + spans.first.start, first);
        self.page.copy_out(offset::REQUESTS + spans.second.start, &mut rest[..spans.second.len()]);
        Ok((consumer, spans.len()))
    }

    /// Takes `count` request bytes out of the ring: those that [`Ring::peek`] has just copied, or the first of them.
    /// From then on the guest may write over them.
    pub fn consume(&self, count: u32) {
        let consumer = self.page.read_u32(offset::REQUEST_CONSUMER);
        self.raise_request_consumer(consumer.wrapping_add(count));
    }

    /// Takes request bytes out of the ring up to the index `consumer`, as [`Ring::consume`] does by their number.
    pub fn raise_request_consumer(&self, consumer: u32) {
        // The room is given away after the bytes in it were read.
        fence(SeqCst);
        self.page.write_u32(offset::REQUEST_CONSUMER, consumer);
        fence(SeqCst);
    }

    /// Takes request bytes out of the ring into `buffer`, as many as there are and fit. Returns how many.
    ///
    /// # Errors
    /// [`IndexError`] if the indices cannot be; nothing is taken then.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, IndexError> {
        let (consumer, taken) = self.copy_requests(buffer)?;
        self.raise_request_consumer(consumer.wrapping_add(count(taken)));
        Ok(taken)
    }

    /// Puts reply bytes into the ring, as many as there is room for. Returns how many.
    ///
    /// # Errors
    /// [`IndexError`] if the indices cannot be; nothing is put then.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, IndexError> {
        let consumer = self.page.read_u32(offset::REPLY_CONSUMER);
        let producer = self.page.read_u32(offset::REPLY_PRODUCER);
        let spans = writable(producer, consumer, bytes.len())?;
        let put = spans.len();
        // The room is written to after the index that says it is free was read.
        fence(SeqCst);
        let (first, rest) = bytes.split_at(spans.first.len());
        self.page.copy_in(offset::REPLIES + spans.first.start, first);
        self.page.copy_in(offset::REPLIES + spans.second.start, &rest[..spans.second.len()]);
        // The bytes are there before the index that says so.
        fence(SeqCst);
        self.page.write_u32(offset::REPLY_PRODUCER, producer.wrapping_add(count(put)));
        fence(SeqCst);
        Ok(put)
    }

    /// Number of request bytes that wait to be taken.
    ///
    /// # Errors
    /// [`IndexError`] if the indices cannot be.
    pub fn waiting(&self) -> Result<u32, IndexError> {
        let consumer = self.page.read_u32(offset::REQUEST_CONSUMER);
        filled(self.page.read_u32(offset::REQUEST_PRODUCER), consumer)
    }

    /// Number of reply bytes that there is room for.
    ///
    /// # Errors
    /// [`IndexError`] if the indices cannot be.
    pub fn room(&self) -> Result<u32, IndexError> {
        let consumer = self.page.read_u32(offset::REPLY_CONSUMER);
        filled(self.page.read_u32(offset::REPLY_PRODUCER), consumer).map(|taken| RING_SIZE - taken)
    }

    /// Reads all indices, each once.
    #[must_use]
    pub fn indices(&self) -> Indices {
        Indices {
            request_consumer: self.page.read_u32(offset::REQUEST_CONSUMER),
            request_producer: self.page.read_u32(offset::REQUEST_PRODUCER),
            reply_consumer: self.page.read_u32(offset::REPLY_CONSUMER),
            reply_producer: self.page.read_u32(offset::REPLY_PRODUCER),
        }
    }

    /// Empties both directions: all four indices are 0.
    pub fn reset(&self) {
        fence(SeqCst);
        for index in
            [offset::REQUEST_CONSUMER, offset::REQUEST_PRODUCER, offset::REPLY_CONSUMER, offset::REPLY_PRODUCER]
        {
            self.page.write_u32(index, 0);
        }
        fence(SeqCst);
    }

    /// Tells the guest what the server can do, as bits (`XENSTORE_SERVER_FEATURE_*`). Bits may come at any time; none
    /// may go while the guest lives.
    pub fn set_features(&self, features: u32) {
        self.page.write_u32(offset::FEATURES, features);
    }

    /// What the guest was told that the server can do.
    #[must_use]
    pub fn features(&self) -> u32 {
        self.page.read_u32(offset::FEATURES)
    }

    /// Whether a fresh start is wanted. Any value of the word but 0 says so.
    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        if self.page.read_u32(offset::CONNECTION) == 0 {
            ConnectionState::Connected
        } else {
            ConnectionState::ReconnectRequested
        }
    }

    /// Says that the connection is in use. The fresh start must be made before: the guest goes on at once.
    pub fn set_connected(&self) {
        fence(SeqCst);
        self.page.write_u32(offset::CONNECTION, 0);
        fence(SeqCst);
    }

    /// Tells the guest why it is not served any more; `None` is good again.
    pub fn set_error(&self, fault: Option<RingFault>) {
        self.page.write_u32(offset::ERROR, fault.map_or(0, |fault| fault as u32));
    }

    /// The port that the hypervisor wrote there for a domain that was built without a toolstack.
    #[must_use]
    pub fn port(&self) -> Option<Port> {
        Some(self.page.read_u32(offset::PORT)).filter(|&port| port != 0).map(Port)
    }
}

/// A number of bytes that was held to the ring's size already.
fn count(bytes: usize) -> u32 {
    debug_assert!(bytes <= RING_SIZE as usize);
    u32::try_from(bytes).unwrap_or(RING_SIZE)
}

#[cfg(test)]
mod intruder_tests;
#[cfg(test)]
mod tests;
