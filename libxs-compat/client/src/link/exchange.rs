//! Sending and receiving: how a request finds its answer, whoever receives it.

use super::state::{State, open};
use super::{Numbering, Outcome, Shared, Sink};
use crate::error::{Cause, Error};
use crate::inbox::Inbox;
use crate::platform::{Monitor, Platform};
use crate::transport::{Transport, wait_ready};
use nix::poll::PollFlags;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use xenstore_wire::{Header, Op, PAYLOAD_MAX, put_message, put_with};

/// A request that was noted, and the connection that it goes to.
struct Request {
    id: u32,
    op: Op,
    epoch: u32,
    transport: Arc<dyn Transport>,
    until: Option<Instant>,
}

impl Request {
    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// What goes behind a request without payload; it changes nothing and everybody may ask.
const FOLLOWER: Op = Op::GetDomainPath;

/// Why a request was not sent.
#[derive(Clone, Copy)]
enum Failure {
    /// There was no room for it in time; nothing of it went out.
    Unsent,
    /// The connection is at its end.
    Broken(Cause),
}

/// The state while its lock is held.
type Locked<'a, P, S> = <<P as Platform>::Monitor<State<P, S>> as Monitor<State<P, S>>>::Guard<'a>;

/// Puts a request together in the room for it.
fn encode(room: &mut Vec<u8>, request: &Request, tx_id: u32, parts: &[&[u8]]) {
    let header = Header { op: request.op.number(), req_id: request.id, tx_id, len: 0 };
    let Ok(()) = put_with(room, &header, |out| {
        parts.iter().for_each(|part| out.extend_from_slice(part));
        Ok::<(), Infallible>(())
    });
}

impl<P: Platform, S: Sink> Shared<P, S> {
    /// One request and its answer. The caller's process has been checked.
    pub(super) fn exchange<R>(
        &self,
        op: Op,
        tx_id: u32,
        parts: &[&[u8]],
        until: Option<Instant>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Outcome<R> {
        let mut epoch = 0;
        let result = self.exchange_in(&mut epoch, op, tx_id, parts, until, take);
        Outcome { result, epoch }
    }

    fn exchange_in<R>(
        &self,
        epoch: &mut u32,
        op: Op,
        tx_id: u32,
        parts: &[&[u8]],
        until: Option<Instant>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > PAYLOAD_MAX {
            return Err(Error::TooLong);
        }
        let mut sending = self.sending.lock();
        let mut state = self.usable(until)?;
        let tx_id = state.renewal.as_ref().map_or(Ok(tx_id), |renewal| renewal.real_transaction(tx_id))?;
        let transport = Arc::clone(&state.transport);
        let request = Request { id: state.expect(op), op, epoch: state.epoch, transport, until };
        *epoch = request.epoch;
        let owed = state.owed();
        let follower = (len == 0).then(|| state.expect_nothing(FOLLOWER));
        let mut seat = state.take_seat();
        drop(state);
        sending.clear();
        encode(&mut sending, &request, tx_id, parts);
        if let Some(id) = follower {
            put_message(&mut sending, FOLLOWER.number(), id, 0, b"0\0");
        }
        if let Err(failure) = self.send(&request, &sending, seat.as_mut()) {
            return Err(self.fail(&request, follower, seat, failure));
        }
        // Unnumbered requests are one after the other; the next may be sent when this one has its answer.
        let turn = match self.numbering {
            Numbering::None => Some(sending),
            Numbering::Counted => {
                drop(sending);
                None
            }
        };
        let answer = match seat {
            Some(inbox) => self.receive_answer(inbox, &request, owed, take),
            None => self.follow(&request, take),
        };
        drop(turn);
        answer
    }

    /// Sends a request outside any transaction whose answer nobody waits for. There must be a background reader, or the
    /// answer stays where it is until the next request.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn post(&self, op: Op, parts: &[&[u8]]) -> Result<(), Error> {
        let mut sending = self.sending.lock();
        let mut state = self.usable(None)?;
        let transport = Arc::clone(&state.transport);
        let request = Request { id: state.expect_nothing(op), op, epoch: state.epoch, transport, until: None };
        drop(state);
        sending.clear();
        encode(&mut sending, &request, 0, parts);
        self.send(&request, &sending, None).map_err(|failure| self.fail(&request, None, None, failure))
    }

    /// The state of a connection that is not broken, renewed if need be.
    fn usable(&self, until: Option<Instant>) -> Result<Locked<'_, P, S>, Error> {
        loop {
            let state = self.state.lock();
            if state.broken.is_none() {
                return Ok(state);
            }
            if state.renewal.is_none() {
                return Err(Error::Closed);
            }
            drop(state);
            self.renew(until)?;
        }
    }

    /// Sends a whole request. Where there is no room and the seat is ours, receives meanwhile: the daemon may be
    /// waiting for just that.
    fn send(&self, request: &Request, bytes: &[u8], mut seat: Option<&mut Inbox>) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::Broken(error.into());
        let mut rest = bytes;
        while !rest.is_empty() {
            match request.transport.send(rest) {
                Ok(0) => return Err(Failure::Broken(Cause::Ended)),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut wanted = PollFlags::POLLOUT;
                    wanted.set(PollFlags::POLLIN, seat.is_some());
                    let ready = match wait_ready(request.transport.as_fd(), wanted, request.until) {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(broken(error)),
                        Err(_) if rest.len() == bytes.len() => return Err(Failure::Unsent),
                        Err(_) => return Err(Failure::Broken(Cause::CutShort)),
                        Ok(ready) => ready,
                    };
                    if ready.contains(PollFlags::POLLIN)
                        && let Some(inbox) = seat.as_deref_mut()
                    {
                        self.receive_meanwhile(inbox, &*request.transport).map_err(Failure::Broken)?;
                    }
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Receives what is there and puts it where it belongs, keeping the seat.
    fn receive_meanwhile(&self, inbox: &mut Inbox, transport: &dyn Transport) -> Result<(), Cause> {
        inbox.fill(transport, Some(Instant::now()))?;
        let epoch = inbox.epoch;
        let mut state = self.state.lock();
        while let Some(message) = inbox.next_message()? {
            state.deliver(epoch, &message)?;
        }
        self.wake_followers(state);
        Ok(())
    }

    /// Ends a request that could not be sent, and returns its error.
    fn fail(&self, request: &Request, follower: Option<u32>, seat: Option<Inbox>, failure: Failure) -> Error {
        let mut state = self.state.lock();
        state.forget(request.id);
        let error = match failure {
            Failure::Unsent => {
                if let Some(id) = follower {
                    state.retract(id);
                }
                Error::TimedOut
            }
            Failure::Broken(cause) => {
                state.break_off(request.epoch, cause);
                Error::Broken(cause)
            }
        };
        if let Some(inbox) = seat {
            state.leave_seat(inbox);
        }
        drop(state);
        self.state.notify_all();
        error
    }

    /// Receives, in the seat, until the answer to a request has come; `owed` answers in front of it are others'.
    fn receive_answer<R>(
        &self,
        mut inbox: Inbox,
        request: &Request,
        mut owed: usize,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let mut take = Some(take);
        let mut result = None;
        loop {
            let (mut end, late) = match inbox.fill(&*request.transport, request.until) {
                Ok(filled) => (None, !filled),
                Err(cause) => (Some(cause), false),
            };
            let epoch = inbox.epoch;
            let mut state = None;
            while end.is_none() {
                let message = match inbox.next_message() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(cause) => {
                        end = Some(cause);
                        break;
                    }
                };
                let answers = State::<P, S>::answers(self.numbering, &message, request.id);
                if answers
                    && owed == 0
                    && let Some(take) = take.take()
                {
                    // Opened where it lies, and without the lock when it comes first.
                    match open(&message, request.op) {
                        Ok(answer) => result = Some(answer.map(take)),
                        Err(cause) => end = Some(cause),
                    }
                    state.get_or_insert_with(|| self.state.lock()).forget(request.id);
                    continue;
                }
                owed = owed.saturating_sub(usize::from(answers));
                end = state.get_or_insert_with(|| self.state.lock()).deliver(epoch, &message).err();
            }
            if result.is_none() && end.is_none() && !late {
                // Events, or answers to others, who can go on with them; the seat stays ours.
                if let Some(state) = state {
                    self.wake_followers(state);
                }
                continue;
            }
            let mut state = state.unwrap_or_else(|| self.state.lock());
            if let Some(cause) = end {
                state.forget(request.id);
                state.break_off(epoch, cause);
                result.get_or_insert(Err(Error::Broken(cause)));
            } else if result.is_none() {
                state.abandon(request.id);
            }
            state.leave_seat(inbox);
            self.wake_followers(state);
            return result.unwrap_or(Err(Error::TimedOut));
        }
    }

    /// Waits until whoever has the seat brings the answer to a request, or leaves the seat to us.
    fn follow<R>(&self, request: &Request, take: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(answer) = state.answer(request.id) {
                state.arm();
                drop(state);
                return answer.map(|payload| take(&payload));
            }
            if state.epoch != request.epoch {
                state.arm();
                return Err(Error::Broken(Cause::Ended));
            }
            if let Some(cause) = state.broken {
                state.forget(request.id);
                return Err(Error::Broken(cause));
            }
            if let Some(inbox) = state.take_seat() {
                let owed = state.owed();
                drop(state);
                return self.receive_answer(inbox, request, owed, take);
            }
            if request.is_late() {
                state.abandon(request.id);
                state.arm();
                return Err(Error::TimedOut);
            }
            state.followers += 1;
            state = self.state.wait(state, request.until);
            state.followers -= 1;
        }
    }

    /// Waits until `pick` finds something in the sink.
    pub(super) fn wait_for<R>(
        &self,
        until: Option<Instant>,
        mut pick: impl FnMut(&mut S) -> Option<R>,
    ) -> Result<R, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = pick(&mut state.sink) {
                state.arm();
                return Ok(found);
            }
            if state.broken.is_some() && state.renewal.is_none() {
                return Err(Error::Closed);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                state.arm();
                return Err(Error::TimedOut);
            }
            if state.broken.is_none()
                && let Some(inbox) = state.take_seat()
            {
                let transport = Arc::clone(&state.transport);
                drop(state);
                self.receive_once(inbox, &*transport, until);
                state = self.state.lock();
            } else {
                state.followers += 1;
                state = self.state.wait(state, until);
                state.followers -= 1;
            }
        }
    }

    /// Receives once, in the seat, and leaves it.
    pub(super) fn receive_once(&self, mut inbox: Inbox, transport: &dyn Transport, until: Option<Instant>) {
        let epoch = inbox.epoch;
        let mut end = inbox.fill(transport, until).err();
        let mut state = self.state.lock();
        while end.is_none() {
            match inbox.next_message() {
                Ok(Some(message)) => end = state.deliver(epoch, &message).err(),
                Ok(None) => break,
                Err(cause) => end = Some(cause),
            }
        }
        if let Some(cause) = end {
            state.break_off(epoch, cause);
        }
        state.leave_seat(inbox);
        self.wake_followers(state);
    }

    /// Lets go of the lock and wakes whoever waits for something to arrive or for the seat.
    fn wake_followers(&self, state: Locked<'_, P, S>) {
        let wake = state.followers > 0;
        drop(state);
        if wake {
            self.state.notify_all();
        }
    }
}
