#![no_main]
//! States between two daemons, as a stream or as oxenstored's text, as they were written and changed: what is read can be
//! loaded and is written as it was read, all else is refused with its place; memory in proportion to the bytes.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstore_core::migration::{read_stream, read_text, write_stream};
use xenstore_core::{Config, DomId, Engine, Existence};
use xenstored_fuzz::{Driver, Request};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Requests of one input.
const REQUESTS: usize = 60;

/// Most bytes that a byte of a stream may take in memory: a domain is eight, and an entry of its accounts.
const EACH: usize = 2500;

#[derive(Arbitrary, Debug)]
enum Change {
    Set(u16, u8),
    Flip(u16, u8),
    Word(u16, u32),
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
    /// A piece of it once more somewhere else.
    Repeat(u16, u16, u8),
    Cut(u16),
}

#[derive(Arbitrary, Debug)]
struct Ask {
    who: u8,
    in_transaction: bool,
    wait: bool,
    request: Request,
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let place = |at: u16| usize::from(at) % (bytes.len() + 1);
        match self {
            Self::Set(at, byte) => bytes.iter_mut().skip(usize::from(at)).take(1).for_each(|old| *old = byte),
            Self::Flip(at, bits) => bytes.iter_mut().skip(usize::from(at)).take(1).for_each(|old| *old ^= bits),
            Self::Word(at, word) => {
                let at = place(at) & !3;
                let end = bytes.len().min(at + 4);
                bytes.splice(at..end, word.to_ne_bytes());
            }
            Self::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new);
            }
            Self::Remove(at, count) => {
                let at = place(at);
                let end = bytes.len().min(at + usize::from(count));
                bytes.drain(at..end);
            }
            Self::Repeat(from, to, count) => {
                let (from, to) = (place(from), place(to));
                let piece = bytes[from..bytes.len().min(from + usize::from(count))].to_vec();
                bytes.splice(to..to, piece);
            }
            Self::Cut(at) => bytes.truncate(usize::from(at)),
        }
    }
}

fuzz_target!(|input: (Vec<Ask>, bool, Vec<Change>, &[u8])| {
    let (asks, newer, changes, other) = input;
    let mut bytes = written(asks, if newer { 2 } else { 1 });
    for change in changes.into_iter().take(20) {
        change.apply(&mut bytes);
    }
    stream(&bytes);
    stream(other);
    text(other);
});

/// The stream of an engine that was asked all that.
fn written(asks: Vec<Ask>, version: u32) -> Vec<u8> {
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
    let state = driver.engine().unload();
    let stream = write_stream(&state, version).expect("it is a state");
    let read = read_stream(&stream).expect("what was written can be read");
    Engine::load(Config::default(), &read).expect("and loaded");
    stream
}

fn stream(bytes: &[u8]) {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let read = read_stream(bytes);
    let loaded = read.as_ref().ok().map(|state| Engine::load(Config::default(), state));
    let taken = HEAP.peak_usage().saturating_sub(before);
    assert!(taken < (1 << 20) + EACH * bytes.len(), "{} bytes took {taken}", bytes.len());
    match &read {
        Ok(state) => {
            if let Ok(again) = write_stream(state, 2) {
                assert_eq!(read_stream(&again).as_ref(), Ok(state));
            }
        }
        Err(error) => assert!(error.offset <= bytes.len(), "{error}"),
    }
    go_on(loaded.and_then(Result::ok).map(|loaded| loaded.engine));
}

fn text(bytes: &[u8]) {
    let whole = [b"$xenstored-dump-format\n", bytes].concat();
    for text in [&whole[..], bytes] {
        match read_text(text) {
            Ok(state) => go_on(Engine::load(Config::default(), &state).ok().map(|loaded| loaded.engine)),
            Err(error) => assert!(error.line <= text.len() + 1, "{error}"),
        }
    }
}

/// What was loaded serves, and can be handed over again.
fn go_on(engine: Option<Engine>) {
    let Some(mut engine) = engine else { return };
    engine.resume();
    let state = engine.unload();
    let stream = write_stream(&state, 2).expect("what was loaded can be written");
    let read = read_stream(&stream).expect("and read");
    Engine::load(Config::default(), &read).expect("and loaded again");
}
