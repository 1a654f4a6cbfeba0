//! One connection, shared by threads: requests out, answers and events in.
//!
//! Whoever waits for something receives for all (see the seat in `state.rs`). From [`Link::start_background`] on, which a watch
//! calls for, a thread of the link receives while nobody else does.
//!
//! What events become is the business of a [`Sink`]; which locks and threads there are, that of a
//! [`Platform`].

mod background;
mod exchange;
mod renewal;
mod state;

pub use renewal::Opener;

pub use crate::descriptors::{Descriptors, Noted};

use crate::error::{Cause, Error};
use crate::platform::{Monitor, Platform};
use crate::transport::Transport;
use background::Bell;
use renewal::Renewal;
use state::State;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use xenstore_wire::Op;

/// Takes the watch events of a link. It is called with the link's lock held and must not call the link.
pub trait Sink: Send + 'static {
    /// A watch fired. `payload` is the path, the token and perhaps more strings, each with its NUL; at least two.
    ///
    /// # Errors
    /// Why the event cannot be kept, which ends the connection.
    fn event(&mut self, payload: &[u8]) -> Result<(), Cause>;

    /// No more events will come.
    fn broken(&mut self);
}

/// How requests are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// All are 0, as the C library does it, and one is out at a time: any answer is the answer to that one.
    None,
    /// Counted from 1; answers are matched by their number, so that threads need not wait for each other.
    Counted,
}

/// How a link is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the link notes its descriptors; its sink may do so, too. They are for this link alone.
    pub descriptors: Arc<Descriptors>,
    /// How requests are numbered.
    pub numbering: Numbering,
    /// How to reach a daemon again after the connection broke; `None`: broken is broken.
    pub opener: Option<Opener>,
}

/// A connection to a daemon. Dropping it ends it for all threads; none may be inside a call by then.
pub struct Link<P: Platform, S: Sink> {
    shared: Arc<Shared<P, S>>,
    process: u32,
}

/// What the threads of a link share.
pub(crate) struct Shared<P: Platform, S: Sink> {
    state: P::Monitor<State<P, S>>,
    /// The room in which a request is put together; its holder alone may send.
    sending: P::Monitor<Vec<u8>>,
    renewing: P::Monitor<()>,
    numbering: Numbering,
    descriptors: Arc<Descriptors>,
}

impl<P: Platform, S: Sink> std::fmt::Debug for Link<P, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("process", &self.process).finish_non_exhaustive()
    }
}

/// What came of a request, and of which connection.
struct Outcome<R> {
    result: Result<R, Error>,
    epoch: u32,
}

impl<P: Platform, S: Sink> Link<P, S> {
    /// A link over a transport that was just opened.
    pub fn new(transport: Arc<dyn Transport>, sink: S, setup: Setup) -> Self {
        let renewal = setup.opener.map(Renewal::new);
        transport.note(&setup.descriptors);
        let shared = Shared {
            state: P::Monitor::new(State::new(transport, sink, setup.numbering, renewal)),
            sending: P::Monitor::new(Vec::new()),
            renewing: P::Monitor::new(()),
            numbering: setup.numbering,
            descriptors: setup.descriptors,
        };
        Self { shared: Arc::new(shared), process: P::process() }
    }

    /// Sends a request whose payload is `parts`, one behind the other, and hands the payload of its answer to `take`.
    ///
    /// Behind a request without any payload goes a harmless one: an oxenstored of before 2026 leaves such a message
    /// lying until more bytes come.
    ///
    /// # Errors
    /// [`Error::Refused`] and its like when the daemon answers with an error; [`Error::TooLong`] before anything is
    /// sent; [`Error::TimedOut`] when the answer is not there by `until`, which leaves the link usable; otherwise the
    /// connection is broken.
    pub fn request<R>(
        &self,
        op: Op,
        tx_id: u32,
        parts: &[&[u8]],
        until: Option<Instant>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let _inside = self.enter()?;
        self.shared.exchange(op, tx_id, parts, until, take).result
    }

    /// Sends several requests of one type, one right behind the other, and hands the payloads of their answers to
    /// `take` in their order.
    ///
    /// # Errors
    /// As [`Self::request`]: the first of all; `take` is not called for what comes after that.
    pub fn request_all(
        &self,
        op: Op,
        tx_id: u32,
        payloads: &[Vec<u8>],
        until: Option<Instant>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let _inside = self.enter()?;
        if payloads.is_empty() {
            return Ok(());
        }
        if !self.takes_batches() {
            let mut one = |payload: &Vec<u8>| self.shared.exchange(op, tx_id, &[payload], until, &mut take).result;
            return payloads.iter().try_for_each(&mut one);
        }
        let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [payload.as_slice()]).collect();
        let messages: Vec<&[&[u8]]> = parts.iter().map(|part| part.as_slice()).collect();
        self.shared.exchange_all(&mut 0, op, tx_id, &messages, until, &mut take)
    }

    /// Whether [`Self::request_all`] sends its requests in one piece.
    #[must_use]
    pub fn takes_batches(&self) -> bool {
        self.shared.state.lock().transport.takes_batches()
    }

    /// Opens a transaction and returns the number by which requests name it.
    ///
    /// # Errors
    /// As [`Self::request`]; [`Error::Malformed`] for an answer that is no number.
    pub fn start_transaction(&self, until: Option<Instant>) -> Result<u32, Error> {
        let _inside = self.enter()?;
        let outcome = self.shared.exchange(Op::TransactionStart, 0, &[b"\0"], until, transaction_number);
        let number = outcome.result?.ok_or(Error::Malformed("no transaction number"))?;
        let mut state = self.shared.state.lock();
        let epoch = state.epoch;
        match &mut state.renewal {
            None => Ok(number),
            Some(renewal) if epoch == outcome.epoch => Ok(renewal.open_transaction(number)),
            Some(_) => Err(Error::Closed),
        }
    }

    /// Commits a transaction or gives it up.
    ///
    /// # Errors
    /// As [`Self::request`]. A conflict is [`Error::Refused`] with `EAGAIN`, or [`Error::TransactionLost`] when the
    /// daemon that knew the transaction is gone; giving up such a one succeeds.
    pub fn end_transaction(&self, tx_id: u32, commit: bool, until: Option<Instant>) -> Result<(), Error> {
        let _inside = self.enter()?;
        let word: &[u8] = if commit { b"T\0" } else { b"F\0" };
        let result = self.shared.exchange(Op::TransactionEnd, tx_id, &[word], until, |_| ()).result;
        let lost = matches!(result, Err(Error::TransactionLost));
        if let Some(renewal) = &mut self.shared.state.lock().renewal {
            renewal.close_transaction(tx_id);
        }
        if lost && !commit { Ok(()) } else { result }
    }

    /// Whether a transaction was open when its connection broke.
    #[must_use]
    pub fn has_lost(&self, tx_id: u32) -> bool {
        let state = self.shared.state.lock();
        state.renewal.as_ref().is_some_and(|renewal| renewal.has_lost(tx_id, state.broken.is_some()))
    }

    /// Registers a watch; `depth` limits how many levels below `path` it sees.
    ///
    /// # Errors
    /// As [`Self::request`], and [`Error::System`] when the background reader cannot start.
    pub fn watch(&self, path: &[u8], token: &[u8], depth: Option<&[u8]>, until: Option<Instant>) -> Result<(), Error> {
        self.start_background()?;
        let nul: &[u8] = b"\0";
        let all = [path, nul, token, nul, depth.unwrap_or_default(), nul];
        let parts = if depth.is_some() { &all[..] } else { &all[..4] };
        let outcome = self.shared.exchange(Op::Watch, 0, parts, until, |_| ());
        outcome.result?;
        let mut state = self.shared.state.lock();
        let epoch = state.epoch;
        if let Some(renewal) = &mut state.renewal {
            if epoch != outcome.epoch {
                return Err(Error::Closed);
            }
            renewal.register(path, token, depth);
        }
        Ok(())
    }

    /// Removes a watch.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn unwatch(&self, path: &[u8], token: &[u8], until: Option<Instant>) -> Result<(), Error> {
        let _inside = self.enter()?;
        if let Some(renewal) = &mut self.shared.state.lock().renewal {
            renewal.unregister(path, token);
        }
        self.shared.exchange(Op::Unwatch, 0, &[path, b"\0", token, b"\0"], until, |_| ()).result
    }

    /// Removes a watch without waiting for the daemon to say so.
    ///
    /// # Errors
    /// Those of the connection, where all is over anyway.
    pub fn unwatch_unheard(&self, path: &[u8], token: &[u8]) -> Result<(), Error> {
        let _inside = self.enter()?;
        let mut state = self.shared.state.lock();
        let broken = state.broken.is_some();
        if let Some(renewal) = &mut state.renewal {
            renewal.unregister(path, token);
            if broken {
                return Ok(());
            }
        }
        drop(state);
        self.shared.post(Op::Unwatch, &[path, b"\0", token, b"\0"])
    }

    /// Drops all watches and transactions of this connection in the daemon.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn reset_watches(&self, until: Option<Instant>) -> Result<(), Error> {
        let _inside = self.enter()?;
        if let Some(renewal) = &mut self.shared.state.lock().renewal {
            renewal.forget_watches();
        }
        self.shared.exchange(Op::ResetWatches, 0, &[b"\0"], until, |_| ()).result
    }

    /// Makes sure that events are received even while no thread is inside a call.
    ///
    /// # Errors
    /// [`Error::System`] when there is no thread or descriptor left.
    pub fn start_background(&self) -> Result<(), Error> {
        let _inside = self.enter()?;
        let mut state = self.shared.state.lock();
        if state.has_background() {
            return Ok(());
        }
        let bell = Arc::new(Bell::new(&self.shared.descriptors)?);
        state.hang_bell(Arc::clone(&bell))?;
        let shared = Arc::clone(&self.shared);
        match P::start_thread(move || background::run(&shared, &bell)) {
            Ok(thread) => {
                state.thread = Some(thread);
                Ok(())
            }
            Err(error) => {
                state.take_bell();
                let errno = error.raw_os_error().map_or(nix::errno::Errno::EAGAIN, nix::errno::Errno::from_raw);
                Err(Error::System(errno))
            }
        }
    }

    /// Waits until `pick` finds something in the sink.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Closed`] when the connection is at its end and there is nothing left to find.
    pub fn wait_for<R>(&self, until: Option<Instant>, pick: impl FnMut(&mut S) -> Option<R>) -> Result<R, Error> {
        let _inside = self.enter()?;
        self.shared.wait_for(until, pick)
    }

    /// Looks once whether `pick` finds something in the sink.
    ///
    /// # Errors
    /// [`Error::Closed`] when the connection is at its end and there is nothing left to find.
    pub fn look_for<R>(&self, pick: impl FnOnce(&mut S) -> Option<R>) -> Result<Option<R>, Error> {
        let _inside = self.enter()?;
        let mut state = self.shared.state.lock();
        match pick(&mut state.sink) {
            None if state.broken.is_some() && state.renewal.is_none() => Err(Error::Closed),
            found => Ok(found),
        }
    }

    /// Works on the sink with the link's lock held.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn with_sink<R>(&self, work: impl FnOnce(&mut S) -> R) -> Result<R, Error> {
        let _inside = self.enter()?;
        Ok(work(&mut self.shared.state.lock().sink))
    }

    /// The way to the daemon as it is now.
    #[must_use]
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.shared.state.lock().transport)
    }

    /// Ends the connection for all who use it; they get [`Error::Closed`] from now on, and it is not renewed.
    pub fn give_up(&self) {
        self.shared.end();
    }

    /// Whether the calling process is the one that opened the link, rather than a child that it forked.
    #[must_use]
    pub fn is_own(&self) -> bool {
        P::process() == self.process
    }

    /// The descriptors that the link has open. No lock is taken for that, so that a child of a fork may ask, too.
    #[must_use]
    pub fn descriptors(&self) -> &Descriptors {
        &self.shared.descriptors
    }

    /// Whether no other thread was using the link when this child was forked. If one was, what they shared may be in
    /// the middle of a change: it must be left as it is, for ever.
    fn came_through_whole(&self) -> bool {
        self.shared.state.try_lock().is_some_and(|state| state.is_at_rest())
            && self.shared.sending.try_lock().is_some()
            && self.shared.renewing.try_lock().is_some()
    }

    /// Begins a call, unless this is a child that was forked.
    fn enter(&self) -> Result<Inside<'_, P, S>, Error> {
        if self.is_own() { Ok(Inside::new(&self.shared)) } else { Err(Error::Forked) }
    }
}

/// Ends the connection when a panic leaves a call, whose seat, or whose answer, is gone with it: others must not wait for
/// ever.
struct Inside<'a, P: Platform, S: Sink> {
    shared: &'a Shared<P, S>,
    /// The call is made by a destructor, and the panic is no matter of ours.
    unwinding: bool,
}

impl<'a, P: Platform, S: Sink> Inside<'a, P, S> {
    fn new(shared: &'a Shared<P, S>) -> Self {
        Self { shared, unwinding: thread::panicking() }
    }
}

impl<P: Platform, S: Sink> Drop for Inside<'_, P, S> {
    fn drop(&mut self) {
        if !self.unwinding && thread::panicking() {
            self.shared.end();
        }
    }
}

impl<P: Platform, S: Sink> Shared<P, S> {
    /// Ends the connection for good, and wakes all who wait.
    fn end(&self) {
        self.state.lock().end();
        self.state.notify_all();
    }
}

impl<P: Platform, S: Sink> Drop for Link<P, S> {
    fn drop(&mut self) {
        if !self.is_own() {
            // The threads stayed behind. Above all, the connection is not ended, which would end it for the parent.
            let whole = self.came_through_whole();
            let thread = self.shared.state.try_lock().and_then(|mut state| state.thread.take());
            if !(whole && thread.is_none_or(P::forget)) {
                // All that can be given back is the descriptors, so that the connection does not outlive the parent.
                self.shared.descriptors.close();
                std::mem::forget(Arc::clone(&self.shared));
            }
            return;
        }
        let mut state = self.shared.state.lock();
        state.stopping = true;
        state.end();
        let thread = state.thread.take();
        drop(state);
        self.shared.state.notify_all();
        if let Some(thread) = thread {
            P::join(thread);
        }
    }
}

/// The decimal number of a reply to `TRANSACTION_START`; 0 is none.
fn transaction_number(payload: &[u8]) -> Option<u32> {
    let string = payload.strip_suffix(b"\0").unwrap_or(payload);
    xenstore_wire::payload::number::<u32>(string).ok().filter(|&number| number != 0)
}
