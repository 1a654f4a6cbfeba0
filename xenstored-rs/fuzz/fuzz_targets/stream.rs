#![no_main]
//! States between two daemons, as a stream or as oxenstored's text, as they were written and changed: what is read can be
//! loaded and is written as it was read, all else is refused with its place; memory in proportion to the bytes.

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstore_core::migration::{read_stream, read_text, write_stream};
use xenstore_core::{Config, Engine};
use xenstored_fuzz::{Ask, Change};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Most bytes that a byte of a stream may take in memory: a domain is eight, and an entry of its accounts.
const EACH: usize = 2500;

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
    let state = Ask::all(asks).engine().unload();
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
