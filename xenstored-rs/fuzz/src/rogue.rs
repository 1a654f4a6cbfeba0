//! A guest that does what it likes to its ring page, and what the daemon may then do to that page.

use std::collections::VecDeque;
use std::ops::Range;

use xen_sim::{Guest, RING_SIZE, Word};
use xenstore_wire::{Decoder, Header, Op, PAYLOAD_MAX, XsError};

use crate::simulation::host;

const PAGE_SIZE: usize = 4096;

/// Where replies stand.
const REPLIES: Range<usize> = RING_SIZE..2 * RING_SIZE;

/// Most bytes that a guest wants to send and has no room for.
const MOST_WAITING: usize = 64 << 10;

/// Rounds of reading all that is there after which nothing is left, however much waited.
const MOST_ROUNDS: usize = 1000;

/// What a guest that has kept to the protocol so far expects.
#[derive(Debug, Default)]
struct Expected {
    /// Requests without a reply.
    asked: VecDeque<Header>,
    got: Decoder,
}

/// A guest, and its page as it left it.
#[derive(Debug)]
pub(crate) struct Rogue {
    domid: u16,
    guest: Guest,
    /// The page: what the guest wrote, and what of the daemon's was seen there.
    known: Box<[u8; PAGE_SIZE]>,
    /// Request bytes that wait for room.
    waiting: VecDeque<u8>,
    /// None once it did something that a kernel does not do.
    expected: Option<Expected>,
    /// The daemon has told it that it is served no more.
    pub(crate) set_aside: bool,
}

impl Rogue {
    /// The kernel of a domain that is there, with a page of zeroes.
    pub(crate) fn new(domid: u16) -> Self {
        let guest = host().guest(domid).expect("the domain exists");
        guest.page().copy_in(0, &[0; PAGE_SIZE]);
        Self {
            domid,
            guest,
            known: Box::new([0; PAGE_SIZE]),
            waiting: VecDeque::new(),
            expected: Some(Expected::default()),
            set_aside: false,
        }
    }

    pub(crate) fn domid(&self) -> u16 {
        self.domid
    }

    pub(crate) fn gfn(&self) -> u64 {
        self.guest.gfn()
    }

    pub(crate) fn word(&self, word: Word) -> u32 {
        self.guest.word(word)
    }

    pub(crate) fn signal(&self) {
        self.guest.notify();
    }

    /// From now on it may find anything in its page: it is introduced anew, or was released.
    pub(crate) fn starts_over(&mut self) {
        self.expected = None;
        self.set_aside = false;
    }

    /// Takes its domain's present port, after it was renewed.
    pub(crate) fn take_port(&mut self) {
        self.guest = host().guest(self.domid).expect("the domain exists");
    }

    /// Writes to its page what a kernel would not.
    pub(crate) fn scribble(&mut self, at: usize, bytes: &[u8]) {
        let at = at % PAGE_SIZE;
        let bytes = &bytes[..bytes.len().min(PAGE_SIZE - at)];
        self.expected = None;
        self.put(at, bytes);
    }

    /// Sets a word of its page to what a kernel would not.
    pub(crate) fn set_word(&mut self, word: Word, value: u32) {
        self.expected = None;
        self.put_word(word, value);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.known[at..at + bytes.len()].copy_from_slice(bytes);
        self.guest.page().copy_in(at, bytes);
    }

    fn put_word(&mut self, word: Word, value: u32) {
        self.known[range_of(word)].copy_from_slice(&value.to_ne_bytes());
        self.guest.set_word(word, value);
    }

    /// Asks for something; a kernel that has not misbehaved so far gets an answer.
    pub(crate) fn ask(&mut self, header: Header, payload: &[u8]) {
        if self.waiting.len() > MOST_WAITING {
            return;
        }
        if let Some(expected) = &mut self.expected {
            expected.asked.push_back(header);
        }
        self.waiting.extend(header.encode());
        self.waiting.extend(payload);
        self.push();
    }

    /// Puts any bytes where requests go.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.expected = None;
        self.waiting.extend(bytes.iter().take(MOST_WAITING.saturating_sub(self.waiting.len())));
        self.push();
    }

    /// Puts as many request bytes into the ring as there is room for.
    pub(crate) fn push(&mut self) {
        let producer = self.word(Word::ReqProd);
        let used = producer.wrapping_sub(self.word(Word::ReqCons)) as usize;
        let len = self.waiting.len().min(RING_SIZE.saturating_sub(used));
        for step in 0..len {
            let byte = self.waiting.pop_front().expect("there are so many");
            self.put((producer as usize + step) % RING_SIZE, &[byte]);
        }
        if len > 0 {
            self.put_word(Word::ReqProd, producer.wrapping_add(u32::try_from(len).expect("at most a ring")));
        }
    }

    /// Takes as many reply bytes as there are, up to `most`, and checks them where it may expect something.
    pub(crate) fn take(&mut self, most: usize) {
        let consumer = self.word(Word::RspCons);
        let there = self.word(Word::RspProd).wrapping_sub(consumer) as usize;
        let len = most.min(there).min(RING_SIZE);
        let mut ring = [0; RING_SIZE];
        self.guest.page().copy_out(REPLIES.start, &mut ring);
        let bytes: Vec<u8> = (0..len).map(|step| ring[(consumer as usize + step) % RING_SIZE]).collect();
        if len > 0 {
            self.put_word(Word::RspCons, consumer.wrapping_add(u32::try_from(len).expect("at most a ring")));
        }
        if let Some(expected) = &mut self.expected {
            assert!(there <= RING_SIZE, "the daemon wrote {there} bytes into a ring of {RING_SIZE}");
            expected.check(&bytes);
        }
        if there == RING_SIZE {
            self.signal();
        }
    }

    /// Reads all that comes, as long as it may expect something, and checks that every request has its reply.
    pub(crate) fn finish(&mut self, mut turns: impl FnMut()) {
        if self.expected.is_none() {
            return;
        }
        // It may have forgotten to signal what is in the ring.
        self.signal();
        turns();
        for _ in 0..MOST_ROUNDS {
            if self.waiting.is_empty() && self.word(Word::RspProd) == self.word(Word::RspCons) {
                break;
            }
            self.take(RING_SIZE);
            self.push();
            self.signal();
            turns();
        }
        if let Some(expected) = &self.expected {
            assert_eq!(expected.got.pending(), 0, "domain {} got part of a message", self.domid);
            assert!(expected.asked.is_empty(), "domain {} has no reply to {:?}", self.domid, expected.asked);
        }
    }

    /// Checks what the daemon did to the page since this was last called: a ring that is set aside is left alone, and
    /// any other changes only where the daemon has something to say.
    pub(crate) fn check_page(&mut self) {
        let mut now = [0; PAGE_SIZE];
        self.guest.page().copy_out(0, &mut now);
        let same = |range: Range<usize>| assert_eq!(now[range.clone()], self.known[range], "domain {}", self.domid);
        same(0..REPLIES.start);
        same(range_of(Word::EvtchnPort).start..PAGE_SIZE);
        if self.set_aside {
            same(0..PAGE_SIZE);
            return;
        }
        for word in [Word::ReqProd, Word::RspCons, Word::Connection] {
            // A fresh start sets them to 0.
            if now[range_of(word)] != [0; 4] {
                same(range_of(word));
            }
        }
        let error = self.word(Word::Error);
        if now[range_of(Word::Error)] != self.known[range_of(Word::Error)] {
            assert!((1..=3).contains(&error), "there is no error {error}");
            self.set_aside = true;
            self.expected = None;
        }
        *self.known = now;
    }
}

impl Expected {
    /// Whole messages, each the reply to the oldest request or an event.
    fn check(&mut self, bytes: &[u8]) {
        self.got.push(bytes);
        while let Some(message) = self.got.next_message().expect("the daemon keeps to the limits of messages") {
            let (header, payload) = (message.header, message.payload);
            assert!(payload.len() <= PAYLOAD_MAX);
            if header.op == Op::WatchEvent.number() {
                assert_eq!((header.req_id, header.tx_id), (0, 0), "an event has no ids");
                continue;
            }
            let asked = self.asked.pop_front().expect("a reply has a request");
            assert_eq!((header.req_id, header.tx_id), (asked.req_id, asked.tx_id), "a reply has its request's ids");
            if header.op == Op::Error.number() {
                let name = payload.strip_suffix(b"\0").expect("an error's name has a NUL");
                assert!(XsError::from_name(name).is_some(), "{name:?} is no error of the protocol");
            } else {
                assert_eq!(header.op, asked.op, "a reply has its request's type");
            }
        }
    }
}

fn range_of(word: Word) -> Range<usize> {
    word.offset()..word.offset() + 4
}
