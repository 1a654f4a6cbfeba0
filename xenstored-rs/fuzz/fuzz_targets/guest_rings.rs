#![no_main]
//! Guests that do to their rings what they like, also between two accesses of the daemon, while domains come and go: the
//! daemon goes on, an honest guest beside them hears the same as ever, the socket is answered, and memory is given back.
//! What runs is the daemon's own loop over a simulated host.

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use xenstored_fuzz::{RingStep, Scene, preload};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Steps of one input.
const STEPS: usize = 240;

/// Steps after which everybody is looked after.
const PERIOD: usize = 8;

/// Most bytes that the daemon may take: its guests' memory quotas of 64 KiB, several times over for what it knows about
/// their nodes.
const MOST: usize = 1 << 20;

/// Bytes that may stay after it has ended: the simulated host may keep a list. Ordinarily nothing stays.
const REST: usize = 4 << 10;

/// What is made once in a process is made before anything is counted.
static WARM: LazyLock<()> = LazyLock::new(|| Scene::new(true).end());

fuzz_target!(init: preload(), |input: (bool, Vec<RingStep>)| {
    let (with_journal, mut steps) = input;
    LazyLock::force(&WARM);
    let before = HEAP.current_usage();
    let taken = || HEAP.current_usage().saturating_sub(before);
    let mut scene = Scene::new(with_journal);
    for (number, step) in (1..).zip(steps.drain(..).take(STEPS)) {
        scene.step(step);
        if number % PERIOD == 0 {
            scene.check();
            assert!(taken() < MOST, "the daemon takes {} bytes", taken());
        }
    }
    scene.end();
    assert!(taken() < REST, "{} bytes are left", taken());
});
