#![no_main]
//! Images of an engine, as they were written and changed: what is whole comes back as it was, what is not is refused, and
//! nothing takes more memory than stands in proportion to the bytes.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstore_core::{Config, DomId, Engine, Existence};
use xenstored_fuzz::{Driver, Request, image};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Requests of one input.
const REQUESTS: usize = 60;

/// Bytes of the checksum at an image's end.
const SUM: usize = 4;

/// Most bytes that an image of one byte may take in memory: a number without a connection is one in the image, and has
/// room for a connection, twice while the table grows.
const EACH: usize = 2500;

/// What is done to an image.
#[derive(Arbitrary, Debug)]
enum Change {
    Set(u16, u8),
    Flip(u16, u8),
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
    /// A number that asks for much.
    Huge(u16, u8),
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
            Self::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new);
            }
            Self::Remove(at, count) => {
                let at = place(at);
                let end = bytes.len().min(at + usize::from(count));
                bytes.drain(at..end);
            }
            Self::Huge(at, bits) => {
                let at = place(at);
                let end = bytes.len().min(at + 1);
                bytes.splice(at..end, [0xff, 0xff, 0xff, 0x80 | bits, 0x0f]);
            }
            Self::Cut(at) => bytes.truncate(usize::from(at)),
        }
    }
}

fuzz_target!(|input: (Vec<Ask>, Vec<Change>, &[u8])| {
    let (asks, changes, other) = input;
    let whole = written(asks);
    let mut bytes = whole.clone();
    bytes.truncate(whole.len() - SUM);
    for change in changes.into_iter().take(20) {
        change.apply(&mut bytes);
    }
    // Without the right checksum nothing is taken but what was written.
    let mut unsealed = bytes.clone();
    unsealed.extend_from_slice(&whole[whole.len() - SUM..]);
    assert!(unsealed == whole || Engine::restore(&unsealed).is_err());
    check(&bytes);
    check(other);
});

/// The image of an engine that was asked all that.
fn written(asks: Vec<Ask>) -> Vec<u8> {
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
    image(driver.engine())
}

/// Bytes with a right checksum are an engine that can be saved, or none. So are they without.
fn check(bytes: &[u8]) {
    assert!(Engine::restore(bytes).is_err(), "the checksum of a checksum");
    let sealed = [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat();
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let restored = Engine::restore(&sealed);
    let taken = HEAP.peak_usage().saturating_sub(before);
    assert!(taken < (1 << 20) + EACH * sealed.len(), "{} bytes took {taken}", sealed.len());
    match restored {
        Ok(mut engine) => {
            let saved = image(&engine);
            let again = Engine::restore(&saved).expect("what was restored can be restored again");
            assert!(image(&again) == saved);
            engine.resume();
        }
        Err(error) => assert!(error.offset <= sealed.len(), "{error}"),
    }
}
