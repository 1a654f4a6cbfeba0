//! The descriptors of a link, known without a lock.
//!
//! A child of a fork has a copy of each. Where another thread was using the link at that moment, what the link's locks
//! guard may be in the middle of a change, and the locks held for ever: all that a child can do is to close these.

use nix::unistd::close;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What stands in a free place.
const NONE: RawFd = -1;

/// Places for the connection, one that may take its place and one that is about to go, each with a descriptor that wakes
/// those who wait for it; for the bell's two; and for four of a [`crate::link::Sink`].
const PLACES: usize = 12;

/// The descriptors that a link has open.
#[derive(Debug)]
pub struct Descriptors([AtomicI32; PLACES]);

impl Default for Descriptors {
    fn default() -> Self {
        Self([const { AtomicI32::new(NONE) }; PLACES])
    }
}

impl Descriptors {
    /// Notes a descriptor until the result is dropped, which has to be before the descriptor is closed. Without a free
    /// place it is not noted.
    #[must_use]
    pub fn note(self: &Arc<Self>, fd: impl AsFd) -> Noted {
        let raw = fd.as_fd().as_raw_fd();
        let free = |place: &AtomicI32| place.compare_exchange(NONE, raw, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Noted { descriptors: Arc::clone(self), place: self.0.iter().position(free) }
    }

    /// All that are noted now.
    pub fn each(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(|place| place.load(Ordering::Acquire)).filter(|fd| *fd != NONE)
    }

    /// Closes all, for a process in which their owners are never dropped.
    pub(crate) fn close(&self) {
        for place in &self.0 {
            let raw = place.swap(NONE, Ordering::AcqRel);
            if raw != NONE {
                // There is nothing to be done about one that the program has closed itself.
                let _closed = close(raw);
            }
        }
    }
}

/// A descriptor that is noted.
#[derive(Debug)]
pub struct Noted {
    descriptors: Arc<Descriptors>,
    place: Option<usize>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(place) = self.place.and_then(|place| self.descriptors.0.get(place)) {
            place.store(NONE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn descriptors_are_noted_while_they_are_open() {
        let descriptors = Arc::new(Descriptors::default());
        let files: Vec<_> = (0..PLACES + 1).map(|_| File::open("/dev/null").unwrap()).collect();
        let mut noted: Vec<_> = files.iter().map(|file| descriptors.note(file)).collect();
        let numbers = |files: &[File]| files.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        assert_eq!(descriptors.each().collect::<Vec<_>>(), numbers(&files[..PLACES]), "the last found no place");
        noted.remove(0);
        assert_eq!(descriptors.each().collect::<Vec<_>>(), numbers(&files[1..PLACES]));
        drop(noted);
        assert_eq!(descriptors.each().count(), 0);
    }
}
