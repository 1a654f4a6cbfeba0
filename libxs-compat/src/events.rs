//! Watch events that wait for the program, and the pipe that announces them.

use crate::block::Block;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use xenstore_client::Cause;
use xenstore_client::link::{Descriptors, Noted, Sink};
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
#[derive(Debug)]
pub(crate) struct EventQueue {
    descriptors: Arc<Descriptors>,
    events: VecDeque<Event>,
    pipe: Option<Pipe>,
    ended: bool,
}

/// A pipe that holds one byte while there is something to be told: an event, or that none will come.
#[derive(Debug)]
struct Pipe {
    _noted: [Noted; 2],
    readable: OwnedFd,
    writable: OwnedFd,
    full: bool,
}

impl Pipe {
    fn set(&mut self, full: bool) {
        if self.full == full {
            return;
        }
        let mut byte = [0];
        loop {
            let done = if full { write(&self.writable, &byte) } else { read(&self.readable, &mut byte) };
            if done != Err(Errno::EINTR) {
                break;
            }
        }
        self.full = full;
    }
}

impl EventQueue {
    /// An empty queue, which notes what descriptors it opens.
    pub(crate) fn new(descriptors: Arc<Descriptors>) -> Self {
        Self { descriptors, events: VecDeque::new(), pipe: None, ended: false }
    }

    /// The descriptor to poll, made at the first call.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn descriptor(&mut self) -> nix::Result<RawFd> {
        if self.pipe.is_none() {
            // A program that takes the byte out itself must not have us wait for it with the link's lock held.
            let (readable, writable) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
            let noted = [self.descriptors.note(&readable), self.descriptors.note(&writable)];
            self.pipe = Some(Pipe { _noted: noted, readable, writable, full: false });
            self.announce();
        }
        Ok(self.pipe.as_ref().map_or(-1, |pipe| pipe.readable.as_raw_fd()))
    }

    /// Brings the pipe in line with the queue.
    fn announce(&mut self) {
        let full = self.ended || !self.events.is_empty();
        if let Some(pipe) = &mut self.pipe {
            pipe.set(full);
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
