//! An engine that was asked for all sorts of things, and bytes that were written of it, changed.

use arbitrary::Arbitrary;
use xenstore_core::{Config, DomId, Existence};

use crate::{Driver, Request};

/// Requests that are made at most.
const REQUESTS: usize = 60;

/// A request of one of two clients and two guests, the second client being deaf.
#[derive(Arbitrary, Debug)]
pub struct Ask {
    who: u8,
    in_transaction: bool,
    wait: bool,
    request: Request,
}

impl Ask {
    /// The engine that was asked all that.
    ///
    /// # Panics
    /// If it does not let the first clients in.
    #[must_use]
    pub fn all(asks: Vec<Self>) -> Driver {
        let mut driver = Driver::new(Config { existence: Existence::Asked, ..Config::default() });
        let clients = [driver.open(), driver.open()].map(|conn| conn.expect("the first are let in"));
        let rings = [1, 2].map(|domid| driver.introduce(DomId(domid)));
        driver.set_deaf(clients[1], true);
        for (number, ask) in (1..).zip(asks.into_iter().take(REQUESTS)) {
            let who = [clients[0], clients[1], rings[0], rings[1]][usize::from(ask.who % 4)];
            let (op, payload) = ask.request.message();
            driver.send_request(who, op, number, ask.in_transaction, &payload);
            if ask.wait {
                driver.settle();
            }
        }
        driver
    }
}

/// What is done to bytes that were written.
#[derive(Arbitrary, Debug)]
pub enum Change {
    /// A byte is another.
    Set(u16, u8),
    /// Bits of a byte are others.
    Flip(u16, u8),
    /// A number of four bytes is another.
    Word(u16, u32),
    /// A number that asks for much, as images have it.
    Huge(u16, u8),
    /// Bytes more.
    Insert(u16, Vec<u8>),
    /// Bytes less.
    Remove(u16, u8),
    /// A piece of it once more somewhere else.
    Repeat(u16, u16, u8),
    /// Nothing from there on.
    Cut(u16),
}

impl Change {
    /// Changes bytes.
    pub fn apply(self, bytes: &mut Vec<u8>) {
        let place = |at: u16| usize::from(at) % (bytes.len() + 1);
        let up_to = |at: usize, count: usize| bytes.len().min(at + count);
        match self {
            Self::Set(at, byte) => bytes.iter_mut().skip(usize::from(at)).take(1).for_each(|old| *old = byte),
            Self::Flip(at, bits) => bytes.iter_mut().skip(usize::from(at)).take(1).for_each(|old| *old ^= bits),
            Self::Word(at, word) => {
                let at = place(at) & !3;
                let end = up_to(at, 4);
                bytes.splice(at..end, word.to_ne_bytes());
            }
            Self::Huge(at, bits) => {
                let at = place(at);
                let end = up_to(at, 1);
                bytes.splice(at..end, [0xff, 0xff, 0xff, 0x80 | bits, 0x0f]);
            }
            Self::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new);
            }
            Self::Remove(at, count) => {
                let at = place(at);
                let end = up_to(at, usize::from(count));
                bytes.drain(at..end);
            }
            Self::Repeat(from, to, count) => {
                let (from, to) = (place(from), place(to));
                let piece = bytes[from..up_to(from, usize::from(count))].to_vec();
                bytes.splice(to..to, piece);
            }
            Self::Cut(at) => bytes.truncate(usize::from(at)),
        }
    }
}
