//! Sending and receiving: how requests find their answers, whoever receives them.

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

/// Requests of one type that were noted one after the other, and the connection that they go to.
struct Requests {
    op: Op,
    /// The number of the first; the others' follow. Without numbering, all are the same.
    first: u32,
    count: u32,
    /// How many have their answer.
    done: u32,
    epoch: u32,
    transport: Arc<dyn Transport>,
    until: Option<Instant>,
}

impl Requests {
    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    fn are_done(&self) -> bool {
        self.done == self.count
    }

    /// The number of the first that has no answer yet.
    fn next(&self, numbering: Numbering) -> u32 {
        match numbering {
            Numbering::None => self.first,
            Numbering::Counted => self.first.wrapping_add(self.done),
        }
    }

    /// The numbers of all that have no answer yet.
    fn open(&self, numbering: Numbering) -> impl Iterator<Item = u32> {
        let first = self.first;
        (self.done..self.count).map(move |place| match numbering {
            Numbering::None => first,
            Numbering::Counted => first.wrapping_add(place),
        })
    }
}

/// Takes the payloads of answers, and remembers the first error; after that it takes no more.
struct Taker<'a> {
    take: &'a mut dyn FnMut(&[u8]),
    result: Result<(), Error>,
}

impl Taker<'_> {
    fn answer(&mut self, answer: Result<&[u8], Error>) {
        if self.result.is_ok() {
            self.result = answer.map(|payload| (self.take)(payload));
        }
    }
}

/// What goes behind a request without payload; it changes nothing and everybody may ask.
const FOLLOWER: Op = Op::GetDomainPath;

/// Why requests were not sent.
#[derive(Clone, Copy)]
enum Failure {
    /// There was no room for them in time; nothing of them went out.
    Unsent,
    /// The connection is at its end.
    Broken(Cause),
}

/// The state while its lock is held.
type Locked<'a, P, S> = <<P as Platform>::Monitor<State<P, S>> as Monitor<State<P, S>>>::Guard<'a>;

/// Puts a message behind others.
fn encode(room: &mut Vec<u8>, op: Op, id: u32, tx_id: u32, parts: &[&[u8]]) {
    let header = Header { op: op.number(), req_id: id, tx_id, len: 0 };
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
        let (mut take, mut taken) = (Some(take), None);
        let mut epoch = 0;
        let done = self.exchange_all(&mut epoch, op, tx_id, &[parts], until, &mut |payload| {
            taken = take.take().map(|take| take(payload));
        });
        let result = done.and_then(|()| taken.ok_or(Error::Malformed("no answer")));
        Outcome { result, epoch }
    }

    /// Requests of one type, right behind each other, and their answers; `epoch` becomes that of the connection.
    pub(super) fn exchange_all(
        &self,
        epoch: &mut u32,
        op: Op,
        tx_id: u32,
        messages: &[&[&[u8]]],
        until: Option<Instant>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        let len = |parts: &&[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        if messages.iter().any(|parts| len(parts) > PAYLOAD_MAX) {
            return Err(Error::TooLong);
        }
        let Ok(count) = u32::try_from(messages.len()) else { return Err(Error::TooLong) };
        let mut sending = self.sending.lock();
        let mut state = self.usable(until)?;
        let tx_id = state.renewal.as_ref().map_or(Ok(tx_id), |renewal| renewal.real_transaction(tx_id))?;
        let transport = Arc::clone(&state.transport);
        let owed = state.owed();
        let first = state.expect(op, count);
        let lonely = messages.iter().any(|parts| len(parts) == 0) && transport.takes_batches();
        let follower = lonely.then(|| state.expect_nothing(FOLLOWER));
        let mut requests = Requests { op, first, count, done: 0, epoch: state.epoch, transport, until };
        *epoch = requests.epoch;
        let mut seat = state.take_seat();
        drop(state);

        sending.clear();
        for (id, parts) in requests.open(self.numbering).zip(messages) {
            encode(&mut sending, op, id, tx_id, parts);
        }
        if let Some(id) = follower {
            put_message(&mut sending, FOLLOWER.number(), id, 0, b"0\0");
        }
        if let Err(failure) = self.send(&requests, &sending, seat.as_mut()) {
            return Err(self.fail(&requests, follower, seat, failure));
        }
        // Unnumbered requests are one after the other; the next may be sent when these have their answers.
        let turn = match self.numbering {
            Numbering::None => Some(sending),
            Numbering::Counted => {
                drop(sending);
                None
            }
        };
        let taker = Taker { take, result: Ok(()) };
        let answers = match seat {
            Some(inbox) => self.receive_answers(inbox, &mut requests, owed, taker),
            None => self.follow(&mut requests, taker),
        };
        drop(turn);
        answers
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
        let first = state.expect_nothing(op);
        let requests = Requests { op, first, count: 0, done: 0, epoch: state.epoch, transport, until: None };
        drop(state);
        sending.clear();
        encode(&mut sending, op, first, 0, parts);
        self.send(&requests, &sending, None).map_err(|failure| self.fail(&requests, None, None, failure))
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
            // Where there is no daemon now is of no use to those who ask for a node; ENOENT would say something else.
            self.renew(until).map_err(|_| Error::Closed)?;
        }
    }

    /// Sends all of `bytes`. Where there is no room and the seat is ours, receives meanwhile: the daemon may be waiting
    /// for just that.
    fn send(&self, requests: &Requests, bytes: &[u8], mut seat: Option<&mut Inbox>) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::Broken(error.into());
        let mut rest = bytes;
        while !rest.is_empty() {
            match requests.transport.send(rest) {
                Ok(0) => return Err(Failure::Broken(Cause::Ended)),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut wanted = PollFlags::POLLOUT;
                    wanted.set(PollFlags::POLLIN, seat.is_some());
                    let ready = match wait_ready(requests.transport.as_fd(), wanted, requests.until) {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(broken(error)),
                        Err(_) if rest.len() == bytes.len() => return Err(Failure::Unsent),
                        Err(_) => return Err(Failure::Broken(Cause::CutShort)),
                        Ok(ready) => ready,
                    };
                    if ready.contains(PollFlags::POLLIN)
                        && let Some(inbox) = seat.as_deref_mut()
                    {
                        self.receive_meanwhile(inbox, &*requests.transport).map_err(Failure::Broken)?;
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

    /// Ends requests that could not be sent, and returns their error.
    fn fail(&self, requests: &Requests, follower: Option<u32>, seat: Option<Inbox>, failure: Failure) -> Error {
        let mut state = self.state.lock();
        requests.open(self.numbering).for_each(|id| state.forget(id));
        let error = match failure {
            Failure::Unsent => {
                if let Some(id) = follower {
                    state.retract(id);
                }
                Error::TimedOut
            }
            Failure::Broken(cause) => {
                state.break_off(requests.epoch, cause);
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

    /// Receives, in the seat, until all answers have come; `owed` answers in front of them are others'.
    fn receive_answers(
        &self,
        mut inbox: Inbox,
        requests: &mut Requests,
        mut owed: usize,
        mut taker: Taker<'_>,
    ) -> Result<(), Error> {
        let epoch = inbox.epoch;
        loop {
            let (mut end, late) = match inbox.fill(&*requests.transport, requests.until) {
                Ok(filled) => (None, !filled),
                Err(cause) => (Some(cause), false),
            };
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
                let id = requests.next(self.numbering);
                let answers = State::<P, S>::answers(self.numbering, &message, id);
                if answers && owed == 0 && !requests.are_done() {
                    // Opened where it lies, and without the lock when it comes first.
                    match open(&message, requests.op) {
                        Ok(answer) => taker.answer(answer),
                        Err(cause) => end = Some(cause),
                    }
                    requests.done += 1;
                    state.get_or_insert_with(|| self.state.lock()).forget(id);
                    continue;
                }
                owed = owed.saturating_sub(usize::from(answers));
                end = state.get_or_insert_with(|| self.state.lock()).deliver(epoch, &message).err();
            }
            let mut state = state.unwrap_or_else(|| self.state.lock());
            while let Some(answer) = self.stored_answer(&mut state, requests) {
                taker.answer(answer.as_deref().map_err(Clone::clone));
            }
            if !requests.are_done() && end.is_none() && !late {
                // Events, or answers to others, who can go on with them; the seat stays ours.
                self.wake_followers(state);
                continue;
            }
            if let Some(cause) = end {
                requests.open(self.numbering).for_each(|id| state.forget(id));
                state.break_off(epoch, cause);
                if !requests.are_done() || cause == Cause::Mismatch {
                    taker.answer(Err(Error::Broken(cause)));
                }
            } else if late && !requests.are_done() {
                requests.open(self.numbering).for_each(|id| state.abandon(id));
                taker.answer(Err(Error::TimedOut));
            }
            state.leave_seat(inbox);
            self.wake_followers(state);
            return taker.result;
        }
    }

    /// The next answer, where somebody else has received it.
    fn stored_answer(&self, state: &mut Locked<'_, P, S>, requests: &mut Requests) -> Option<Result<Box<[u8]>, Error>> {
        if requests.are_done() {
            return None;
        }
        let answer = state.answer(requests.next(self.numbering))?;
        requests.done += 1;
        Some(answer)
    }

    /// Waits until whoever has the seat brings the answers, or leaves the seat to us.
    fn follow(&self, requests: &mut Requests, mut taker: Taker<'_>) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            while let Some(answer) = self.stored_answer(&mut state, requests) {
                taker.answer(answer.as_deref().map_err(Clone::clone));
            }
            if requests.are_done() {
                state.arm();
                return taker.result;
            }
            let lost = if state.epoch == requests.epoch { state.broken } else { Some(Cause::Ended) };
            if let Some(cause) = lost {
                requests.open(self.numbering).for_each(|id| state.forget(id));
                state.arm();
                taker.answer(Err(Error::Broken(cause)));
                return taker.result;
            }
            if let Some(inbox) = state.take_seat() {
                let owed = state.owed();
                drop(state);
                return self.receive_answers(inbox, requests, owed, taker);
            }
            if requests.is_late() {
                requests.open(self.numbering).for_each(|id| state.abandon(id));
                state.arm();
                taker.answer(Err(Error::TimedOut));
                return taker.result;
            }
            state.followers += 1;
            state = self.state.wait(state, requests.until);
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
                self.receive(inbox, &*transport, until, |_| false);
                state = self.state.lock();
            } else {
                state.followers += 1;
                state = self.state.wait(state, until);
                state.followers -= 1;
            }
        }
    }

    /// Receives once, in the seat, and again without an end as long as it may `stay` there; then leaves it.
    pub(super) fn receive(
        &self,
        mut inbox: Inbox,
        transport: &dyn Transport,
        mut until: Option<Instant>,
        stay: impl Fn(&State<P, S>) -> bool,
    ) {
        let epoch = inbox.epoch;
        loop {
            let mut end = inbox.fill(transport, until).err();
            let mut state = self.state.lock();
            while end.is_none() {
                match inbox.next_message() {
                    Ok(Some(message)) => end = state.deliver(epoch, &message).err(),
                    Ok(None) => break,
                    Err(cause) => end = Some(cause),
                }
            }
            if end.is_none() && stay(&state) {
                until = None;
                continue;
            }
            if let Some(cause) = end {
                state.break_off(epoch, cause);
            }
            state.leave_seat(inbox);
            self.wake_followers(state);
            return;
        }
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
