//! The loop: poll, feed, step, perform, flush.
//!
//! One thread does everything. A turn reads once from each client that sent something, lets the engine serve each
//! within its budget, does what the engine asks for, and sends all that came of it, each client's replies in one write.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mio::net::UnixListener;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use tracing::{error, info, warn};
use xen_ffi::process::trim_heap;
use xenstore_core::migration::Peer;
use xenstore_core::{CloseReason, Config, ConnId, DomId, Effect, Question, Time};
use xenstore_wire::Op;

use crate::client::Client;
use crate::clock;
use crate::effects::Effects;
use crate::guests::{Guests, HostError};
use crate::journal::{Compaction, HostPorts, Journaled, READ_SIZE, RingPosition, ShellState};
use crate::keeper::Key;
use crate::keeping::{Keeping, Orders};
use crate::live_update::LiveUpdate;
use crate::signals::{Signal, Signals};
use crate::take_over::Taken;
use crate::ticker::Ticker;
use crate::turn_times::TurnTimes;

const LISTENER: Token = Token(0);
const SIGNALS: Token = Token(1);

const TICKER: Token = Token(2);
const GUESTS: Token = Token(3);

const KEEPER: Token = Token(4);
const COMPACTION: Token = Token(5);
const UPDATE: Token = Token(6);

/// Token of the client whose connection has index 0.
const FIRST_CLIENT: usize = 7;

/// Connections accepted in one turn; then those that are there come first.
const ACCEPT_BUDGET: usize = 64;

/// When to try again to accept after descriptors ran out, if none of ours is freed before.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// A turn that took this long is worth a line in the log.
const LONG_TURN: Duration = Duration::from_secs(1);

/// Bytes freed after which the heap is looked at: the C library keeps what is freed for later, and a store that was
/// large for a moment would stay large for ever.
const HEAP_WORTH: usize = 4 << 20;

/// How long after that, so that it does not happen while much is still freed.
const HEAP_CALM: Duration = Duration::from_secs(1);

mod kept;
mod replacement;
mod trial;

pub(crate) use replacement::Identity;

/// How accepting goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// Nobody waits, as far as we know.
    Idle,
    /// Somebody may be waiting.
    Due,
    /// Descriptors ran out.
    Paused,
}

/// The daemon's loop and all that it drives.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poll: Poll,
    /// None until everything else is served.
    listener: Option<UnixListener>,
    signals: Signals,
    engine: Journaled,
    /// By index of the engine's connection.
    clients: Vec<Option<Client>>,
    /// Clients that may be read from.
    to_read: Vec<ConnId>,
    /// Those of this turn.
    reading: Vec<ConnId>,
    /// Clients of which a short read was taken for the end of what there is, until that is made sure of.
    doubted: Vec<ConnId>,
    ticker: Ticker,
    /// Rings and event channels, where domains are served.
    guests: Option<Guests>,
    compaction: Compaction,
    /// Live updates.
    update: LiveUpdate,
    /// The one that was asked to start.
    trial: Option<trial::Update>,
    /// Another daemon goes on.
    leaving: bool,
    /// What this daemon is, where another may be executed in its place.
    identity: Option<Identity>,
    /// How things are kept, for a keeper that is started later.
    orders: Option<Orders>,
    /// What is kept beyond the death of this process, where it is.
    keeping: Option<Keeping>,
    /// Clients that send no more, until all that they sent is served.
    ended: Vec<ConnId>,
    accepting: Accepting,
    /// Connections refused since descriptors ran out are not logged one by one.
    exhausted: bool,
    effects: Effects,
    turns: TurnTimes,
    /// When the heap is looked at next; none where nothing happened since.
    trim_at: Option<Duration>,
}

impl EventLoop {
    /// A loop that serves with `engine` whoever it is given.
    ///
    /// # Errors
    /// If the kernel has no descriptors left.
    pub(crate) fn new(mut signals: Signals, mut engine: Journaled, effects: Effects) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut signals, SIGNALS, Interest::READABLE)?;
        engine.set_tracing(effects.wants_trace());
        let ticker = Ticker::new(poll.registry(), TICKER)?;
        Ok(Self {
            poll,
            listener: None,
            signals,
            engine,
            clients: Vec::new(),
            to_read: Vec::new(),
            reading: Vec::new(),
            doubted: Vec::new(),
            ticker,
            guests: None,
            keeping: None,
            compaction: Compaction::default(),
            update: LiveUpdate::default(),
            trial: None,
            leaving: false,
            identity: None,
            orders: None,
            ended: Vec::new(),
            accepting: Accepting::Due,
            exhausted: false,
            effects,
            turns: TurnTimes::default(),
            trim_at: None,
        })
    }

    /// Serves the clients that come to `listener`.
    ///
    /// # Errors
    /// If the kernel refuses to watch it.
    pub(crate) fn serve_sockets(&mut self, mut listener: UnixListener) -> io::Result<()> {
        self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Serves domains too: the kernel of the store's own domain from now on, others as they are introduced.
    ///
    /// # Errors
    /// Where the host offers no Xen, or not the ring of this domain's kernel.
    pub(crate) fn serve_domains(&mut self, store_domid: DomId) -> Result<(), HostError> {
        let mut guests = Guests::open(self.poll.registry(), GUESTS)?;
        self.engine.host_ports(guests.ports());
        guests.serve_own_kernel(&mut self.engine, store_domid)?;
        guests.introduce_running(&mut self.engine, store_domid);
        self.guests = Some(guests);
        self.ticker.wind();
        Ok(())
    }

    /// As [`EventLoop::serve_domains`], for the domains of a daemon that is gone. `channels` are its event channels,
    /// where they were kept.
    ///
    /// # Errors
    /// As [`EventLoop::serve_domains`].
    pub(crate) fn serve_domains_again(
        &mut self,
        store_domid: DomId,
        channels: Option<OwnedFd>,
        state: &ShellState,
    ) -> Result<(), HostError> {
        let registry = self.poll.registry();
        let guests = Guests::recover(registry, GUESTS, channels, state, &mut self.engine, store_domid)?;
        self.guests = Some(guests);
        self.ticker.wind();
        Ok(())
    }

    /// Goes on with the guests and clients of another daemon.
    ///
    /// # Errors
    /// As [`EventLoop::serve_domains`]; then nothing of the other daemon's was touched.
    pub(crate) fn take_over(&mut self, taken: &mut Taken, own: DomId, host: bool) -> Result<(), HostError> {
        self.engine.resume();
        if host {
            let guests = Guests::take_over(self.poll.registry(), GUESTS, taken, &mut self.engine, own)?;
            self.guests = Some(guests);
            self.ticker.wind();
        }
        let sockets = std::mem::take(&mut taken.sockets);
        for ((saved, &conn), socket) in taken.state.connections.iter().zip(&taken.connections).zip(sockets) {
            match (saved.peer, socket) {
                (Peer::Socket { .. }, Some(socket)) => self.take_in_again(conn, socket),
                (Peer::Socket { .. }, None) => self.engine.close(conn),
                (Peer::Ring { .. }, _) => {}
            }
        }
        Ok(())
    }

    /// Takes in the socket of a connection that the engine knows.
    fn take_in_again(&mut self, conn: ConnId, socket: OwnedFd) {
        let stream = std::os::unix::net::UnixStream::from(socket);
        let taken = stream.set_nonblocking(true).and_then(|()| {
            let (token, registry) = (Token(FIRST_CLIENT + conn.index()), self.poll.registry());
            Client::register(mio::net::UnixStream::from_std(stream), conn, token, registry)
        });
        match taken {
            Ok(client) => self.put_client(client),
            Err(error) => {
                warn!(%error, "a client of before is lost");
                self.engine.close(conn);
            }
        }
    }

    /// Takes in the clients of a daemon that is gone, each with its connection's number among all that ever were.
    /// Connections whose socket was not kept are closed.
    pub(crate) fn take_in_kept(&mut self, kept: Vec<(u64, OwnedFd)>) {
        let sockets: BTreeMap<u64, ConnId> =
            self.engine.sockets().filter_map(|conn| Some((self.engine.life(conn)?, conn))).collect();
        for (life, socket) in kept {
            let stream = std::os::unix::net::UnixStream::from(socket);
            let Some(&conn) = sockets.get(&life) else {
                // It was closed, and the keeper not told any more.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                continue;
            };
            self.take_in_again(conn, stream.into());
        }
        for conn in sockets.into_values() {
            if self.client(conn).is_none() {
                self.engine.close(conn);
            }
        }
        info!(clients = self.clients.iter().flatten().count(), "clients go on");
    }

    fn put_client(&mut self, client: Client) {
        let index = client.conn.index();
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        self.clients[index] = Some(client);
    }

    /// The end is near, and wanted. True where a keeper holds what there is from then on.
    pub(crate) fn stopping(&mut self) -> bool {
        if self.keeping.is_some()
            && let Err(error) = self.keep_everything()
        {
            warn!(%error, "a client may be lost at the stop");
        }
        self.keeping.as_mut().is_some_and(Keeping::stopping)
    }

    /// Serves until a signal asks for the end.
    ///
    /// # Errors
    /// If polling fails: nothing can be served then.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut timeout = Some(Duration::ZERO);
        loop {
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let began = clock::now();
            self.engine.begin_turn(Time(began));
            if !self.take_events(&events) {
                self.effects.finish();
                return Ok(());
            }
            let more = self.turn(Time(began));
            if self.leaving {
                self.effects.finish();
                return Ok(());
            }
            let ended = clock::now();
            let took = ended.saturating_sub(began);
            self.turns.record(took);
            if took > LONG_TURN {
                warn!(milliseconds = took.as_millis(), "a turn of the loop took long");
            }
            self.look_at_heap(ended);
            self.compact(ended);
            if let Some(trial) = &mut self.trial {
                trial.look(ended);
            }
            timeout = self.timeout(more, ended);
        }
    }

    /// Takes what has happened and one turn, at a time of the caller's choice and without waiting. Tells whether that
    /// may have left something for the next.
    #[cfg(fuzzing)]
    pub(crate) fn run_once(&mut self, now: Duration) -> io::Result<bool> {
        let mut events = Events::with_capacity(1024);
        while let Err(error) = self.poll.poll(&mut events, Some(Duration::ZERO)) {
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.engine.begin_turn(Time(now));
        self.take_events(&events);
        let more = self.turn(Time(now));
        self.look_at_heap(now);
        Ok(!events.is_empty() || self.timeout(more, now) == Some(Duration::ZERO))
    }

    /// As if the ticker had rung.
    #[cfg(fuzzing)]
    pub(crate) fn look_for_forgetful(&mut self) {
        if let Some(guests) = &mut self.guests {
            guests.look_for_forgetful(&self.engine);
        }
    }

    /// Gives free memory back a while after much was freed.
    fn look_at_heap(&mut self, now: Duration) {
        match self.trim_at {
            Some(due) if due <= now => {
                trim_heap();
                self.engine.clear_litter();
                self.trim_at = None;
            }
            None if self.engine.litter() > HEAP_WORTH => self.trim_at = Some(now + HEAP_CALM),
            _ => {}
        }
    }

    /// Makes the journal short where it has become long.
    fn compact(&mut self, now: Duration) {
        if self.trial.as_ref().is_some_and(trial::Update::reads) {
            return;
        }
        let guests = self.guests.as_ref();
        let shell = |started: &Config| {
            let without = || ShellState::encode(started, HostPorts::default(), std::iter::empty());
            guests.map_or_else(without, |guests| guests.shell_state(started))
        };
        let registry = self.poll.registry();
        if self.compaction.start_if_due(&mut self.engine, shell, registry, COMPACTION, now).is_err() {
            self.made_short(None);
        }
    }

    /// How long to wait for events.
    fn timeout(&self, more: bool, now: Duration) -> Option<Duration> {
        if more || !self.to_read.is_empty() || self.accepting == Accepting::Due {
            return Some(Duration::ZERO);
        }
        let retry = (self.accepting == Accepting::Paused).then_some(now + ACCEPT_RETRY);
        let engine = self.engine.next_deadline().map(|deadline| deadline.0);
        let compaction = self.compaction.next_deadline(&self.engine);
        let trial = self.trial.as_ref().and_then(trial::Update::next_deadline);
        let all = [retry, self.effects.next_deadline(), engine, self.trim_at, compaction, trial];
        let next = all.into_iter().flatten().min();
        next.map(|next| next.saturating_sub(now))
    }

    /// Notes what the kernel tells; false where the end is asked for.
    fn take_events(&mut self, events: &Events) -> bool {
        if self.accepting == Accepting::Paused && events.is_empty() {
            self.accepting = Accepting::Due;
        }
        for event in events {
            match event.token() {
                LISTENER if self.accepting != Accepting::Paused => self.accepting = Accepting::Due,
                LISTENER => {}
                SIGNALS => {
                    for signal in self.signals.pending() {
                        match signal {
                            Signal::ReopenTrace => self.effects.reopen_trace(),
                            Signal::Terminate => return false,
                        }
                    }
                }
                GUESTS => {
                    if let Some(guests) = &mut self.guests {
                        guests.take_signals(&mut self.engine);
                    }
                }
                TICKER => {
                    self.ticker.rang();
                    if let Some(guests) = self.guests.as_mut().filter(|guests| guests.any()) {
                        guests.look_for_forgetful(&self.engine);
                        self.ticker.wind();
                    }
                    for conn in std::mem::take(&mut self.doubted) {
                        if let Some(client) = self.client(conn) {
                            client.doubted = false;
                            client.readable = true;
                            self.list(conn);
                        }
                    }
                    self.keep_grown();
                    self.let_transactions_go();
                }
                KEEPER => self.keeper_ended(),
                COMPACTION => {
                    let image = self.compaction.ended(&mut self.engine, self.poll.registry(), clock::now());
                    self.made_short(image);
                }
                UPDATE => self.candidate_ended(),
                Token(token) => {
                    let Some(client) = self.clients.get_mut(token - FIRST_CLIENT).and_then(Option::as_mut) else {
                        continue;
                    };
                    if event.is_readable() || event.is_error() {
                        client.closing |= event.is_read_closed();
                        client.readable = true;
                    }
                    let conn = client.conn;
                    let unblocked = event.is_writable() && client.unblock(self.poll.registry());
                    self.list(conn);
                    // The other end is closed altogether.
                    if event.is_write_closed() {
                        self.abandon_update_of(conn);
                    }
                    if unblocked {
                        self.flush_one(conn);
                    }
                }
            }
        }
        true
    }

    /// One turn; true where requests are left for the next.
    fn turn(&mut self, now: Time) -> bool {
        self.effects.begin_turn(now);
        if self.accepting == Accepting::Due {
            self.accept();
        }
        // Clients that are listed meanwhile have their turn in the next.
        std::mem::swap(&mut self.to_read, &mut self.reading);
        for at in 0..self.reading.len() {
            self.read(self.reading[at], now);
            if self.engine.output_is_urgent() {
                self.flush();
            }
        }
        self.reading.clear();
        if let Some(guests) = &mut self.guests {
            guests.serve(&mut self.engine, now);
        }
        self.engine.step(now);
        if self.engine.has_effects() {
            self.perform();
        }
        self.flush();
        if self.engine.has_effects() {
            self.perform();
        }
        if let Some(guests) = &mut self.guests {
            guests.send_signals();
        }
        self.end_clients();
        self.keep_holders();
        self.engine.end_turn();
        self.effects.end_turn(now);
        // Sending may have made room for requests that waited.
        self.engine.has_work() || self.guests.as_ref().is_some_and(|guests| guests.has_work(&self.engine))
    }

    /// Takes in those who wait to connect.
    fn accept(&mut self) {
        for _ in 0..ACCEPT_BUDGET {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => {
                    self.take_in(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.accepting = Accepting::Idle;
                    if self.exhausted {
                        self.exhausted = false;
                        self.effects.complain("descriptors", || info!("all who waited to connect are accepted"));
                    }
                    return;
                }
                Err(error) => {
                    self.pause_accepting(&error);
                    return;
                }
            }
        }
    }

    /// Descriptors or memory ran out, or one connection broke before it was taken.
    fn pause_accepting(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw);
        if matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) {
            self.accepting = Accepting::Paused;
            if !self.exhausted {
                self.exhausted = true;
                let clients = self.engine.connection_count();
                self.effects.complain("descriptors", || {
                    warn!(clients, %error, "no connection can be accepted until others end");
                });
            }
        }
    }

    fn take_in(&mut self, stream: mio::net::UnixStream) {
        let Ok(conn) = self.engine.open_socket() else { return };
        let token = Token(FIRST_CLIENT + conn.index());
        match Client::register(stream, conn, token, self.poll.registry()) {
            Ok(client) => {
                self.put_client(client);
                if let (Some(keeping), Some(life)) = (&mut self.keeping, self.engine.life(conn)) {
                    keeping.came(self.engine.now().0, conn, life);
                    self.ticker.wind();
                }
            }
            Err(error) => {
                self.engine.close(conn);
                warn!(%error, "a connection could not be taken in");
            }
        }
    }

    fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        self.clients.get_mut(conn.index()).and_then(Option::as_mut)
    }

    /// Puts a client that may have sent something onto the list of those to read from.
    fn list(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut)
            && client.readable
            && !client.listed
        {
            client.listed = true;
            self.to_read.push(conn);
        }
    }

    /// Reads once from a client, if its turn has come.
    fn read(&mut self, conn: ConnId, now: Time) {
        let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut) else { return };
        client.listed = false;
        // A client with requests waiting is listed again when they are served.
        if !client.readable || !self.engine.wants_input(conn) {
            return;
        }
        match self.engine.receive_from(conn, client.as_fd(), now) {
            Ok(0) => {
                client.readable = false;
                client.ended = true;
                self.ended.push(conn);
            }
            Ok(count) => {
                // Less than was asked for means that the kernel has no more, which saves asking again. It is not always so
                // (descriptors that are sent along end a read early), so the loop asks once more a while later.
                client.readable = client.closing || count == READ_SIZE;
                if !client.readable && !client.doubted {
                    client.doubted = true;
                    self.doubted.push(conn);
                    self.ticker.wind();
                }
                self.list(conn);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => client.readable = false,
            Err(_) => self.drop_client(conn),
        }
    }

    /// Sends what waits to be sent.
    fn flush(&mut self) {
        while let Some(conn) = self.engine.next_output() {
            self.flush_one(conn);
        }
    }

    fn flush_one(&mut self, conn: ConnId) {
        if let Some(guests) = self.guests.as_mut().filter(|guests| guests.has(conn)) {
            guests.flush(conn, &mut self.engine);
            return;
        }
        let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut) else { return };
        if client.blocked() {
            self.engine.sent_nothing(conn);
            return;
        }
        match self.engine.send_to(conn, client.as_fd()) {
            Ok(all) => {
                if !all && client.block(self.poll.registry()).is_err() {
                    self.drop_client(conn);
                    return;
                }
                // Reading may have waited for this.
                self.list(conn);
            }
            Err(_) => self.drop_client(conn),
        }
    }

    /// Does what the engine asks for, in its order.
    fn perform(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            self.perform_one(effect);
        }
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn, reason } => self.give_up(conn, &reason),
            Effect::Ask { conn, question: Question::LiveUpdate(words) } => self.live_update(conn, &words),
            Effect::Ask { conn, question: Question::Turns } => {
                let mut report = self.turns.report().into_bytes();
                report.push(0);
                self.engine.answer(conn, Ok(report));
            }
            Effect::Ask { conn, question: Question::Report { file } } => {
                let text = self.engine.memory_report().into_bytes();
                self.engine.answer(conn, self.effects.report(text, file.as_deref()));
            }
            Effect::Ask { conn, question: Question::Introduce { domid, gfn, port } } if self.guests.is_some() => {
                self.introduce(conn, domid, gfn, port);
            }
            Effect::Ask { conn, question: Question::Exist(domids) } => {
                let existing = self.guests.as_ref().map(|guests| guests.existing(&domids)).unwrap_or_default();
                self.engine.answer_existence(conn, existing);
            }
            Effect::Ask { conn, question } => {
                let answer = self.effects.answer(question);
                self.engine.set_tracing(self.effects.wants_trace());
                self.engine.answer(conn, answer);
            }
            Effect::Trace(moment) => {
                let pid = moment.conn().and_then(|conn| self.clients.get(conn.index())?.as_ref()?.pid);
                self.effects.trace(&moment, pid);
            }
            Effect::Note(note) => self.effects.note(note),
            Effect::Release { conn, .. } => {
                if let Some(guests) = &mut self.guests {
                    guests.release(conn);
                }
                // Its number may be given to somebody else from here on.
                self.engine.close(conn);
            }
            Effect::Ignore { conn, reason, tell, .. } => {
                if let Some(guests) = &mut self.guests {
                    guests.ignore(conn, &reason, tell);
                }
            }
        }
    }

    /// Introduces a domain for a client: its reply comes before the events.
    fn introduce(&mut self, conn: ConnId, domid: DomId, gfn: u64, port: u32) {
        let Some(guests) = &mut self.guests else { return };
        match guests.introduce(&self.engine, domid, gfn, port) {
            Ok(prepared) => {
                let guest = self.engine.answer_introduction(conn, prepared.reach, RingPosition::default());
                guests.introduced(guest, prepared);
            }
            Err(error) => self.engine.answer(conn, Err(error)),
        }
    }

    /// Ends a connection that the engine gave up, after a last attempt to send what waits.
    fn give_up(&mut self, conn: ConnId, reason: &CloseReason) {
        let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut) else { return };
        let client_pid = client.pid;
        match reason {
            CloseReason::TooLong { len } => {
                self.effects.complain("payload", || {
                    warn!(client_pid, len, "a client announced a payload that is too long; its connection is closed");
                });
            }
            CloseReason::OutputFull { bytes } => {
                self.effects.complain("unread", || {
                    warn!(client_pid, bytes, "a client does not read what it is sent; its connection is closed");
                });
            }
            CloseReason::RingIndex | CloseReason::Gone => {}
            CloseReason::Failed { what, op } => {
                let op = Op::from_number(*op).map_or("unknown", Op::name);
                error!(client_pid, op, what, "the daemon failed at a request; its connection is closed");
            }
        }
        // A last attempt; how it goes changes nothing any more.
        if !client.blocked() {
            let _ = self.engine.send_to(conn, client.as_fd());
        }
        self.drop_client(conn);
    }

    /// Closes the connections of clients that send no more and have all their answers.
    fn end_clients(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.retain(|&conn| {
            let waits = self.client(conn).is_some_and(|client| client.ended) && self.engine.is_busy(conn);
            if !waits && self.client(conn).is_some_and(|client| client.ended) {
                self.drop_client(conn);
            }
            waits
        });
        ended.append(&mut self.ended);
        self.ended = ended;
    }

    fn drop_client(&mut self, conn: ConnId) {
        if let Some(mut client) = self.clients.get_mut(conn.index()).and_then(Option::take) {
            if let (true, Some(keeping), Some(life)) = (client.kept, &mut self.keeping, self.engine.life(conn)) {
                // The keeper's copy would keep the client waiting and the poll telling of it.
                client.end(self.poll.registry());
                keeping.let_go(Key::Client(life));
            }
            drop(client);
            self.engine.close(conn);
            if self.accepting == Accepting::Paused {
                self.accepting = Accepting::Due;
            }
        }
    }
}
