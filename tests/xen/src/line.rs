//! What came from a domain's kernel over its console, shared between the thread that takes it and those that wait.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a kernel may take to answer. It does so at once, but there is one processor for all.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<(u8, Vec<u8>)>,
    /// Events of the store so far.
    events: u32,
    gone: bool,
}

/// One domain's console, from the outside.
#[derive(Debug)]
pub(crate) struct Line {
    domid: u16,
    state: Mutex<State>,
    changed: Condvar,
    /// Held from a question to its answer.
    asking: Mutex<()>,
}

impl Line {
    pub(crate) fn new(domid: u16) -> Self {
        Self { domid, state: Mutex::default(), changed: Condvar::new(), asking: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a message.
    pub(crate) fn take_in(&self, letter: u8, payload: Vec<u8>) {
        let mut state = self.state();
        match letter {
            b'e' => state.events = state.events.wrapping_add(1),
            b'h' => {}
            _ => state.answers.push_back((letter, payload)),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.state().gone = true;
        self.changed.notify_all();
    }

    /// Events of the store so far.
    pub(crate) fn events(&self) -> u32 {
        self.state().events
    }

    /// Whether the domain is there.
    pub(crate) fn is_open(&self) -> bool {
        !self.state().gone
    }

    /// Asks by `send` and waits for the answer of the same letter.
    pub(crate) fn ask(&self, letter: u8, send: impl FnOnce()) -> io::Result<Vec<u8>> {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        send();
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state();
        loop {
            if let Some((came, payload)) = state.answers.pop_front() {
                if came == letter {
                    return Ok(payload);
                }
                continue;
            }
            if state.gone {
                let message = format!("domain {} is gone", self.domid);
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let message = format!("the kernel of domain {} does not answer", self.domid);
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the number of events is another than `seen`, or the domain is gone; gives the number.
    pub(crate) fn await_event(&self, seen: u32, timeout: Duration) -> u32 {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.events == seen && !state.gone);
        waited.unwrap_or_else(PoisonError::into_inner).0.events
    }
}
