//! Clean under Miri, with the shared page's and the other unit tests, by
//! `MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-disable-weak-memory-emulation" cargo +nightly miri test -p xen-ffi --lib`:
//! its emulation of weak memory does not know accesses of different sizes to the same bytes.

use core::{mem::offset_of, ptr::NonNull};
use std::{sync::Arc, thread};

use rstest::rstest;

use super::*;

/// The guest's side, by the same page.
struct Guest(SharedPage);

impl Guest {
    fn write(&self, bytes: &[u8]) -> usize {
        let consumer = self.0.read_u32(offset::REQUEST_CONSUMER);
        let producer = self.0.read_u32(offset::REQUEST_PRODUCER);
        fence(SeqCst);
        let spans = writable(producer, consumer, bytes.len()).unwrap();
        let (first, rest) = bytes.split_at(spans.first.len());
        self.0.copy_in(offset::REQUESTS + spans.first.start, first);
        self.0.copy_in(offset::REQUESTS + spans.second.start, &rest[..spans.second.len()]);
        fence(SeqCst);
        self.0.write_u32(offset::REQUEST_PRODUCER, producer.wrapping_add(count(spans.len())));
        spans.len()
    }

    fn read(&self, limit: usize) -> Vec<u8> {
        let consumer = self.0.read_u32(offset::REPLY_CONSUMER);
        let producer = self.0.read_u32(offset::REPLY_PRODUCER);
        fence(SeqCst);
        let spans = readable(producer, consumer, limit).unwrap();
        let mut bytes = vec![0; spans.len()];
        let (first, second) = bytes.split_at_mut(spans.first.len());
        self.0.copy_out(offset::REPLIES + spans.first.start, first);
        self.0.copy_out(offset::REPLIES + spans.second.start, second);
        fence(SeqCst);
        self.0.write_u32(offset::REPLY_CONSUMER, consumer.wrapping_add(count(bytes.len())));
        bytes
    }

    fn set_requests(&self, consumer: u32, producer: u32) {
        self.0.write_u32(offset::REQUEST_CONSUMER, consumer);
        self.0.write_u32(offset::REQUEST_PRODUCER, producer);
    }

    fn set_replies(&self, consumer: u32, producer: u32) {
        self.0.write_u32(offset::REPLY_CONSUMER, consumer);
        self.0.write_u32(offset::REPLY_PRODUCER, producer);
    }
}

/// Memory of a page that threads share.
#[repr(C, align(4096))]
pub(super) struct Memory([std::sync::atomic::AtomicU8; crate::PAGE_SIZE]);

impl Memory {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self([const { std::sync::atomic::AtomicU8::new(0) }; _]))
    }

    pub(super) fn page(self: &Arc<Self>) -> SharedPage {
        let kept = Arc::clone(self);
        let base = NonNull::from(&self.0).cast();
        // SAFETY: the page keeps the memory until it is given back; it is made of atomics, which nobody borrows
        // otherwise.
        unsafe { SharedPage::from_raw(base, move |_| drop(kept)) }
    }
}

fn connected() -> (Ring, Guest) {
    let memory = Memory::new();
    (Ring::new(memory.page()), Guest(memory.page()))
}

#[test]
fn the_offsets_are_those_of_the_header() {
    use xen_sys::xenstore_domain_interface as Interface;
    assert_eq!(offset::REQUESTS, offset_of!(Interface, req));
    assert_eq!(offset::REPLIES, offset_of!(Interface, rsp));
    assert_eq!(offset::REQUEST_CONSUMER, offset_of!(Interface, req_cons));
    assert_eq!(offset::REQUEST_PRODUCER, offset_of!(Interface, req_prod));
    assert_eq!(offset::REPLY_CONSUMER, offset_of!(Interface, rsp_cons));
    assert_eq!(offset::REPLY_PRODUCER, offset_of!(Interface, rsp_prod));
    assert_eq!(offset::FEATURES, offset_of!(Interface, server_features));
    assert_eq!(offset::CONNECTION, offset_of!(Interface, connection));
    assert_eq!(offset::ERROR, offset_of!(Interface, error));
    assert_eq!(RING_SIZE, xen_sys::XENSTORE_RING_SIZE);
}

#[test]
fn requests_come_out_as_they_went_in() {
    let (ring, guest) = connected();
    assert_eq!(guest.write(b"a request"), 9);
    assert_eq!(ring.waiting(), Ok(9));
    let mut buffer = [0; 64];
    assert_eq!(ring.read(&mut buffer), Ok(9));
    assert_eq!(&buffer[..9], b"a request");
    assert_eq!(ring.read(&mut buffer), Ok(0));
    assert_eq!(ring.indices(), Indices { request_consumer: 9, request_producer: 9, ..<_>::default() });
}

#[test]
fn peeked_bytes_stay_until_they_are_consumed() {
    let (ring, guest) = connected();
    guest.write(b"two words");
    let mut buffer = [0; 4];
    assert_eq!(ring.peek(&mut buffer), Ok(4));
    assert_eq!(ring.peek(&mut buffer), Ok(4));
    assert_eq!(&buffer, b"two ");
    ring.consume(4);
    let mut rest = [0; 64];
    assert_eq!(ring.peek(&mut rest), Ok(5));
    assert_eq!(&rest[..5], b"words");
    ring.raise_request_consumer(9);
    assert_eq!(ring.waiting(), Ok(0));
}

#[test]
fn replies_stop_where_the_ring_is_full_and_go_on_after() {
    let (ring, guest) = connected();
    let replies: Vec<u8> = (0..3000_u32).map(|step| (step % 251) as u8).collect();
    let (mut put, mut got) = (0, Vec::new());
    assert_eq!(ring.write(&replies), Ok(1024));
    put += 1024;
    assert_eq!(ring.room(), Ok(0));
    assert_eq!(ring.write(&replies[put..]), Ok(0));
    while got.len() < replies.len() {
        let taken = guest.read(333);
        assert_eq!(ring.room(), Ok(count(taken.len() + (1024 - (put - got.len())))));
        got.extend(taken);
        put += ring.write(&replies[put..]).unwrap();
    }
    assert_eq!(got, replies);
}

#[rstest]
#[case::in_the_middle(1000)]
#[case::at_the_end_of_the_ring(1024)]
#[case::where_the_index_wraps(u32::MAX - 3)]
#[case::where_the_index_wraps_at_once(u32::MAX)]
fn bytes_go_round_the_end(#[case] start: u32) {
    let (ring, guest) = connected();
    guest.set_requests(start, start);
    guest.set_replies(start, start);
    let text: Vec<u8> = (0..=255).collect();
    assert_eq!(guest.write(&text), 256);
    let mut buffer = [0; 512];
    assert_eq!(ring.read(&mut buffer), Ok(256));
    assert_eq!(&buffer[..256], text);
    assert_eq!(ring.write(&text), Ok(256));
    assert_eq!(guest.read(512), text);
    let end = start.wrapping_add(256);
    let all = Indices { request_consumer: end, request_producer: end, reply_consumer: end, reply_producer: end };
    assert_eq!(ring.indices(), all);
}

#[rstest]
#[case::one_too_many(0, 1025)]
#[case::consumer_ahead(1, 0)]
#[case::far_apart(0, 1 << 31)]
#[case::ahead_over_the_wrap(5, u32::MAX)]
fn impossible_indices_are_refused_and_nothing_moves(#[case] consumer: u32, #[case] producer: u32) {
    let (ring, guest) = connected();
    guest.set_requests(consumer, producer);
    guest.set_replies(consumer, producer);
    let error = IndexError { producer, consumer };
    let mut buffer = [0xee; 64];
    assert_eq!(ring.peek(&mut buffer), Err(error));
    assert_eq!(ring.read(&mut buffer), Err(error));
    assert_eq!(ring.write(b"reply"), Err(error));
    assert_eq!(ring.waiting(), Err(error));
    assert_eq!(ring.room(), Err(error));
    assert_eq!(buffer, [0xee; 64]);
    let mut replies = [0; 5];
    guest.0.copy_out(offset::REPLIES, &mut replies);
    assert_eq!(replies, [0; 5]);
    let unmoved = Indices {
        request_consumer: consumer,
        request_producer: producer,
        reply_consumer: consumer,
        reply_producer: producer,
    };
    assert_eq!(ring.indices(), unmoved);
}

#[test]
fn a_reset_empties_both_directions_and_touches_no_more() {
    let (ring, guest) = connected();
    guest.0.copy_in(0, &[0xff; crate::PAGE_SIZE]);
    ring.reset();
    assert_eq!(ring.indices(), Indices::default());
    let mut page = [0; crate::PAGE_SIZE];
    guest.0.copy_out(0, &mut page);
    let untouched = |&(at, _): &(usize, &u8)| !(offset::REQUEST_CONSUMER..offset::FEATURES).contains(&at);
    assert!(page.iter().enumerate().filter(untouched).all(|(_, &byte)| byte == 0xff));
}

#[test]
fn the_words_behind_the_rings_say_what_they_should() {
    let (ring, guest) = connected();
    ring.set_features(14);
    assert_eq!(guest.0.read_u32(2064), 14);

    assert_eq!(ring.connection(), ConnectionState::Connected);
    guest.0.write_u32(2068, 1);
    assert_eq!(ring.connection(), ConnectionState::ReconnectRequested);
    guest.0.write_u32(2068, 77);
    assert_eq!(ring.connection(), ConnectionState::ReconnectRequested);
    ring.set_connected();
    assert_eq!(guest.0.read_u32(2068), 0);

    let faults = [(RingFault::Communication, 1), (RingFault::Index, 2), (RingFault::Protocol, 3)];
    for (fault, word) in faults {
        ring.set_error(Some(fault));
        assert_eq!(guest.0.read_u32(2072), word);
    }
    ring.set_error(None);
    assert_eq!(guest.0.read_u32(2072), 0);

    assert_eq!(ring.port(), None);
    guest.0.write_u32(2076, 23);
    assert_eq!(ring.port(), Some(Port(23)));
}

#[test]
fn a_guest_in_another_thread_gets_back_what_it_sent() {
    let sent: Vec<u8> = (0..if cfg!(miri) { 3000 } else { 400_000_u32 }).map(|step| (step % 253) as u8).collect();
    let memory = Memory::new();
    let expected = sent.clone();
    let shared = Arc::clone(&memory);
    let guest = thread::spawn(move || {
        let guest = Guest(shared.page());
        let (mut written, mut got) = (0, Vec::with_capacity(sent.len()));
        while got.len() < sent.len() {
            let upto = sent.len().min(written + 700);
            written += guest.write(&sent[written..upto]);
            got.extend(guest.read(900));
            thread::yield_now();
        }
        got
    });

    let ring = Ring::new(memory.page());
    let (mut served, mut buffer) = (0, [0; 600]);
    while served < expected.len() {
        let taken = ring.read(&mut buffer).unwrap();
        let mut rest = &buffer[..taken];
        while !rest.is_empty() {
            let put = ring.write(rest).unwrap();
            rest = &rest[put..];
            if put == 0 {
                thread::yield_now();
            }
        }
        served += taken;
        if taken == 0 {
            thread::yield_now();
        }
    }
    assert!(guest.join().unwrap() == expected, "every byte once and in order");
}
