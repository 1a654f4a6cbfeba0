#![no_main]
//! Images of an engine, as they were written and changed: what is whole comes back as it was, what is not is refused, and
//! nothing takes more memory than stands in proportion to the bytes.

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstore_core::Engine;
use xenstored_fuzz::{Ask, Change, image};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes of the checksum at an image's end.
const SUM: usize = 4;

/// Most bytes that an image of one byte may take in memory: a number without a connection is one in the image, and has
/// room for a connection, twice while the table grows.
const EACH: usize = 2500;

fuzz_target!(|input: (Vec<Ask>, Vec<Change>, &[u8])| {
    let (asks, changes, other) = input;
    let whole = image(Ask::all(asks).engine());
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
