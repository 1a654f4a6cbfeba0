//! A guest that speaks the wire protocol.

use crate::guest::Guest;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use xenstore_wire::{Decoder, Header, Op, put_message};

/// How long a reply or event may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A whole message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its fixed part.
    pub header: Header,
    /// What follows it.
    pub payload: Vec<u8>,
}

impl Message {
    /// The error's name, when this is an error reply.
    #[must_use]
    pub fn error(&self) -> Option<&[u8]> {
        (self.header.op == Op::Error.number()).then(|| self.payload.strip_suffix(b"\0").unwrap_or(&self.payload))
    }
}

/// A guest's end of its ring, as a stream of bytes each way.
pub trait RingEnd {
    /// Writes all of the request bytes, waiting for room.
    ///
    /// # Errors
    /// `TimedOut` when the daemon makes no room within `timeout`; others where the ring is of no use.
    fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()>;

    /// Reads the bytes that are there, waiting for at least one.
    ///
    /// # Errors
    /// `TimedOut` when nothing comes within `timeout`; others where the ring is of no use.
    fn receive(&mut self, out: &mut [u8], timeout: Duration) -> io::Result<usize>;
}

impl RingEnd for Guest {
    fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        Self::send(self, bytes, timeout)
    }

    fn receive(&mut self, out: &mut [u8], timeout: Duration) -> io::Result<usize> {
        Self::receive(self, out, timeout)
    }
}

/// Requests, replies and watch events over a guest's ring.
#[derive(Debug)]
pub struct GuestClient<R = Guest> {
    guest: R,
    decoder: Decoder,
    events: VecDeque<Message>,
    next_req_id: u32,
}

impl<R: RingEnd> GuestClient<R> {
    /// Speaks over this guest's ring, from its next byte on.
    #[must_use]
    pub fn new(guest: R) -> Self {
        Self { guest, decoder: Decoder::new(), events: VecDeque::new(), next_req_id: 1 }
    }

    /// The guest below.
    pub fn guest(&mut self) -> &mut R {
        &mut self.guest
    }

    /// Sends a request and gives its number, without waiting for the reply.
    ///
    /// # Errors
    /// Those of [`RingEnd::send`].
    pub fn send(&mut self, op: Op, tx_id: u32, payload: &[u8]) -> io::Result<u32> {
        let mut bytes = Vec::new();
        let req_id = self.next_req_id;
        self.next_req_id += 1;
        put_message(&mut bytes, op.number(), req_id, tx_id, payload);
        self.guest.send(&bytes, PATIENCE)?;
        Ok(req_id)
    }

    /// Sends a request and waits for its reply; events that come before it are kept.
    ///
    /// # Errors
    /// Those of [`RingEnd::send`] and [`RingEnd::receive`].
    pub fn request(&mut self, op: Op, tx_id: u32, payload: &[u8]) -> io::Result<Message> {
        self.send(op, tx_id, payload)?;
        self.reply()
    }

    /// The next reply; events that come before it are kept.
    ///
    /// # Errors
    /// Those of [`RingEnd::receive`].
    pub fn reply(&mut self) -> io::Result<Message> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.message(deadline)?;
            if message.header.op != Op::WatchEvent.number() {
                return Ok(message);
            }
            self.events.push_back(message);
        }
    }

    /// The next watch event within `timeout`, as path and token; `None` when there is none.
    ///
    /// # Errors
    /// Those of [`RingEnd::receive`], and `InvalidData` for a reply that nobody waits for.
    pub fn event(&mut self, timeout: Duration) -> io::Result<Option<(String, String)>> {
        let deadline = Instant::now() + timeout;
        let message = match self.events.pop_front() {
            Some(message) => message,
            None => match self.message(deadline) {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        if message.header.op != Op::WatchEvent.number() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{message:?} instead of an event")));
        }
        let mut parts = message.payload.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        Ok(Some((parts.next().unwrap_or_default(), parts.next().unwrap_or_default())))
    }

    fn message(&mut self, deadline: Instant) -> io::Result<Message> {
        let mut buffer = [0; 1024];
        loop {
            let next =
                self.decoder.next_message().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some(message) = next {
                return Ok(Message { header: message.header, payload: message.payload.to_vec() });
            }
            let len = self.guest.receive(&mut buffer, deadline.saturating_duration_since(Instant::now()))?;
            self.decoder.push(&buffer[..len]);
        }
    }
}
