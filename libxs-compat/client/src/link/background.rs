//! The thread that receives while nobody else does, so that events are taken from the daemon as they come.
//!
//! It sleeps on a bell: an epoll descriptor that bytes ring only while the seat is free. A thread that makes a request
//! silences it for that time and receives its answer itself, so that no request costs a change of threads. Where nothing
//! but events has come for some time, it keeps the seat and waits for bytes themselves, which spares the bell.

use super::state::State;
use super::{Descriptors, Inside, Noted, Shared, Sink};
use crate::platform::{Monitor, Platform};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses between attempts to reach a daemon that is gone: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A daemon that takes the connection has so long to register the watches; then another attempt is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who rang: somebody by hand, or arriving bytes.
const ROPE: u64 = 1;
const BYTES: u64 = 0;

/// What the background reader sleeps on.
#[derive(Debug)]
pub(super) struct Bell {
    _noted: [Noted; 2],
    epoll: Epoll,
    rope: EventFd,
}

impl Bell {
    /// A bell that nothing rings but [`Bell::ring`].
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn new(descriptors: &Arc<Descriptors>) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let rope = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&rope, EpollEvent::new(EpollFlags::EPOLLIN, ROPE))?;
        let noted = [descriptors.note(&epoll.0), descriptors.note(&rope)];
        Ok(Self { _noted: noted, epoll, rope })
    }

    /// Adds a transport, still silent.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::empty(), BYTES))
    }

    /// Removes a transport. It may be gone already: a descriptor that was replaced has removed itself.
    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _removed = self.epoll.delete(fd);
    }

    /// Lets bytes that are there, or arrive, ring: `once` each time that some arrive, or as long as there are some.
    pub(super) fn arm(&self, fd: BorrowedFd<'_>, once: bool) {
        let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        flags.set(EpollFlags::EPOLLET, once);
        self.set(fd, flags);
    }

    /// Lets bytes arrive in silence.
    pub(super) fn disarm(&self, fd: BorrowedFd<'_>) {
        self.set(fd, EpollFlags::empty());
    }

    fn set(&self, fd: BorrowedFd<'_>, flags: EpollFlags) {
        // It fails only for a descriptor that is watched no more, and then there is nothing to be rung for.
        let _changed = self.epoll.modify(fd, &mut EpollEvent::new(flags, BYTES));
    }

    /// Rings once.
    pub(super) fn ring(&self) {
        // Were its counter full, it would ring already.
        let _rung = self.rope.write(1);
    }

    /// Sleeps until it rings, or for at most `pause`.
    fn wait(&self, pause: Option<Duration>) {
        let timeout =
            pause.map_or(EpollTimeout::NONE, |pause| EpollTimeout::try_from(pause).unwrap_or(EpollTimeout::MAX));
        let mut events = [EpollEvent::empty(); 2];
        let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
        if events.iter().take(count).any(|event| event.data() == ROPE) {
            let _calmed = self.rope.read();
        }
    }
}

/// The body of the thread: receives until the link stops, or is broken for good.
pub(super) fn run<P: Platform, S: Sink>(shared: &Arc<Shared<P, S>>, bell: &Bell) {
    let _inside = Inside::new(shared);
    let mut pause = None;
    let past = Instant::now();
    loop {
        bell.wait(pause);
        let mut state = shared.state.lock();
        if state.stopping {
            return;
        }
        if state.broken.is_some() {
            if state.renewal.is_none() {
                return;
            }
            drop(state);
            pause = match shared.renew(Some(Instant::now() + PATIENCE)) {
                Ok(()) => None,
                Err(_) => Some(pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE))),
            };
            continue;
        }
        pause = None;
        // Somebody else may have sat down since it rang.
        if let Some(inbox) = state.take_seat_by_bell() {
            let transport = Arc::clone(&state.transport);
            drop(state);
            shared.receive(inbox, &*transport, Some(past), State::is_undisturbed);
        }
    }
}
