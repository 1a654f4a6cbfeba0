//! A new connection in place of a broken one: what has to be told to the new daemon, and what must never reach it.

use super::{Shared, Sink};
use crate::error::{Cause, Error};
use crate::inbox::Inbox;
use crate::platform::{Monitor, Platform};
use crate::transport::{Transport, wait_ready};
use nix::poll::PollFlags;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use xenstore_wire::{Message, Op, XsError, put_message};

/// Opens a connection to whatever daemon there is now.
#[derive(Clone)]
pub struct Opener(Arc<dyn Fn() -> Result<Arc<dyn Transport>, Error> + Send + Sync>);

impl Opener {
    /// An opener that calls `open`.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Transport>, Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

/// A watch as it was registered.
#[derive(Clone, Debug)]
struct Registered {
    path: Box<[u8]>,
    token: Box<[u8]>,
    depth: Option<Box<[u8]>>,
}

/// What a link that renews itself keeps.
#[derive(Debug)]
pub(super) struct Renewal {
    opener: Opener,
    watches: Vec<Registered>,
    /// Transactions that are open: our number, and the daemon's. Ours are never used twice, since a new daemon begins
    /// to count anew.
    open: Vec<(u32, u32)>,
    /// Transactions that were open when their connection broke.
    lost: Vec<u32>,
    last_number: u32,
}

impl Renewal {
    pub(super) fn new(opener: Opener) -> Self {
        Self { opener, watches: Vec::new(), open: Vec::new(), lost: Vec::new(), last_number: 0 }
    }

    /// Notes a transaction and returns our number for it.
    pub(super) fn open_transaction(&mut self, real: u32) -> u32 {
        self.last_number = self.last_number.checked_add(1).unwrap_or(1);
        self.open.push((self.last_number, real));
        self.last_number
    }

    /// The daemon's number of a transaction.
    ///
    /// # Errors
    /// [`Error::TransactionLost`], or `ENOENT` for one that was never open or is closed.
    pub(super) fn real_transaction(&self, number: u32) -> Result<u32, Error> {
        if number == 0 {
            return Ok(0);
        }
        if let Some((_, real)) = self.open.iter().find(|(open, _)| *open == number) {
            return Ok(*real);
        }
        Err(if self.lost.contains(&number) { Error::TransactionLost } else { Error::Refused(XsError::NoEnt) })
    }

    /// Whether a transaction is lost, or will be when the broken connection is renewed.
    pub(super) fn has_lost(&self, number: u32, broken: bool) -> bool {
        self.lost.contains(&number) || broken && self.open.iter().any(|(open, _)| *open == number)
    }

    pub(super) fn close_transaction(&mut self, number: u32) {
        self.open.retain(|(open, _)| *open != number);
        self.lost.retain(|lost| *lost != number);
    }

    /// The connection is gone, and all its transactions with it.
    fn lose_transactions(&mut self) {
        self.lost.extend(self.open.drain(..).map(|(number, _)| number));
    }

    pub(super) fn register(&mut self, path: &[u8], token: &[u8], depth: Option<&[u8]>) {
        self.watches.push(Registered { path: path.into(), token: token.into(), depth: depth.map(Box::from) });
    }

    pub(super) fn unregister(&mut self, path: &[u8], token: &[u8]) {
        self.watches.retain(|watch| *watch.path != *path || *watch.token != *token);
    }

    pub(super) fn forget_watches(&mut self) {
        self.watches.clear();
    }
}

impl<P: Platform, S: Sink> Shared<P, S> {
    /// Puts a new connection in place of the broken one, unless another thread was faster. The watches are registered
    /// there; each then fires once, so that nobody goes on with what he read before.
    ///
    /// # Errors
    /// Why there is no daemon, or why it would not take the watches; the link stays broken then.
    pub(super) fn renew(&self, until: Option<Instant>) -> Result<(), Error> {
        let _alone = self.renewing.lock();
        let state = self.state.lock();
        if state.broken.is_none() {
            return Ok(());
        }
        let Some(renewal) = &state.renewal else { return Err(Error::Closed) };
        let (opener, watches) = (renewal.opener.clone(), renewal.watches.clone());
        let mut inbox = Inbox::new(state.epoch.wrapping_add(1));
        drop(state);

        let transport = (opener.0)()?;
        transport.note(&self.descriptors);
        let mut events = Vec::new();
        self.offer(Some(&transport))?;
        let registered =
            watches.iter().try_for_each(|watch| register(&*transport, &mut inbox, watch, &mut events, until));
        self.offer(None)?;
        registered?;
        let mut state = self.state.lock();
        let Some(renewal) = &mut state.renewal else { return Err(Error::Closed) };
        renewal.lose_transactions();
        for event in events {
            state.sink.event(&event).map_err(Error::Broken)?;
        }
        // Whoever has the seat waits for more to come, so nothing whole may be left lying.
        let mut first = Vec::new();
        while let Some(message) = inbox.next_message().map_err(Error::Broken)? {
            first.push((message.header, message.payload.to_vec()));
        }
        let epoch = inbox.epoch;
        state.renew(transport, inbox);
        for (header, payload) in &first {
            if let Err(cause) = state.deliver(epoch, &Message { header: *header, payload }) {
                state.break_off(epoch, cause);
                break;
            }
        }
        drop(state);
        self.state.notify_all();
        Ok(())
    }
}

impl<P: Platform, S: Sink> Shared<P, S> {
    /// Shows a connection that is being prepared to those who may have to end it, or takes it from them.
    ///
    /// # Errors
    /// [`Error::Closed`] when nobody wants it any more.
    fn offer(&self, transport: Option<&Arc<dyn Transport>>) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.candidate = transport.map(Arc::clone);
        if state.renewal.is_some() { Ok(()) } else { Err(Error::Closed) }
    }
}

/// Registers one watch on a connection that nobody else uses yet; events that come meanwhile go to `events`.
fn register(
    transport: &dyn Transport,
    inbox: &mut Inbox,
    watch: &Registered,
    events: &mut Vec<Box<[u8]>>,
    until: Option<Instant>,
) -> Result<(), Error> {
    let mut payload = [&*watch.path, b"\0", &*watch.token, b"\0"].concat();
    if let Some(depth) = &watch.depth {
        payload.extend_from_slice(depth);
        payload.push(0);
    }
    let mut request = Vec::new();
    put_message(&mut request, Op::Watch.number(), 0, 0, &payload);
    let mut rest = request.as_slice();
    while !rest.is_empty() {
        match transport.send(rest) {
            Ok(0) => return Err(Error::Broken(Cause::Ended)),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_ready(transport.as_fd(), PollFlags::POLLOUT, until).map_err(|_| Error::TimedOut)?;
            }
            Err(error) => return Err(Error::Broken(error.into())),
        }
    }
    loop {
        while let Some(message) = inbox.next_message().map_err(Error::Broken)? {
            if message.header.op == Op::WatchEvent.number() {
                events.push(message.payload.into());
            } else {
                return super::state::open(&message, Op::Watch).map_err(Error::Broken)?.map(drop);
            }
        }
        if !inbox.fill(transport, until).map_err(Error::Broken)? {
            return Err(Error::TimedOut);
        }
    }
}
