//! What a link knows, and what it makes of the messages that arrive. Nothing here waits.

use super::background::Bell;
use super::renewal::Renewal;
use super::{Numbering, Sink};
use crate::error::{Cause, Error};
use crate::inbox::Inbox;
use crate::platform::Platform;
use crate::transport::Transport;
use std::sync::Arc;
use xenstore_wire::{Message, Op};

/// Answers to the bell in a row after which nobody but the background reader is expected.
const UNDISTURBED: u32 = 8;

/// Where the answer to a request is to go.
#[derive(Debug)]
pub(super) enum Answer {
    /// Somebody waits for it.
    Awaited,
    /// It is there.
    Here(Result<Box<[u8]>, Error>),
    /// Nobody waits for it any more.
    Abandoned,
}

/// A request that was sent, or is about to be.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: u32,
    op: Op,
    pub(super) answer: Answer,
}

/// Everything that is shared between the threads that use a link.
///
/// The **seat** is the right to receive: whoever took the inbox out of here has it, puts all that arrives where it
/// belongs, and gives the seat back. Threads that wait for something to arrive while another has the seat are
/// followers; they are woken when anything changes.
pub(super) struct State<P: Platform, S> {
    pub(super) sink: S,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) broken: Option<Cause>,
    /// How often the connection was renewed.
    pub(super) epoch: u32,
    pub(super) renewal: Option<Renewal>,
    /// A connection that is being prepared to take the place of the broken one.
    pub(super) candidate: Option<Arc<dyn Transport>>,
    pub(super) followers: usize,
    pub(super) stopping: bool,
    pub(super) thread: Option<P::Thread>,
    numbering: Numbering,
    last_id: u32,
    pending: Vec<Pending>,
    inbox: Option<Inbox>,
    /// The background reader's bell, from the moment that there is one.
    bell: Option<Arc<Bell>>,
    /// Whether arriving bytes ring that bell.
    armed: bool,
    /// How often the bell was answered since another thread last wanted the seat.
    undisturbed: u32,
}

impl<P: Platform, S: Sink> State<P, S> {
    pub(super) fn new(transport: Arc<dyn Transport>, sink: S, numbering: Numbering, renewal: Option<Renewal>) -> Self {
        Self {
            sink,
            transport,
            broken: None,
            epoch: 0,
            renewal,
            candidate: None,
            followers: 0,
            stopping: false,
            thread: None,
            numbering,
            last_id: 0,
            pending: Vec::new(),
            inbox: Some(Inbox::new(0)),
            bell: None,
            armed: false,
            undisturbed: 0,
        }
    }

    /// Notes `count` requests and returns the number of the first; the others' follow.
    pub(super) fn expect(&mut self, op: Op, count: u32) -> u32 {
        let first = self.note(op, Answer::Awaited);
        (1..count).for_each(|_| {
            self.note(op, Answer::Awaited);
        });
        first
    }

    /// Notes a request whose answer is dropped when it comes, and returns its number.
    pub(super) fn expect_nothing(&mut self, op: Op) -> u32 {
        self.note(op, Answer::Abandoned)
    }

    fn note(&mut self, op: Op, answer: Answer) -> u32 {
        let id = match self.numbering {
            Numbering::None => 0,
            Numbering::Counted => {
                self.last_id = self.last_id.wrapping_add(1);
                self.last_id
            }
        };
        self.pending.push(Pending { id, op, answer });
        id
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.pending.iter().position(|pending| pending.id == id && !matches!(pending.answer, Answer::Abandoned))
    }

    /// Takes the answer to a request off the list, if it has come.
    pub(super) fn answer(&mut self, id: u32) -> Option<Result<Box<[u8]>, Error>> {
        let at = self.position(id)?;
        if !matches!(self.pending[at].answer, Answer::Here(_)) {
            return None;
        }
        match self.pending.remove(at).answer {
            Answer::Here(answer) => Some(answer),
            Answer::Awaited | Answer::Abandoned => None,
        }
    }

    /// Forgets a request: nothing of it was sent, or it has its answer.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(at) = self.position(id) {
            self.pending.remove(at);
        }
    }

    /// Takes back the last request of which nothing was expected: it was not sent.
    pub(super) fn retract(&mut self, id: u32) {
        let last = |pending: &Pending| pending.id == id && matches!(pending.answer, Answer::Abandoned);
        if let Some(at) = self.pending.iter().rposition(last) {
            self.pending.remove(at);
        }
    }

    /// Leaves a request whose answer may still come.
    pub(super) fn abandon(&mut self, id: u32) {
        if let Some(at) = self.position(id) {
            self.pending[at].answer = Answer::Abandoned;
        }
    }

    /// Takes the seat if it is free; from then on arriving bytes ring no bell.
    pub(super) fn take_seat(&mut self) -> Option<Inbox> {
        self.undisturbed = 0;
        let inbox = self.inbox.take()?;
        if self.armed
            && let Some(bell) = &self.bell
        {
            bell.disarm(self.transport.as_fd());
            self.armed = false;
        }
        Some(inbox)
    }

    /// Takes the seat for the background reader, whom the bell has just woken.
    pub(super) fn take_seat_by_bell(&mut self) -> Option<Inbox> {
        self.undisturbed = self.undisturbed.saturating_add(1);
        self.inbox.take()
    }

    /// Whether the background reader may as well keep the seat and wait in the transport itself: events alone came for
    /// some time, and whoever comes now can end that waiting, or has an answer to wait for.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.undisturbed >= UNDISTURBED && self.followers == 0 && !self.stopping && self.transport.takes_batches()
    }

    /// Gives the seat back. Followers have to be woken, so that one of them takes it.
    pub(super) fn leave_seat(&mut self, inbox: Inbox) {
        if inbox.epoch == self.epoch {
            // An armed bell rings once for what arrives; arming it anew makes it look again.
            self.armed &= !inbox.filled_up;
            self.inbox = Some(inbox);
        }
        self.arm();
    }

    /// Lets arriving bytes ring the bell, unless a follower is about to receive them.
    pub(super) fn arm(&mut self) {
        if self.broken.is_none()
            && !self.armed
            && self.followers == 0
            && self.inbox.is_some()
            && let Some(bell) = &self.bell
        {
            // What a socket has, it gives at once; of a device, only the kernel knows.
            bell.arm(self.transport.as_fd(), self.transport.takes_batches());
            self.armed = true;
        }
    }

    /// Whether there is a background reader.
    pub(super) fn has_background(&self) -> bool {
        self.bell.is_some()
    }

    /// Begins to ring this bell.
    ///
    /// # Errors
    /// When the transport cannot be waited for.
    pub(super) fn hang_bell(&mut self, bell: Arc<Bell>) -> nix::Result<()> {
        if self.broken.is_none() {
            bell.watch(self.transport.as_fd())?;
        }
        self.bell = Some(bell);
        self.armed = false;
        self.arm();
        Ok(())
    }

    /// Takes the bell down again: the thread that should have listened did not start.
    pub(super) fn take_bell(&mut self) {
        if let Some(bell) = self.bell.take() {
            bell.unwatch(self.transport.as_fd());
        }
        self.armed = false;
    }

    /// Whether no thread is in a call, or receives.
    pub(super) fn is_at_rest(&self) -> bool {
        self.inbox.is_some() && self.followers == 0 && Arc::strong_count(&self.transport) == 1
    }

    /// Wakes the background reader for another reason than bytes.
    pub(super) fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Ends connection number `epoch`; only the first cause counts. All that wait have to be woken.
    pub(super) fn break_off(&mut self, epoch: u32, cause: Cause) {
        if self.broken.is_some() || epoch != self.epoch {
            return;
        }
        self.broken = Some(cause);
        if let Some(bell) = &self.bell {
            bell.unwatch(self.transport.as_fd());
            bell.ring();
        }
        self.armed = false;
        self.transport.shut();
        self.pending.retain(|pending| !matches!(pending.answer, Answer::Abandoned));
        if self.renewal.is_none() {
            self.sink.broken();
        }
    }

    /// Ends the connection for good.
    pub(super) fn end(&mut self) {
        self.renewal = None;
        if let Some(candidate) = self.candidate.take() {
            candidate.shut();
        }
        if self.broken.is_some() {
            // It broke while it could still be renewed.
            self.sink.broken();
        }
        self.break_off(self.epoch, Cause::GivenUp);
        self.ring();
    }

    /// A new connection, whose first bytes are in `inbox`, in place of the broken one.
    pub(super) fn renew(&mut self, transport: Arc<dyn Transport>, inbox: Inbox) {
        self.transport = transport;
        self.epoch = inbox.epoch;
        self.broken = None;
        // Answers that came before the break still go to those who asked; what never came will not come now.
        self.pending.retain(|pending| matches!(pending.answer, Answer::Here(_)));
        self.inbox = Some(inbox);
        self.armed = false;
        if let Some(bell) = &self.bell {
            // Without the background reader's help, events are read by those who wait for them.
            let _watched = bell.watch(self.transport.as_fd());
        }
        self.arm();
    }

    /// Answers that are still to come, and to be dropped, in front of the one that is awaited.
    pub(super) fn owed(&self) -> usize {
        match self.numbering {
            Numbering::None => {
                self.pending.iter().take_while(|pending| matches!(pending.answer, Answer::Abandoned)).count()
            }
            Numbering::Counted => 0,
        }
    }

    /// Whether a message answers the request `id`, whoever looks.
    pub(super) fn answers(numbering: Numbering, message: &Message<'_>, id: u32) -> bool {
        message.header.op != Op::WatchEvent.number() && (numbering == Numbering::None || message.header.req_id == id)
    }

    /// Puts one message of connection number `epoch` where it belongs.
    ///
    /// # Errors
    /// Why the connection cannot go on.
    pub(super) fn deliver(&mut self, epoch: u32, message: &Message<'_>) -> Result<(), Cause> {
        if epoch != self.epoch {
            return Ok(());
        }
        if message.header.op == Op::WatchEvent.number() {
            if message.payload.iter().filter(|&&byte| byte == 0).count() < 2 {
                return Err(Cause::MalformedEvent);
            }
            return self.sink.event(message.payload);
        }
        let numbering = self.numbering;
        let at = self
            .pending
            .iter()
            .position(|pending| {
                !matches!(pending.answer, Answer::Here(_)) && Self::answers(numbering, message, pending.id)
            })
            .ok_or(Cause::Unexpected)?;
        let pending = &mut self.pending[at];
        if matches!(pending.answer, Answer::Abandoned) {
            self.pending.remove(at);
            return Ok(());
        }
        pending.answer = Answer::Here(open(message, pending.op)?.map(Box::from));
        Ok(())
    }
}

/// What a reply says: its payload, or the error that it carries.
///
/// # Errors
/// [`Cause::Mismatch`] when it is no reply to `op` at all.
pub(super) fn open<'a>(message: &Message<'a>, op: Op) -> Result<Result<&'a [u8], Error>, Cause> {
    if message.header.op == op.number() {
        Ok(Ok(message.payload))
    } else if message.header.op == Op::Error.number() {
        Ok(Err(Error::from_payload(message.payload)))
    } else {
        Err(Cause::Mismatch)
    }
}
