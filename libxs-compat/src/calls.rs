//! Calls that are inside the library with a handle, so that closing it can wait for them.

use crate::pthread::PthreadMonitor;
use std::sync::atomic::{AtomicU32, Ordering};
use xenstore_client::platform::Monitor;

/// Set in the count once the handle is about to be closed.
const CLOSING: u32 = 1 << 31;

/// How many calls are inside. It costs no lock until the handle is closed.
pub(crate) struct Calls {
    inside: AtomicU32,
    left: PthreadMonitor<()>,
}

impl Calls {
    /// Nobody is inside.
    pub(crate) fn new() -> Self {
        Self { inside: AtomicU32::new(0), left: PthreadMonitor::new(()) }
    }

    /// Begins a call; not while the handle is being closed.
    pub(crate) fn enter(&self) -> bool {
        let more = |inside: u32| if inside & CLOSING == 0 { inside.checked_add(1) } else { None };
        self.inside.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Ends a call.
    pub(crate) fn leave(&self) {
        let fewer = |inside: u32| if inside & CLOSING == 0 { inside.checked_sub(1) } else { None };
        if self.inside.fetch_update(Ordering::Release, Ordering::Relaxed, fewer).is_err() {
            // Whoever closes may free all this as soon as the lock is free and nobody is inside.
            let _left = self.left.lock();
            self.inside.fetch_sub(1, Ordering::Release);
            self.left.notify_all();
        }
    }

    /// Lets no call begin any more, has `wake` end those that wait for something, and waits until all are out.
    pub(crate) fn close(&self, wake: impl FnOnce()) {
        self.inside.fetch_or(CLOSING, Ordering::AcqRel);
        wake();
        let mut guard = self.left.lock();
        while self.inside.load(Ordering::Acquire) != CLOSING {
            guard = self.left.wait(guard, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn closing_waits_for_those_inside() {
        let calls = Calls::new();
        assert!(calls.enter());
        calls.leave();
        assert!(calls.enter() && calls.enter());
        calls.leave();
        let (woken, wait) = channel();
        let inside = &calls;
        thread::scope(|scope| {
            scope.spawn(move || {
                wait.recv().unwrap();
                assert!(!inside.enter(), "nobody begins any more");
                inside.leave();
            });
            calls.close(|| woken.send(()).unwrap());
        });
        assert_eq!(calls.inside.load(Ordering::Relaxed), CLOSING);
    }
}
