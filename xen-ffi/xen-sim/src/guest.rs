//! A domain's kernel: ring and events.

use crate::domains::no_domain;
use crate::host::Inner;
use crate::ring::{REQUESTS, RESPONSES, RING_SIZE, Word, pieces};
use std::hint;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xen_sim_switchboard::{Channel, Page, slot_offset};

/// A domain's kernel, as far as its store ring goes. It stays with the domain that it was taken of: when that is
/// gone, its events are lost, and its page is read by nobody.
#[derive(Debug)]
pub struct Guest {
    inner: Arc<Inner>,
    domid: u16,
    unique_id: u64,
    gfn: u64,
    slot: u32,
    port: u32,
    channel: u32,
    /// The number of events when we last looked.
    seen: u32,
    spin: Duration,
}

impl Guest {
    pub(crate) fn new(inner: &Arc<Inner>, domid: u16) -> io::Result<Self> {
        let view = inner.switchboard().existing(domid).ok_or_else(|| no_domain(domid))?;
        let (port, channel) = view.ports[0];
        Ok(Self {
            inner: Arc::clone(inner),
            domid,
            unique_id: view.unique_id,
            gfn: view.gfn,
            slot: view.slot,
            port,
            channel,
            seen: inner.switchboard().channel(channel).events(),
            spin: Duration::ZERO,
        })
    }

    /// Its domain's id.
    #[must_use]
    pub fn domid(&self) -> u16 {
        self.domid
    }

    /// Its store port.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Frame number of its ring page.
    #[must_use]
    pub fn gfn(&self) -> u64 {
        self.gfn
    }

    /// Its ring page, to read and write anything there.
    ///
    /// # Panics
    /// Never: a guest has a page.
    #[must_use]
    pub fn page(&self) -> &Page {
        self.inner.memory.page(self.slot).expect("the broker maps all pages")
    }

    /// Where its ring page stands in the host's memory file, in bytes: how a daemon's mapping of it is known.
    #[must_use]
    pub fn page_offset(&self) -> usize {
        slot_offset(self.slot)
    }

    /// Whether its domain is still the one that it was taken of.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.inner.switchboard().existing(self.domid).is_some_and(|view| view.unique_id == self.unique_id)
    }

    /// A word of its page.
    #[must_use]
    pub fn word(&self, word: Word) -> u32 {
        self.page().word(word.offset())
    }

    /// Replaces a word of its page.
    pub fn set_word(&self, word: Word, value: u32) {
        self.page().set_word(word.offset(), value);
    }

    // ---- events ----

    fn channel(&self) -> &Channel {
        self.inner.switchboard().channel(self.channel)
    }

    /// Sends an event to the daemon; it is lost when the port is not bound.
    pub fn notify(&self) {
        self.inner.deliver(self.inner.switchboard().send(self.channel));
    }

    /// Whether a daemon has bound the port.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.channel().peer().is_some()
    }

    /// From now on looks again and again for this long before it sleeps, as a guest with its own processor.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// Waits for an event since the last wait; says whether there was one within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let start = Instant::now();
        while self.channel().events() == self.seen && start.elapsed() < self.spin.min(timeout) {
            hint::spin_loop();
        }
        let events = self.channel().wait(self.seen, timeout.saturating_sub(start.elapsed()));
        let came = events != self.seen;
        self.seen = events;
        came
    }

    /// Wakes whoever waits for an event of this guest, without one having been sent.
    pub(crate) fn wake_waiters(&self) {
        self.channel().arrive();
    }

    // ---- bytes ----

    /// Writes as many request bytes as there is room for and sends an event if it wrote any; gives how many.
    ///
    /// # Errors
    /// `InvalidData` when the indices are further apart than the ring is long.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let prod = self.word(Word::ReqProd);
        let used = distance(prod, self.word(Word::ReqCons), "requests")?;
        let len = bytes.len().min(RING_SIZE - used);
        if len == 0 {
            return Ok(0);
        }
        let [(start, first), (again, rest)] = pieces(prod, len);
        self.page().copy_in(REQUESTS + start, &bytes[..first]);
        self.page().copy_in(REQUESTS + again, &bytes[first..first + rest]);
        self.set_word(Word::ReqProd, prod.wrapping_add(u32::try_from(len).expect("at most a ring")));
        self.notify();
        Ok(len)
    }

    /// Reads as many bytes of replies and events as are there and fit; gives how many. Sends an event if the ring was
    /// full, as Linux does.
    ///
    /// # Errors
    /// As [`Self::try_send`].
    pub fn try_receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let cons = self.word(Word::RspCons);
        let there = distance(self.word(Word::RspProd), cons, "replies")?;
        let len = there.min(out.len());
        if len == 0 {
            return Ok(0);
        }
        let [(start, first), (again, rest)] = pieces(cons, len);
        self.page().copy_out(RESPONSES + start, &mut out[..first]);
        self.page().copy_out(RESPONSES + again, &mut out[first..first + rest]);
        self.set_word(Word::RspCons, cons.wrapping_add(u32::try_from(len).expect("at most a ring")));
        // Asked after the bytes were given back: a daemon that filled the ring meanwhile waits for them too.
        if self.word(Word::RspProd).wrapping_sub(cons) as usize >= RING_SIZE {
            self.notify();
        }
        Ok(len)
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

fn distance(prod: u32, cons: u32, which: &str) -> io::Result<usize> {
    let distance = prod.wrapping_sub(cons) as usize;
    if distance > RING_SIZE {
        let message = format!("indices of {which} are {distance} bytes apart");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(distance)
}
