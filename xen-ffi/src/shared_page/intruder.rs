//! Another party that changes pages between any two accesses of this thread: what a guest on another processor can do,
//! at a place that a test chooses and finds again. Only in tests and fuzz targets.

use std::cell::RefCell;

type Intruder = Box<dyn FnMut()>;

thread_local! {
    static INTRUDER: RefCell<Option<Intruder>> = const { RefCell::new(None) };
}

/// An intruder at work; dropping it ends that.
#[derive(Debug)]
pub struct AtWork(());

/// Calls `intruder` before each access to any shared page by this thread. Its own accesses call nobody.
///
/// A whole word or number is one access, and so is each byte that is copied apart from a word.
#[must_use]
pub fn let_in(intruder: impl FnMut() + 'static) -> AtWork {
    INTRUDER.set(Some(Box::new(intruder)));
    AtWork(())
}

impl Drop for AtWork {
    fn drop(&mut self) {
        INTRUDER.set(None);
    }
}

/// An access is about to be made.
pub(super) fn intrude() {
    if let Some(mut intruder) = INTRUDER.take() {
        intruder();
        INTRUDER.set(Some(intruder));
    }
}
