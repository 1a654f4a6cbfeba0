//! The engine: connections in, output and effects out.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use xenstore_wire::{Header, Message, Op, XsError, put_error, put_message, put_with, split_message};

use crate::{
    config::Config,
    connection::{Asked, Caller, Connection, ConnectionKind},
    domain::{Domains, feature},
    effect::{CloseReason, Effect, Note, Question, Trace},
    ending::{Ending, PIECE},
    event::Change,
    flow::EARLIER_MOST,
    id::{ConnId, DomId, Time},
    node::{Generation, NodeId},
    output::Cause,
    permission::PermissionCache,
    pool::Pool,
    quota::{Limit, Quota},
    request,
    slots::Slots,
    store::Store,
    transaction::Transaction,
    watch::{Fired, Watches},
    witness::Witness,
};

/// Requests of one connection that a turn serves; then the others come first.
const BUDGET: usize = 64;

/// Unsent bytes at which a connection's next request waits until it has read.
pub(crate) const OUTPUT_PAUSE: usize = 16 << 10;

/// Unsent bytes that a socket connection may have while it takes nothing.
pub(crate) const OUTPUT_CAP: usize = 1 << 20;

/// How long a socket connection with more than that may take nothing before it is closed: it does not read. The kernel
/// tells of room only when most of its own buffer is free, so a slow reader seems to take nothing for long.
pub(crate) const OUTPUT_PATIENCE: Duration = Duration::from_secs(60);

/// Unsent bytes, after an attempt to send them, at which a socket connection is closed however it reads.
pub(crate) const OUTPUT_LIMIT: usize = 16 << 20;

/// Bytes appended to outputs in one turn after which the shell should send before it serves on.
const OUTPUT_URGENT: usize = 4 << 20;

/// A connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The store and everybody who uses it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) store: Store,
    generation: Generation,
    pub(crate) connections: Slots<Connection>,
    pub(crate) domains: Domains,
    pub(crate) watches: Watches,
    pub(crate) permissions: PermissionCache,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    /// The transaction of the request that is being served; its connection has it back afterwards.
    pub(crate) in_hand: Option<Box<Transaction>>,
    /// Changes of the request that is being served, whose events follow its reply.
    pub(crate) changes: Vec<Change>,
    /// The request that is being served, where it is a guest's.
    pub(crate) cause: Option<Cause>,
    /// Which guest changed a node last while transactions are open.
    pub(crate) writers: BTreeMap<NodeId, DomId>,
    /// Connections to be looked at at a time.
    pub(crate) alarms: BTreeSet<(Time, ConnId, u64)>,
    /// Number of connections that ever were.
    pub(crate) lives: u64,
    /// Where replies are written before they join the output.
    scratch: Vec<u8>,
    /// Scratch of the event fan-out.
    pub(crate) fired: Vec<Fired>,
    ready: VecDeque<ConnId>,
    flush: VecDeque<ConnId>,
    /// Connections whose input is wanted again, though the shell was told that it is not.
    pub(crate) wanting: VecDeque<ConnId>,
    /// Watches that ever fired.
    pub(crate) told: usize,
    /// Bytes of events and replies since the shell last took a connection to flush.
    pub(crate) appended: usize,
    pub(crate) effects: VecDeque<Effect>,
    /// Domains that ended and still leave something.
    pub(crate) endings: VecDeque<Ending>,
    /// Work of one turn on them.
    pub(crate) piece: usize,
    /// [`EARLIER_MOST`], but for tests.
    pub(crate) earlier_most: usize,
    /// Connections, each with its number among all that ever were, whose requests wait since something is under way with
    /// domains that they name.
    waiting: Vec<(ConnId, u64)>,
    /// Something that requests wait for is over.
    pub(crate) wake: bool,
    /// TRANSACTION_START of connections that have no transaction open waits.
    holding: bool,
    tracing: bool,
    /// Alterations so far.
    pub(crate) alterations: u64,
    /// How often the shell said that it keeps what was done so far.
    pub(crate) kept: u64,
    /// A request is being served that only reads.
    reading: bool,
    /// Requests executed so far.
    pub(crate) executed: u64,
    /// Numbers of requests that are not to be executed.
    pub(crate) refused: BTreeSet<u64>,
    pub(crate) witness: Option<Box<dyn Witness>>,
    /// A type of request that panics, to see what that costs.
    #[cfg(test)]
    fail_at: Option<Op>,
}

impl Engine {
    /// An engine with a fresh store.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            store: Store::new(config.priv_domid),
            generation: 0,
            connections: Slots::default(),
            domains: Domains::new(config.existence, config.store_domid, config.limits.clone()),
            watches: Watches::default(),
            permissions: PermissionCache::new(),
            pool: Pool::new(config.buffers.clone()),
            now: Time::default(),
            in_hand: None,
            changes: Vec::new(),
            cause: None,
            writers: BTreeMap::new(),
            alarms: BTreeSet::new(),
            lives: 0,
            scratch: Vec::new(),
            fired: Vec::new(),
            ready: VecDeque::new(),
            flush: VecDeque::new(),
            wanting: VecDeque::new(),
            told: 0,
            appended: 0,
            effects: VecDeque::new(),
            endings: VecDeque::new(),
            piece: PIECE,
            earlier_most: EARLIER_MOST,
            waiting: Vec::new(),
            wake: false,
            holding: false,
            tracing: false,
            alterations: 0,
            kept: 0,
            reading: false,
            executed: 0,
            refused: BTreeSet::new(),
            witness: None,
            #[cfg(test)]
            fail_at: None,
            config,
        }
    }

    /// Opens a connection of a socket client.
    ///
    /// # Errors
    /// [`Refused`] while connections hold all the memory that the host allows them.
    pub fn open_socket(&mut self) -> Result<ConnId, Refused> {
        if self.pool.is_full() {
            self.effects.push_back(Effect::Note(Note::BuffersFull { held: self.pool.figures().0 }));
            return Err(Refused);
        }
        Ok(self.open_socket_again())
    }

    /// Opens a connection of a socket client as [`Engine::open_socket`] does, whatever connections hold: where what
    /// happened is done again, it was let in.
    pub fn open_socket_again(&mut self) -> ConnId {
        self.open(ConnectionKind::Socket)
    }

    pub(crate) fn open(&mut self, kind: ConnectionKind) -> ConnId {
        self.lives += 1;
        self.altered();
        let conn = ConnId(self.connections.insert(Connection::new(kind, self.lives)));
        self.trace(|_| Trace::Create { kind: "connection", conn });
        conn
    }

    /// Takes bytes that a connection sent, and serves whole requests among them within the connection's budget. What
    /// is left waits for [`Engine::step`].
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8], now: Time) {
        self.now = now;
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        if connection.closing.is_some() {
            return;
        }
        if connection.input.is_empty() && !connection.ready {
            let left = self.serve(conn, bytes);
            let rest = &bytes[bytes.len() - left..];
            if !rest.is_empty()
                && let Some(connection) = self.connections.get_mut(conn.index())
            {
                connection.input = self.pool.take();
                connection.input.extend_from_slice(rest);
                self.altered();
            }
        } else {
            connection.input.extend_from_slice(bytes);
            self.altered();
        }
        self.settle(conn);
    }

    /// Serves connections that have whole requests left, each within its budget, and works on what ended domains leave.
    pub fn step(&mut self, now: Time) {
        self.now = now;
        self.ring_alarms();
        self.serve_waiting();
        for _ in 0..self.ready.len() {
            let Some(conn) = self.ready.pop_front() else { break };
            self.altered();
            if let Some(connection) = self.connections.get_mut(conn.index()) {
                connection.ready = false;
                self.serve_input(conn);
            }
        }
        if self.has_endings() {
            self.end_in_pieces();
        }
    }

    /// Whether whole requests are left that can be served, or something that ended domains left.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.has_endings() || (self.wake && !self.waiting.is_empty())
    }

    /// Whether bytes of this connection should be read now: false while it has requests waiting.
    #[must_use]
    pub fn wants_input(&self, conn: ConnId) -> bool {
        self.connections.get(conn.index()).is_some_and(|connection| !connection.ready) && self.may_serve(conn)
    }

    fn serve_input(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        let mut input = std::mem::take(&mut connection.input);
        let left = self.serve(conn, &input);
        input.drain(..input.len() - left);
        Pool::fit(&mut input);
        match self.connections.get_mut(conn.index()) {
            Some(connection) if !input.is_empty() => connection.input = input,
            _ => self.pool.give(input),
        }
        self.settle(conn);
    }

    /// After a connection was served: more in this turn, later, or never.
    pub(crate) fn settle(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        connection.account(&mut self.pool);
        let deferred = connection.deferred;
        let waits = !connection.ready && !connection.input.is_empty();
        let more = waits && matches!(split_message(&connection.input), Ok(Some(_)) | Err(_));
        if more
            && self.may_serve(conn)
            && let Some(connection) = self.connections.get_mut(conn.index())
        {
            connection.ready = true;
            self.ready.push_back(conn);
            self.altered();
        }
        if deferred {
            self.end_deferral(conn);
        }
    }

    /// Serves requests from the front of `bytes`; returns how many bytes are left.
    fn serve(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        for _ in 0..BUDGET {
            if rest.is_empty() || !self.may_serve(conn) {
                break;
            }
            match split_message(rest) {
                Ok(Some((message, after))) => {
                    rest = after;
                    self.execute(conn, message);
                }
                Ok(None) => break,
                Err(too_long) => {
                    self.give_up(conn, CloseReason::TooLong { len: too_long.header.len });
                    return 0;
                }
            }
        }
        rest.len()
    }

    /// Serves one request: reply first, then the events that it caused. A panic in it costs its connection only.
    fn execute(&mut self, conn: ConnId, message: Message<'_>) {
        let Message { header, payload } = message;
        self.executed += 1;
        let number = self.executed;
        let refused = !self.refused.is_empty() && self.refused.remove(&number);
        self.reading = !refused && only_reads(&header);
        if !self.reading {
            self.altered();
        }
        self.trace(|engine| Trace::In { conn, domid: engine.domid(conn), header, payload: payload.to_vec() });
        if let Some(witness) = &mut self.witness {
            witness.begins(number);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.reply(conn, header, payload, refused)));
        if let Some(witness) = &mut self.witness {
            witness.ends();
        }
        self.cause = None;
        self.reading = false;
        if let Err(panic) = outcome {
            self.discard_changes();
            self.abort_in_hand();
            let what = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            self.give_up(conn, CloseReason::Failed { what, op: header.op });
        }
        self.relieve();
    }

    fn reply(&mut self, conn: ConnId, header: Header, payload: &[u8], refused: bool) {
        #[cfg(test)]
        if self.fail_at.is_some_and(|op| op.number() == header.op) {
            let _taken = self.take_in_hand(conn, header.tx_id);
            panic!("told to fail");
        }
        self.begin_request(conn);
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let failed = if refused {
            Some(XsError::Io.into())
        } else {
            put_with(&mut out, &header, |out| request::handle(self, conn, header, payload, out)).err()
        };
        match failed {
            Some(request::Failure::Error(error)) => put_error(&mut out, &header, error),
            Some(request::Failure::Asked) | None => {}
        }
        if let Some(connection) = self.connections.get_mut(conn.index())
            && !out.is_empty()
        {
            connection.output.buffer(&mut self.pool).extend_from_slice(&out);
            connection.output.mark(out.len(), self.cause, None);
            self.cause.into_iter().for_each(|cause| self.caused(cause));
            self.trace_out(conn, &out);
            self.has_output(conn, out.len());
        }
        self.scratch = out;
        if !self.changes.is_empty() {
            self.fire_changes();
        }
        self.note_usage();
    }

    /// Keeps the highest usage seen of the domains whose nodes changed.
    pub(crate) fn note_usage(&mut self) {
        while let Some(domid) = self.store.accounts.next_touched() {
            if domid != self.config.priv_domid {
                let usage = self.store.accounts.usage(domid);
                self.domains.note(domid, Quota::Nodes, u64::from(usage.nodes));
                self.domains.note(domid, Quota::Memory, usage.bytes);
                if let Some((limit, over)) = self.domains.crosses_soft_memory(domid, usage.bytes) {
                    self.effects.push_back(Effect::Note(Note::SoftMemory { domid, bytes: usage.bytes, limit, over }));
                }
            }
        }
    }

    /// Answers an [`Effect::Ask`]: the payload of the reply, or why it failed.
    ///
    /// # Panics
    /// When the payload is longer than a message may be by orders of magnitude.
    pub fn answer(&mut self, conn: ConnId, answer: Result<Vec<u8>, XsError>) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        let Some(asked) = connection.asked.take_if(|asked| asked.question.is_some()) else { return };
        let header = asked.header;
        if let Some(Question::Introduce { domid, .. }) = asked.question {
            self.not_introducing(domid);
        }
        self.altered();
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        let out = connection.output.buffer(&mut self.pool);
        let before = out.len();
        match answer {
            Ok(payload) if payload.len() <= xenstore_wire::PAYLOAD_MAX => {
                put_message(out, header.op, header.req_id, header.tx_id, &payload);
            }
            Ok(_) => put_error(out, &header, XsError::TooBig),
            Err(error) => put_error(out, &header, error),
        }
        let message = out[before..].to_vec();
        self.trace_out(conn, &message);
        self.has_output(conn, message.len());
        self.settle(conn);
    }

    /// Answers [`crate::Question::Exist`] with those that do: the request that asked is served with that.
    pub fn answer_existence(&mut self, conn: ConnId, existing: &[DomId]) {
        let asked = self.connections.get_mut(conn.index()).and_then(|connection| connection.asked.take());
        let Some(Asked { header, question: Some(Question::Exist(domids)), payload }) = asked else { return };
        self.altered();
        for domid in domids {
            if existing.contains(&domid) {
                self.domains.entry(domid).exists = true;
            } else {
                self.domains.absent.push(domid);
            }
        }
        self.execute(conn, Message { header, payload: &payload });
        self.domains.absent.clear();
        self.settle(conn);
    }

    /// Domains that anything is known of.
    #[must_use]
    pub fn known_domains(&self) -> Vec<DomId> {
        self.domains.iter().map(|(domid, _)| domid).filter(|&domid| domid != self.config.store_domid).collect()
    }

    /// The next connection that has something to send, until none is left.
    pub fn next_output(&mut self) -> Option<ConnId> {
        self.appended = 0;
        while let Some(conn) = self.flush.pop_front() {
            if let Some(connection) = self.connections.get_mut(conn.index()) {
                connection.flushing = false;
                if !connection.output.unsent().is_empty() {
                    return Some(conn);
                }
            }
        }
        None
    }

    /// Whether so much waits to be sent that it should be sent before anything else is served.
    #[must_use]
    pub fn output_is_urgent(&self) -> bool {
        self.appended >= OUTPUT_URGENT
    }

    /// What waits to be sent to a connection.
    #[must_use]
    pub fn output(&self, conn: ConnId) -> &[u8] {
        self.connections.get(conn.index()).map_or(&[], |connection| connection.output.unsent())
    }

    /// Notes that the first `count` bytes of [`Engine::output`] are sent, and that no more could be sent now.
    pub fn sent(&mut self, conn: ConnId, count: usize) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        if connection.output.unsent().is_empty() {
            self.settle(conn);
            return;
        }
        let news = count > 0 || !connection.output.collapses();
        connection.output.sent(count, &mut self.pool);
        if count > 0 {
            connection.progress = self.now;
        }
        if news && (connection.reads_since != Some(self.kept) || !connection.output.unsent().is_empty()) {
            connection.reads_since = None;
            self.alterations += 1;
        }
        while let Some(cause) =
            self.connections.get_mut(conn.index()).and_then(|connection| connection.output.next_delivered())
        {
            self.delivered(cause);
        }
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        if connection.kind == ConnectionKind::Socket && connection.output.unsent().len() > OUTPUT_CAP {
            self.check_patience(conn);
        }
        self.settle(conn);
    }

    /// Gives up a socket connection that does not read what waits for it; looks again later at one that may.
    pub(crate) fn check_patience(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get(conn.index()) else { return };
        let (bytes, until) = (connection.output.unsent().len(), Time(connection.progress.0 + OUTPUT_PATIENCE));
        if connection.kind != ConnectionKind::Socket || bytes <= OUTPUT_CAP {
            return;
        }
        // With all buffers in use, those who hold most of them go first.
        if bytes > OUTPUT_LIMIT || until <= self.now || self.pool.is_full() {
            self.give_up(conn, CloseReason::OutputFull { bytes });
        } else {
            self.set_alarm(conn, until);
        }
    }

    /// Forgets a connection whose end is closed.
    pub fn close(&mut self, conn: ConnId) {
        self.abort_all(conn);
        self.drop_alarm(conn);
        self.forget_asked(conn);
        let Some(mut connection) = self.connections.remove(conn.index()) else { return };
        self.altered();
        // A ring is closed once its domain has ended; should one be before, its number is not the domain's any more.
        if let ConnectionKind::Domain(domid) = connection.kind
            && let Some(domain) = self.domains.get_mut(domid)
        {
            domain.connection = domain.connection.filter(|of| *of != conn);
        }
        let causes = connection.release_buffers(&mut self.pool);
        causes.into_iter().for_each(|cause| self.delivered(cause));
        self.watches.unregister_all(conn);
        self.trace(|_| Trace::Destroy { kind: "connection", conn });
    }

    /// Forgets what a connection waits for.
    pub(crate) fn forget_asked(&mut self, conn: ConnId) {
        let asked = self.connections.get_mut(conn.index()).and_then(|connection| connection.asked.take());
        if let Some(Asked { question: Some(Question::Introduce { domid, .. }), .. }) = asked {
            self.not_introducing(domid);
        }
    }

    /// Requests that name a domain need not wait for its introduction any more.
    fn not_introducing(&mut self, domid: DomId) {
        self.domains.introducing.remove(&domid);
        self.wake = true;
    }

    /// Stops serving a connection. The shell is asked to close a socket; the ring of a domain is only served no more, since
    /// a domain that misbehaves is not gone.
    pub(crate) fn give_up(&mut self, conn: ConnId, reason: CloseReason) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        if connection.closing.is_some() {
            return;
        }
        connection.closing = Some(reason.clone());
        let kind = connection.kind;
        self.alterations += 1;
        self.pool.give(std::mem::take(&mut connection.input));
        connection.account(&mut self.pool);
        self.abort_all(conn);
        match kind {
            ConnectionKind::Socket => self.effects.push_back(Effect::Close { conn, reason }),
            ConnectionKind::Domain(domid) => {
                self.reset_watches(conn);
                self.drop_output(conn);
                let tell = self.domains.features(domid) & feature::ERROR != 0;
                self.effects.push_back(Effect::Ignore { conn, domid, reason, tell });
            }
        }
    }

    /// The indices of a domain's ring cannot be: it is served no more.
    pub fn ring_failed(&mut self, conn: ConnId) {
        self.give_up(conn, CloseReason::RingIndex);
    }

    /// Drops all that waits for a connection, and all that it sent and is not served.
    pub(crate) fn drop_output(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        let causes = connection.release_buffers(&mut self.pool);
        causes.into_iter().for_each(|cause| self.delivered(cause));
    }

    /// Forgets changes whose events will not be sent.
    fn discard_changes(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Removed { root, .. } => self.store.bury(root),
                Change::Committed { removed, .. } => removed.into_iter().for_each(|(_, root)| self.store.bury(root)),
                Change::Set { .. } | Change::Registered(_) | Change::Released(_) => {}
            }
        }
    }

    /// About how many bytes were freed since [`Engine::clear_litter`]: an allocator may still keep them.
    #[must_use]
    pub fn litter(&self) -> usize {
        /// What a node, or a path of a transaction, takes at the least.
        const EACH: usize = 128;
        self.pool.dropped + self.store.freed * EACH
    }

    /// Gives up room that is not used any more, and begins to count afresh what is freed.
    pub fn clear_litter(&mut self) {
        self.store.nodes.shrink();
        self.pool.dropped = 0;
        self.store.freed = 0;
    }

    /// Whether there is something that the shell should do.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next thing that the shell should do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Turns [`Effect::Trace`] on or off.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    /// Whether the shell wants to know every message.
    pub(crate) fn is_tracing(&self) -> bool {
        self.tracing
    }

    /// Whether anything of a connection is still to be served or sent: while it is, a client that sends no more should
    /// not be closed.
    #[must_use]
    pub fn is_busy(&self, conn: ConnId) -> bool {
        self.connections.get(conn.index()).is_some_and(|connection| {
            let waiting = connection.ready || connection.asked.is_some() || !connection.output.unsent().is_empty();
            waiting && connection.closing.is_none()
        })
    }

    /// Goes on with the settings `now` in place of `before`, which the engine was started with: what differs between the
    /// two is set, and what was set meanwhile is kept otherwise. Whose store it is does not change.
    pub fn reconfigure(&mut self, before: &Config, now: &Config) {
        self.altered();
        self.config.keep_orphans = now.keep_orphans;
        self.config.event_timeout = now.event_timeout;
        for limit in Limit::all() {
            if before.limits.get(limit) != now.limits.get(limit) {
                self.domains.limits.set(limit, now.limits.get(limit));
            }
        }
    }

    /// The time of the last call that told one.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Tells the time of the calls that follow, where they do not tell it themselves.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// The connection of an introduced domain's ring.
    #[must_use]
    pub fn guest_connection(&self, domid: DomId) -> Option<ConnId> {
        self.domains.get(domid).and_then(|domain| domain.connection)
    }

    /// The open socket connections, in the order of their numbers.
    pub fn sockets(&self) -> impl Iterator<Item = ConnId> {
        let sockets = self.connections.iter().filter(|(_, connection)| connection.kind == ConnectionKind::Socket);
        sockets.filter_map(|(index, _)| u32::try_from(index).ok().map(ConnId))
    }

    /// Number of a connection among all that ever were; none where it is closed.
    #[must_use]
    pub fn life(&self, conn: ConnId) -> Option<u64> {
        self.connections.get(conn.index()).map(|connection| connection.life)
    }

    /// Whether a connection has watches or open transactions, which its client would miss.
    #[must_use]
    pub fn holds_state(&self, conn: ConnId) -> bool {
        let held = |connection: &Connection| connection.watches > 0 || !connection.transactions.is_empty();
        self.connections.get(conn.index()).is_some_and(held)
    }

    /// Number of open connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The domain that a connection speaks for.
    #[must_use]
    pub fn domid(&self, conn: ConnId) -> DomId {
        match self.connections.get(conn.index()).map(|connection| connection.kind) {
            Some(ConnectionKind::Domain(domid)) => domid,
            _ => self.config.store_domid,
        }
    }

    /// Feature bits that a domain is offered.
    #[must_use]
    pub fn features(&self, domid: DomId) -> u32 {
        self.domains.features(domid)
    }

    /// Who speaks on a connection.
    pub(crate) fn caller(&self, conn: ConnId) -> Caller {
        let domid = self.domid(conn);
        let privileged = domid == self.config.priv_domid;
        let target = if privileged { None } else { self.domains.target(domid) };
        Caller { domid, target, privileged }
    }

    /// A new number for a change.
    pub(crate) fn next_generation(&mut self) -> Generation {
        self.generation += 1;
        self.generation
    }

    /// Marks a connection as having output.
    pub(crate) fn has_output(&mut self, conn: ConnId, appended: usize) {
        self.appended += appended;
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        let first = connection.output.unsent().len() == appended;
        if first {
            connection.progress = self.now;
        }
        if !self.reading {
            connection.reads_since = None;
        } else if first {
            connection.reads_since = Some(self.kept);
        }
        if !connection.flushing {
            connection.flushing = true;
            self.flush.push_back(conn);
        }
    }

    /// Drops the watches and transactions of a connection.
    pub(crate) fn reset_watches(&mut self, conn: ConnId) {
        self.watches.unregister_all(conn);
        self.abort_all(conn);
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.watches = 0;
            connection.watch_bytes = 0;
        }
    }

    /// Records a moment where tracing is on.
    pub(crate) fn trace(&mut self, moment: impl FnOnce(&Self) -> Trace) {
        if self.tracing {
            let moment = moment(self);
            self.effects.push_back(Effect::Trace(moment));
        }
    }

    /// Records messages that go out where tracing is on.
    pub(crate) fn trace_out(&mut self, conn: ConnId, mut bytes: &[u8]) {
        while self.tracing
            && let Ok(Some((Message { header, payload }, rest))) = split_message(bytes)
        {
            self.trace(|engine| Trace::Out { conn, domid: engine.domid(conn), header, payload: payload.to_vec() });
            bytes = rest;
        }
    }
}

/// Whether a request changes nothing but what its reply is in: it reads, outside of any transaction.
fn only_reads(header: &Header) -> bool {
    use Op::{Directory, DirectoryPart, GetDomainPath, GetFeature, GetPerms, GetQuota, IsDomainIntroduced, Read};
    let reads = Op::from_number(header.op).is_some_and(|op| {
        matches!(
            op,
            Read | Directory | DirectoryPart | GetPerms | GetDomainPath | IsDomainIntroduced | GetFeature | GetQuota
        )
    });
    reads && header.tx_id == 0
}

mod image;
mod in_hand;
mod waiting;

#[cfg(test)]
mod alteration_tests;
#[cfg(test)]
mod ending_tests;
#[cfg(test)]
mod guest_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;
