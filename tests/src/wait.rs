//! Conditions with deadlines.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything that must come may take before a test fails. Far above what is needed: machines stall.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two looks at a condition that nothing announces.
const LOOK: Duration = Duration::from_millis(2);

/// Raises a flag at the end of a scope, also when a test fails in it: threads that wait for the flag end then too.
#[derive(Debug)]
pub struct AtEnd<'a>(pub &'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Looks again and again until `condition` holds.
///
/// # Panics
/// When it does not hold within [`PATIENCE`]; the message says `what` was waited for.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Looks again and again until `look` finds something, and returns that.
///
/// # Panics
/// When it finds nothing within [`PATIENCE`]; the message says `what` was waited for.
pub fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    look_again(what, look, || thread::sleep(LOOK))
}

/// As [`until`], without a pause between two looks: for what is over soon.
///
/// # Panics
/// As [`until`].
pub fn until_busily(what: &str, mut condition: impl FnMut() -> bool) {
    look_again(what, || condition().then_some(()), || {});
}

fn look_again<T>(what: &str, mut look: impl FnMut() -> Option<T>, pause: impl Fn()) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        pause();
    }
}
