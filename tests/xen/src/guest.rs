//! A domain's kernel, as far as its store ring goes.

use crate::hypervisor::Access;
use crate::line::Line;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xen_sim::{RING_SIZE, RingEnd, Word};

/// A domain's ring page.
#[derive(Clone, Debug)]
pub struct Page {
    access: Arc<Access>,
    serial: u64,
}

impl Page {
    /// Copies bytes out of the page.
    ///
    /// # Panics
    /// If they do not lie inside the page.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let (serial, len) = (self.serial, out.len());
        let bytes = self.access.run(move |hypervisor| {
            let mut bytes = vec![0; len];
            hypervisor.peek(serial, offset, &mut bytes);
            bytes
        });
        out.copy_from_slice(&bytes);
    }

    /// Copies bytes into the page. Nothing happens where the domain is gone.
    ///
    /// # Panics
    /// If they do not fit inside the page.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let (serial, bytes) = (self.serial, bytes.to_vec());
        self.access.run(move |hypervisor| {
            if let Some(live) = hypervisor.domain(serial) {
                live.ring.copy_in(offset, &bytes);
            }
        });
    }
}

/// A domain's kernel. It stays with the domain that it was taken of: when that is gone, its page is what it left.
#[derive(Debug)]
pub struct Guest {
    access: Arc<Access>,
    serial: u64,
    domid: u16,
    line: Arc<Line>,
    page: Page,
    /// The number of events when we last looked.
    seen: u32,
}

impl Guest {
    pub(crate) fn new(access: &Arc<Access>, domid: u16) -> io::Result<Self> {
        let no_domain = || io::Error::new(io::ErrorKind::NotFound, format!("there is no domain {domid}"));
        let serial = access.run(move |hypervisor| hypervisor.serial_of(domid)).ok_or_else(no_domain)?;
        let line = access.line(serial).ok_or_else(no_domain)?;
        let seen = line.events();
        let page = Page { access: Arc::clone(access), serial };
        Ok(Self { access: Arc::clone(access), serial, domid, line, page, seen })
    }

    /// Its domain's id.
    #[must_use]
    pub fn domid(&self) -> u16 {
        self.domid
    }

    /// Its ring page, to read and write anything there.
    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Whether its domain is still the one that it was taken of.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.line.is_open()
    }

    /// A word of its page.
    #[must_use]
    pub fn word(&self, word: Word) -> u32 {
        let mut bytes = [0; 4];
        self.page.copy_out(word.offset(), &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// Replaces a word of its page.
    pub fn set_word(&self, word: Word, value: u32) {
        let (serial, offset) = (self.serial, word.offset());
        self.access.run(move |hypervisor| {
            if let Some(live) = hypervisor.domain(serial) {
                live.ring.write_u32(offset, value);
            }
        });
    }

    /// Has the kernel do something, and waits for its answer.
    fn ask(&self, letter: u8, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.line.ask(letter, || self.tell(letter, payload))
    }

    fn tell(&self, letter: u8, payload: &[u8]) {
        let (serial, payload) = (self.serial, payload.to_vec());
        self.access.run(move |hypervisor| {
            if let Some(live) = hypervisor.domain(serial) {
                live.tell(letter, &payload);
            }
        });
    }

    // ---- events ----

    /// Sends an event to the daemon.
    ///
    /// # Panics
    /// When the kernel does not answer.
    pub fn notify(&self) {
        self.ask(b'n', &[]).expect("the kernel sends an event");
    }

    /// Whether a daemon has bound the port.
    ///
    /// # Panics
    /// When the hypervisor does not tell.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        let serial = self.serial;
        let bound = self.access.run(move |hypervisor| {
            let Some(live) = hypervisor.domain(serial) else { return Ok(false) };
            let (domid, port) = (live.domid, live.store_port);
            hypervisor.control.is_bound(domid, port)
        });
        bound.expect("the hypervisor tells the state of a port")
    }

    /// Does nothing: how a real kernel waits is its own affair.
    pub fn set_spin(&mut self, _spin: Duration) {}

    /// Waits for an event since the last wait; says whether there was one within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let events = self.line.await_event(self.seen, timeout);
        let came = events != self.seen;
        self.seen = events;
        came
    }

    /// Shuts the domain down from the inside.
    pub(crate) fn shut_down(&self, reason: u32) {
        self.tell(b'x', &[reason.to_le_bytes()[0]]);
    }

    /// Lets the kernel fail.
    pub fn crash(&self) {
        self.tell(b'c', &[]);
    }

    /// Has the kernel take a new port in place of the store's.
    pub(crate) fn renew_port(&self) -> io::Result<u32> {
        let answer = self.ask(b'p', &[])?;
        let port = number(&answer).filter(|&port| port != 0).ok_or_else(|| io::Error::other("no new port"))?;
        let serial = self.serial;
        self.access.run(move |hypervisor| {
            if let Some(live) = hypervisor.domain(serial) {
                live.store_port = port;
            }
        });
        Ok(port)
    }

    // ---- bytes ----

    /// Has the kernel write as many request bytes as there is room for, and send an event if it wrote any; gives how
    /// many.
    ///
    /// # Errors
    /// `InvalidData` when the indices are further apart than the ring is long, `NotFound` when the domain is gone.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let answer = self.ask(b's', &bytes[..bytes.len().min(RING_SIZE)])?;
        match number(&answer) {
            Some(u32::MAX) | None => Err(broken("requests")),
            Some(count) => Ok(count as usize),
        }
    }

    /// Has the kernel read as many bytes of replies and events as are there and fit; gives how many.
    ///
    /// # Errors
    /// As [`Self::try_send`].
    pub fn try_receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = u16::try_from(out.len().min(RING_SIZE)).expect("a ring is smaller");
        match self.ask(b'r', &most.to_le_bytes())?.as_slice() {
            [0, bytes @ ..] => {
                out[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            }
            _ => Err(broken("replies")),
        }
    }

    /// Writes all of the request bytes, waiting for room.
    ///
    /// # Errors
    /// As [`Self::try_send`]; `TimedOut` when the daemon makes no room within `timeout`.
    pub fn send(&mut self, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !bytes.is_empty() {
            let written = self.try_send(bytes)?;
            bytes = &bytes[written..];
            if written == 0 {
                self.await_until(deadline, "room for a request")?;
            }
        }
        Ok(())
    }

    /// Reads the bytes that are there, waiting for at least one.
    ///
    /// # Errors
    /// As [`Self::try_receive`]; `TimedOut` when nothing comes within `timeout`.
    pub fn receive(&mut self, out: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.try_receive(out)? {
                0 if !out.is_empty() => self.await_until(deadline, "a reply")?,
                len => return Ok(len),
            }
        }
    }

    fn await_until(&mut self, deadline: Instant, what: &str) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("domain {}: no {what} in time", self.domid)));
        }
        self.wait(left);
        Ok(())
    }
}

impl RingEnd for Guest {
    fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        Self::send(self, bytes, timeout)
    }

    fn receive(&mut self, out: &mut [u8], timeout: Duration) -> io::Result<usize> {
        Self::receive(self, out, timeout)
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
}

fn broken(which: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("indices of {which} are further apart than the ring is long"))
}
