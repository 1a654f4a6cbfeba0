//! Watch events that wait for the program, and the descriptor that announces them.

use crate::block::Block;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use xenstore_client::Cause;
use xenstore_client::link::Sink;
use xenstore_wire::payload;

/// One event in the form in which the program gets it: pointers to its strings, and those behind them.
#[derive(Debug)]
pub(crate) struct Event {
    /// The block.
    pub(crate) block: Block,
    /// How many strings there are.
    pub(crate) strings: usize,
    /// Bytes of the strings, at the block's end.
    len: usize,
}

/// All events of a handle in the order they came. There is no bound: what the program does not take stays.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: VecDeque<Event>,
    flag: Option<Flag>,
    ended: bool,
}

/// A counter that can be polled, above 0 while there is something to be told: an event, or that none will come.
#[derive(Debug)]
struct Flag {
    counter: EventFd,
    raised: bool,
}

impl Flag {
    fn set(&mut self, raised: bool) {
        if self.raised != raised {
            // Neither can fail: the counter is 0 or 1, and does not wait.
            let _done = if raised { self.counter.write(1).map(drop) } else { self.counter.read().map(drop) };
            self.raised = raised;
        }
    }
}

impl EventQueue {
    /// The descriptor to poll, made at the first call.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn descriptor(&mut self) -> nix::Result<RawFd> {
        if self.flag.is_none() {
            let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            self.flag = Some(Flag { counter, raised: false });
            self.announce();
        }
        Ok(self.flag.as_ref().map_or(-1, |flag| flag.counter.as_fd().as_raw_fd()))
    }

    /// Brings the descriptor in line with the queue.
    fn announce(&mut self) {
        let raised = self.ended || !self.events.is_empty();
        if let Some(flag) = &mut self.flag {
            flag.set(raised);
        }
    }

    /// The next event.
    pub(crate) fn take(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.announce();
        Some(event)
    }

    /// Drops the events of a watch that the program has removed: those with its token, at its path or below.
    pub(crate) fn drop_watch(&mut self, path: &[u8], token: &[u8]) {
        self.events.retain(|event| {
            let mut strings = payload::strings(event.block.tail(event.len));
            let (event_path, event_token) = (strings.next(), strings.next());
            event_token != Some(token) || !event_path.is_some_and(|event_path| is_subpath(path, event_path))
        });
        self.announce();
    }
}

impl Sink for EventQueue {
    fn event(&mut self, payload: &[u8]) -> Result<(), Cause> {
        let (block, strings) = Block::of_strings(payload).map_err(|failure| Cause::Io(failure.0))?;
        self.events.try_reserve(1).map_err(|_| Cause::Io(Errno::ENOMEM))?;
        self.events.push_back(Event { block, strings, len: payload.len() });
        self.announce();
        Ok(())
    }

    fn broken(&mut self) {
        self.ended = true;
        self.announce();
    }
}

/// Whether `child` is `parent` or, by its letters, below it; below `/` nothing is, as in the C library.
pub(crate) fn is_subpath(parent: &[u8], child: &[u8]) -> bool {
    child.strip_prefix(parent).is_some_and(|below| matches!(below, [] | [b'/', ..]))
}
