//! A guest's end of an event channel.

use crate::futex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How many guest ports there can be at once.
pub const CHANNELS: usize = 65_536;

/// In [`Channel::peer`]: nobody in domain 0 has bound this port.
const UNBOUND: u32 = 0;

/// In [`Channel::peer`]: the port does not exist, so it cannot be bound.
const CLOSED: u32 = u32::MAX;

/// A port of a guest that domain 0 may bind. All zero is an open port that nobody has bound.
#[derive(Debug)]
#[repr(C)]
pub struct Channel {
    /// Local port of domain 0 at the other end.
    peer: AtomicU32,
    /// Counts the events that arrived.
    events: AtomicU32,
    /// How many sleep on `events`.
    waiters: AtomicU32,
}

impl Channel {
    /// Makes this an open port that nobody has bound.
    pub fn open(&self) {
        self.peer.store(UNBOUND, SeqCst);
    }

    /// Takes the port away; gives the local port that was bound to it, if one was.
    pub fn close(&self) -> Option<u32> {
        let peer = self.peer.swap(CLOSED, SeqCst);
        self.arrive();
        (peer != CLOSED && peer != UNBOUND).then_some(peer)
    }

    /// The local port of domain 0 that is bound to this port, if one is.
    #[must_use]
    pub fn peer(&self) -> Option<u32> {
        let peer = self.peer.load(SeqCst);
        (peer != CLOSED && peer != UNBOUND).then_some(peer)
    }

    /// Binds `local` to this port; says whether the port was free for it.
    pub(crate) fn attach(&self, local: u32) -> bool {
        self.peer.compare_exchange(UNBOUND, local, SeqCst, SeqCst).is_ok()
    }

    /// Undoes [`Self::attach`], unless the port was closed meanwhile.
    pub(crate) fn detach(&self, local: u32) {
        let _ = self.peer.compare_exchange(local, UNBOUND, SeqCst, SeqCst);
    }

    /// An event arrives at the guest.
    pub fn arrive(&self) {
        self.events.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) != 0 {
            futex::wake_all(&self.events);
        }
    }

    /// The number of events that have arrived so far, wrapping.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.events.load(SeqCst)
    }

    /// Sleeps until the number of events is not `seen`, or until `timeout` has passed; gives the number then.
    #[must_use]
    pub fn wait(&self, seen: u32, timeout: Duration) -> u32 {
        let deadline = Instant::now() + timeout;
        self.waiters.fetch_add(1, SeqCst);
        let mut events = self.events();
        while events == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            futex::wait(&self.events, seen, left);
            events = self.events();
        }
        self.waiters.fetch_sub(1, SeqCst);
        events
    }
}
