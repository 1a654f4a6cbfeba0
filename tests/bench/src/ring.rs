//! A guest that asks over its ring. It looks for its answers again and again, as a guest with a processor of its own.

use std::time::{Duration, Instant};

use xen_sim::{Guest, RING_SIZE, Word};
use xenstore_wire::{Decoder, HEADER_SIZE, Op, put_message};

use crate::client::{Failure, Outcome};

/// How long any one answer may take before the work counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to look for an answer before sleeping for it, where there is a processor for that.
const SPIN: Duration = Duration::from_millis(200);

/// One guest.
#[derive(Debug)]
pub(crate) struct RingClient {
    guest: Guest,
    input: Decoder,
    output: Vec<u8>,
    events: usize,
    floor: bool,
    req_id: u32,
}

impl RingClient {
    /// Speaks as `guest`, which spins where it has a processor for that. With `floor`, the transaction id carries the
    /// size of the answer that is wanted, since an echo cannot know it.
    pub(crate) fn new(mut guest: Guest, spins: bool, floor: bool) -> Self {
        if spins {
            guest.set_spin(SPIN);
        }
        Self { guest, input: Decoder::new(), output: Vec::new(), events: 0, floor, req_id: 0 }
    }

    /// Sends a request. `size` is what the floor shall answer.
    pub(crate) fn send(&mut self, op: Op, body: &[u8], size: usize) -> Outcome<()> {
        self.req_id = self.req_id.wrapping_add(1);
        let tx_id = if self.floor { u32::try_from(size).unwrap_or(0) } else { 0 };
        self.output.clear();
        put_message(&mut self.output, op.number(), self.req_id, tx_id, body);
        let sent = self.guest.try_send(&self.output)?;
        if sent == self.output.len() { Ok(()) } else { Err(Failure::Unusable("a guest's ring is full".to_owned())) }
    }

    /// Sends the same request as often as there is room for it.
    pub(crate) fn fill(&mut self, op: Op, body: &[u8], size: usize) -> Outcome<()> {
        let taken = self.guest.word(Word::ReqProd).wrapping_sub(self.guest.word(Word::ReqCons)) as usize;
        let tx_id = if self.floor { u32::try_from(size).unwrap_or(0) } else { 0 };
        self.output.clear();
        for _ in 0..(RING_SIZE - taken) / (HEADER_SIZE + body.len()) {
            self.req_id = self.req_id.wrapping_add(1);
            put_message(&mut self.output, op.number(), self.req_id, tx_id, body);
        }
        if !self.output.is_empty() {
            self.guest.try_send(&self.output)?;
        }
        Ok(())
    }

    /// The same, after all that has come was thrown away.
    pub(crate) fn flood(&mut self, op: Op, body: &[u8], size: usize) -> Outcome<()> {
        self.guest.try_receive(&mut [0; RING_SIZE])?;
        self.fill(op, body, size)
    }

    /// Takes the answer to `op` if it is there, and counts the events in front of it.
    pub(crate) fn try_answer(&mut self, op: Op) -> Outcome<bool> {
        loop {
            while let Some(message) = self.input.next_message().map_err(|error| Failure::Unusable(error.to_string()))? {
                let header = message.header;
                if header.op == Op::WatchEvent.number() {
                    self.events += 1;
                } else if header.op == op.number() {
                    return Ok(true);
                } else {
                    let body = message.payload;
                    let name = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
                    return Err(Failure::Store { op: op.name(), name });
                }
            }
            if !self.receive()? {
                return Ok(false);
            }
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, op: Op, body: &[u8], size: usize) -> Outcome<()> {
        self.send(op, body, size)?;
        self.answer(op)
    }

    /// Waits for the answer to `op`.
    pub(crate) fn answer(&mut self, op: Op) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_answer(op)? {
            self.wait(deadline)?;
        }
        Ok(())
    }

    /// Whether `count` events have come since the last call that found as many; they are then forgotten.
    pub(crate) fn try_events(&mut self, count: usize) -> Outcome<bool> {
        while self.events < count {
            let message = self.input.next_message().map_err(|error| Failure::Unusable(error.to_string()))?;
            match message.map(|message| message.header.op) {
                Some(op) if op == Op::WatchEvent.number() => self.events += 1,
                Some(op) => {
                    return Err(Failure::Unusable(format!("a message of type {op} where events were due")));
                }
                None if !self.receive()? => return Ok(false),
                None => {}
            }
        }
        self.events -= count;
        Ok(true)
    }

    /// Waits for `count` events.
    pub(crate) fn take_events(&mut self, count: usize) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_events(count)? {
            self.wait(deadline)?;
        }
        Ok(())
    }

    /// Takes what is in the ring; false where nothing is.
    fn receive(&mut self) -> Outcome<bool> {
        let mut buffer = [0; RING_SIZE];
        let count = self.guest.try_receive(&mut buffer)?;
        self.input.push(&buffer[..count]);
        Ok(count > 0)
    }

    fn wait(&mut self, deadline: Instant) -> Outcome<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Unusable(format!("domain {} gets no answer", self.guest.domid())));
        }
        self.guest.wait(left);
        Ok(())
    }
}
