//! The engine behind its journal: every call that changes it is recorded before it is made.
//!
//! What is only read goes straight to the engine. A turn of the loop in which nothing but reads happened, all answered
//! and sent, leaves no record: there is nothing in it that a daemon after this one would have to know.

use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::path::PathBuf;

use tracing::{error, warn};
use xenstore_core::{Config, ConnId, DomId, DomainEvent, Effect, Engine, Refused, Time};
use xenstore_journal::{Directory, Full, ImageWriter, Log, Mark, Received, TransferError};
use xenstore_wire::XsError;

use super::left;
use super::record::{HostPorts, NOBODY, RECEIVED, Reach, Record, RingPosition, SENT};
use super::settings;
use super::start::clear;
use super::state::ShellState;
use super::verdict;

/// Bytes read from a client at a time.
pub(crate) const READ_SIZE: usize = 16 << 10;

/// Bytes of records after which the journal is made short.
const LONG: usize = 32 << 20;

/// What files of the journal say of who wrote them.
pub(super) const WRITER: &str = concat!("xenstored-rs ", env!("CARGO_PKG_VERSION"));

/// An image could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageFailure {
    /// The file cannot be made or finished.
    #[error(transparent)]
    Journal(#[from] xenstore_journal::Error),
    /// It cannot be written to.
    #[error("an image cannot be written")]
    Write(#[from] io::Error),
}

/// The engine and the log of what it was given.
#[derive(Debug)]
pub(crate) struct Journaled {
    engine: Engine,
    log: Log,
    /// Where logs are made; none where nothing is kept.
    directory: Option<Directory>,
    /// Where they were made before that failed.
    given_up: Option<Directory>,
    /// What this daemon was started with.
    started: Config,
    /// A compaction is wanted, however short the log is.
    urgent: bool,
    /// Scratch of the encoder.
    fields: Vec<u8>,
    turn: Turn,
    /// By index of the connection: the last turn in which it had a record.
    stamps: Vec<u64>,
}

/// What happened since the loop last waited.
#[derive(Debug)]
struct Turn {
    number: u64,
    /// Where the log stood.
    mark: Mark,
    /// What the engine's count of changes was.
    alterations: u64,
    /// What its count of requests was.
    executed: u64,
    /// Connections that had a record.
    touched: Vec<ConnId>,
    /// Guests among them whose rings were moved, with where they stand.
    moved: Vec<(ConnId, RingPosition)>,
    /// What was put into rings since the last record, at most once into each.
    puts: Vec<Put>,
    /// Something was left over of a turn before: its records belong together with those of this one.
    continues: bool,
}

/// All that waited for a guest, put into its ring. The page tells of it: a daemon that goes on from the last record finds
/// those bytes waiting, and sees that they are in the ring. So it is recorded only where another record follows, before
/// that one, and nothing more can be put into the ring before that.
#[derive(Clone, Copy, Debug)]
struct Put {
    conn: ConnId,
    count: u32,
    /// Where the ring stood then.
    at: RingPosition,
}

impl Deref for Journaled {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Journaled {
    /// The engine, with `log` telling of it from now on, and others in `directory` after that.
    pub(crate) fn new(mut engine: Engine, log: Log, directory: Option<Directory>, started: Config) -> Self {
        verdict::note_in(&log, &mut engine);
        let turn = Turn {
            number: 1,
            mark: log.mark(),
            alterations: engine.alterations(),
            executed: engine.executed(),
            touched: Vec::new(),
            moved: Vec::new(),
            puts: Vec::new(),
            // Whatever comes before the first turn is kept.
            continues: true,
        };
        let (fields, stamps) = (Vec::new(), Vec::new());
        Self { engine, log, directory, given_up: None, started, urgent: false, fields, turn, stamps }
    }

    /// Writes down what the engine is at the beginning of a history.
    pub(crate) fn begin(&mut self) {
        let mut image = Vec::new();
        let saved = self.engine.save(|bytes| {
            image.extend_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        match saved {
            Ok(()) => {}
        }
        self.record(None, &Record::Began(&image));
        self.record_settings();
    }

    /// Goes on with the settings of this daemon in place of those of the last.
    pub(crate) fn follow(&mut self, before: &Config) {
        self.record_settings();
        self.engine.reconfigure(before, &self.started);
        // Who waited for them is gone.
        self.hold_transactions(false);
    }

    fn record_settings(&mut self) {
        let settings = settings::encode(&self.started);
        self.record(None, &Record::Started(settings.as_bytes()));
    }

    /// What this daemon was started with.
    pub(crate) fn started(&self) -> &Config {
        &self.started
    }

    /// Begins a turn of the loop at this time.
    pub(crate) fn begin_turn(&mut self, now: Time) {
        // What was put before the first turn has its own time.
        self.record_puts();
        self.engine.set_now(now);
    }

    /// Ends a turn: what nobody would have to know is taken back.
    pub(crate) fn end_turn(&mut self) {
        let turn = &self.turn;
        let alterations = self.engine.alterations();
        let settled = |conn: &ConnId| self.engine.is_settled(*conn);
        let leaves_nothing = !turn.continues && turn.alterations == alterations && turn.touched.iter().all(settled);
        // A guest whose place cannot be noted would be taken for one that began afresh: then all of it is kept.
        let noted = || {
            let mut moved = turn.moved.iter();
            moved.all(|(conn, at)| self.log.set_position(conn.number(), at.to_word(), turn.mark).is_ok())
        };
        if !self.log.is_kept() || (leaves_nothing && noted()) {
            self.turn.puts.clear();
            self.log.rewind(self.turn.mark);
            self.engine.set_executed(self.turn.executed);
        } else {
            self.record_puts();
            self.engine.keep();
        }
        let turn = &mut self.turn;
        turn.number += 1;
        turn.mark = self.log.mark();
        turn.alterations = self.engine.alterations();
        turn.executed = self.engine.executed();
        turn.touched.clear();
        turn.moved.clear();
        turn.continues = false;
    }

    /// Whether what happens is written into a journal.
    pub(crate) fn is_journaled(&self) -> bool {
        self.log.is_kept()
    }

    /// Whether the journal has become so long that it should be made short.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.log.len() >= LONG || self.urgent || self.given_up.is_some()
    }

    /// Goes on in a new log, for which [`Journaled::write_image`] then tells what comes before; returns its number.
    ///
    /// # Errors
    /// If the file cannot be made. The log of now goes on then.
    pub(crate) fn rotate(&mut self) -> Result<u64, xenstore_journal::Error> {
        self.record_puts();
        let log = match (&self.directory, self.given_up.take()) {
            (Some(directory), _) => self.log.next(directory, WRITER)?,
            (None, Some(directory)) => match Log::first(&directory, WRITER) {
                Ok(log) => {
                    self.directory = Some(directory);
                    log
                }
                Err(error) => {
                    self.given_up = Some(directory);
                    return Err(error);
                }
            },
            (None, None) => return Ok(self.log.number()),
        };
        self.urgent = false;
        self.go_on_in(log);
        self.turn.continues = false;
        Ok(self.log.number())
    }

    /// Writes down what the engine is, with the shell's part, for the log of now.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_image(&self, shell: &[u8]) -> Result<(), ImageFailure> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut image = ImageWriter::create(directory, self.log.heading())?;
        image.write_all(&(shell.len() as u64).to_le_bytes())?;
        image.write_all(shell)?;
        self.engine.save(|bytes| image.write_all(bytes))?;
        Ok(image.finish()?)
    }

    /// Where the image of a number is, where images are made.
    pub(crate) fn image(&self, number: u64) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.image(number))
    }

    /// Makes the journal short while nobody is served. `state` is what the shell of the daemon before knew.
    ///
    /// # Errors
    /// If a file cannot be made or written; it is tried again later then.
    pub(crate) fn compact_now(&mut self, state: &ShellState) -> Result<(), Box<dyn std::error::Error>> {
        let written = self.rotate().map_err(Into::into).and_then(|number| {
            self.write_image(&state.encode_again(&self.engine, &self.started))?;
            self.forget_before(number);
            Ok(())
        });
        if written.is_err() {
            self.compact_soon();
        }
        written
    }

    /// Removes logs and images that are of no use once the image of that number is whole.
    pub(crate) fn forget_before(&mut self, number: u64) {
        if let Some(Err(error)) = self.directory.as_ref().map(|directory| directory.remove_before(number)) {
            warn!(error = &error as &dyn std::error::Error, "old files of the journal stay");
        }
    }

    /// Has the journal made short soon.
    pub(crate) fn compact_soon(&mut self) {
        self.urgent = self.log.is_kept();
    }

    /// Notes that this turn has to do with a connection.
    fn touch(&mut self, conn: ConnId) {
        if self.stamps.len() <= conn.index() {
            self.stamps.resize(conn.index() + 1, 0);
        }
        if std::mem::replace(&mut self.stamps[conn.index()], self.turn.number) != self.turn.number {
            self.turn.touched.push(conn);
            self.turn.continues |= !self.engine.is_settled(conn);
        }
    }

    /// Records a call that is about to be made.
    fn record(&mut self, conn: Option<ConnId>, record: &Record<'_>) {
        self.record_puts();
        if let Some(conn) = conn {
            self.touch(conn);
        }
        self.append(conn, record);
    }

    /// Records what was put into rings, where anything was.
    fn record_puts(&mut self) {
        if self.turn.puts.is_empty() {
            return;
        }
        let mut puts = std::mem::take(&mut self.turn.puts);
        for Put { conn, count, at } in puts.drain(..) {
            self.append(Some(conn), &Record::Put(count, at));
        }
        self.turn.puts = puts;
    }

    fn append(&mut self, conn: Option<ConnId>, record: &Record<'_>) {
        if !self.log.is_kept() {
            return;
        }
        let (kind, bytes) = record.encode(&mut self.fields);
        let number = conn.map_or(NOBODY, ConnId::number);
        let time = nanoseconds(self.engine.now());
        while let Err(full) = self.log.append(kind, number, time, &[&self.fields, bytes]) {
            self.make_room(full);
        }
    }

    /// Makes room where the log has none: in the next one, or in memory where the file system is full.
    fn make_room(&mut self, full: Full) {
        let next = match (full, &self.directory) {
            (Full::AtCapacity, Some(directory)) => self.log.next(directory, WRITER).map_err(|error| error.to_string()),
            (Full::AtCapacity, None) => {
                // Nobody will read it.
                let start = self.log.start();
                self.log.rewind(start);
                self.turn.mark = start;
                return;
            }
            (Full::NoSpace(errno), _) => Err(errno.to_string()),
        };
        match next {
            Ok(next) => self.go_on_in(next),
            Err(error) => self.abandon(&error),
        }
    }

    /// Writes into another log from now on.
    fn go_on_in(&mut self, log: Log) {
        self.log = log;
        verdict::note_in(&self.log, &mut self.engine);
        self.turn.mark = self.log.mark();
        // The first records of this turn stay in the log before.
        self.turn.continues = true;
    }

    /// Leaves the store to another daemon, for which it is written into `file`: from the moment on at which that is gone, the
    /// journal is of no use. Nothing may be recorded until [`Journaled::stay`].
    ///
    /// # Errors
    /// If that cannot be noted.
    pub(crate) fn leave(&self, file: &Path) -> io::Result<()> {
        self.directory.as_ref().map_or(Ok(()), |directory| left::note(directory, file))
    }

    /// Goes on after [`Journaled::leave`], since nobody else does.
    pub(crate) fn stay(&self) {
        if let Some(Err(error)) = self.directory.as_ref().map(left::forget) {
            warn!(%error, "the journal may be taken for one that is of no use");
        }
    }

    /// Gives the journal up: what it tells would be an old store by and by, so it goes.
    pub(crate) fn abandon(&mut self, why: &str) {
        error!(why, "the journal cannot be written; until it can, the death of the daemon loses the store");
        if let Some(directory) = self.directory.take() {
            clear(&directory);
            self.given_up = Some(directory);
        }
        match Log::in_memory(WRITER) {
            Ok(log) => self.go_on_in(log),
            // Without address space for that nothing goes on for long.
            Err(error) => panic!("no memory for a log: {error}"),
        }
    }

    /// As [`Engine::open_socket`].
    pub(crate) fn open_socket(&mut self) -> Result<ConnId, Refused> {
        let conn = self.engine.open_socket()?;
        // It is nobody's yet, so the record comes in time though it comes after the call that tells its number.
        self.record(Some(conn), &Record::Open);
        Ok(conn)
    }

    /// Takes once what a client's socket has, at most [`READ_SIZE`] bytes, and has it served. Tells how many bytes that
    /// were; 0 is the end of what the client sends.
    ///
    /// # Errors
    /// Whatever the kernel said, `WouldBlock` included.
    pub(crate) fn receive_from(&mut self, conn: ConnId, socket: BorrowedFd<'_>, now: Time) -> io::Result<usize> {
        self.record_puts();
        self.touch(conn);
        let (number, time) = (conn.number(), nanoseconds(now));
        let received = loop {
            match self.log.receive(socket, RECEIVED, number, time, &[], READ_SIZE) {
                Err(TransferError::Full(full)) => self.make_room(full),
                Err(TransferError::Socket(error)) => return Err(error),
                Ok(received) => break received,
            }
        };
        let Received::Bytes { span, count } = received else { return Ok(0) };
        self.engine.receive(conn, self.log.bytes(span), now);
        Ok(count)
    }

    /// Sends what waits for a client, as far as its socket takes it. Tells whether that is all of it.
    ///
    /// # Errors
    /// Whatever the kernel said; a socket that takes nothing now is none.
    pub(crate) fn send_to(&mut self, conn: ConnId, socket: BorrowedFd<'_>) -> io::Result<bool> {
        self.record_puts();
        self.touch(conn);
        let (number, time) = (conn.number(), nanoseconds(self.engine.now()));
        let waiting = self.engine.output(conn).len();
        let sent = loop {
            match self.log.send(socket, SENT, number, time, self.engine.output(conn)) {
                Err(TransferError::Full(full)) => self.make_room(full),
                Err(TransferError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => break 0,
                Err(TransferError::Socket(error)) => return Err(error),
                Ok(sent) => break sent,
            }
        };
        if sent == 0 {
            self.sent_nothing(conn);
        } else {
            self.engine.sent(conn, sent);
        }
        Ok(sent == waiting)
    }

    /// Notes that a socket takes nothing now, which tells the engine of a slow reader.
    pub(crate) fn sent_nothing(&mut self, conn: ConnId) {
        self.record(Some(conn), &Record::Sent(0));
        self.engine.sent(conn, 0);
    }

    /// As [`Engine::receive`], for bytes that are in a ring still. The ring stands at `at` once they are taken out of it,
    /// which the caller does between this and [`Journaled::serve_taken`].
    pub(crate) fn record_taken(&mut self, conn: ConnId, at: RingPosition, bytes: &[u8]) {
        self.record(Some(conn), &Record::Taken(at, bytes));
        self.turn.moved.push((conn, at));
    }

    /// Serves what [`Journaled::record_taken`] recorded.
    pub(crate) fn serve_taken(&mut self, conn: ConnId, bytes: &[u8], now: Time) {
        self.engine.receive(conn, bytes, now);
    }

    /// As [`Engine::sent`], for a ring that stands at `at` now.
    pub(crate) fn put(&mut self, conn: ConnId, count: usize, at: RingPosition) {
        let (all, bytes) = (count == self.engine.output(conn).len(), u32::try_from(count).unwrap_or(u32::MAX));
        if all {
            self.touch(conn);
            self.turn.puts.push(Put { conn, count: bytes, at });
        } else {
            self.record(Some(conn), &Record::Put(bytes, at));
        }
        self.turn.moved.push((conn, at));
        self.engine.sent(conn, count);
    }

    /// As [`Engine::step`], where there is anything to step on with.
    pub(crate) fn step(&mut self, now: Time) {
        if self.engine.has_work() || self.engine.next_deadline().is_some_and(|due| due <= now) {
            self.turn.continues = true;
            self.record(None, &Record::Step);
            self.engine.step(now);
        }
    }

    /// As [`Engine::close`].
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.record(Some(conn), &Record::Closed);
        self.engine.close(conn);
    }

    /// As [`Engine::answer`].
    pub(crate) fn answer(&mut self, conn: ConnId, answer: Result<Vec<u8>, XsError>) {
        self.record(Some(conn), &Record::Answered(answer.as_deref().map_err(|error| *error)));
        self.engine.answer(conn, answer);
    }

    /// As [`Engine::answer_existence`].
    pub(crate) fn answer_existence(&mut self, conn: ConnId, existing: Vec<DomId>) {
        let record = Record::Existing(existing);
        self.record(Some(conn), &record);
        if let Record::Existing(existing) = record {
            self.engine.answer_existence(conn, &existing);
        }
    }

    /// As [`Engine::introduce`], for a domain that is reached so and whose ring stands at `at`.
    pub(crate) fn introduce(&mut self, reach: Reach, at: RingPosition) -> ConnId {
        self.record(None, &Record::Introduced(reach, at));
        self.turn.continues = true;
        self.engine.introduce(reach.domid)
    }

    /// Answers a connection's INTRODUCE with success and introduces the domain, both by one record: a death in between would
    /// leave a domain that is about to be introduced for ever.
    pub(crate) fn answer_introduction(&mut self, conn: ConnId, reach: Reach, at: RingPosition) -> ConnId {
        self.record(Some(conn), &Record::Introduced(reach, at));
        self.turn.continues = true;
        self.engine.answer(conn, Ok(xenstore_wire::OK.to_vec()));
        self.engine.introduce(reach.domid)
    }

    /// As [`Engine::domain_event`].
    pub(crate) fn domain_event(&mut self, event: DomainEvent) {
        if matches!(&event, DomainEvent::ShutDown(which) | DomainEvent::Gone(which) if which.is_empty()) {
            return;
        }
        let record = Record::Domains(event);
        self.record(None, &record);
        self.turn.continues = true;
        if let Record::Domains(event) = record {
            self.engine.domain_event(event);
        }
    }

    /// As [`Engine::reconnect`]; the ring is to be brought to its beginning then.
    pub(crate) fn reconnect(&mut self, conn: ConnId) -> bool {
        self.record(Some(conn), &Record::Reconnected);
        self.engine.reconnect(conn)
    }

    /// As [`Engine::hold_transactions`].
    pub(crate) fn hold_transactions(&mut self, on: bool) {
        if self.engine.holds_transactions() != on {
            self.record(None, &Record::Hold(on));
            self.turn.continues = true;
            self.engine.hold_transactions(on);
        }
    }

    /// As [`Engine::ring_failed`].
    pub(crate) fn ring_failed(&mut self, conn: ConnId) {
        self.record(Some(conn), &Record::RingFailed);
        self.engine.ring_failed(conn);
    }

    /// Notes that a guest is reached in another way from now on, and that its ring stands at `at`.
    pub(crate) fn rebound(&mut self, conn: ConnId, reach: Reach, at: RingPosition) {
        self.turn.continues = true;
        self.record(Some(conn), &Record::Rebound(reach, at));
    }

    /// As [`Engine::resume`], for an engine that came from elsewhere.
    pub(crate) fn resume(&mut self) {
        self.engine.resume();
    }

    /// Notes the daemon's own ports.
    pub(crate) fn host_ports(&mut self, ports: HostPorts) {
        self.turn.continues = true;
        self.record(None, &Record::Host(ports));
    }

    /// Connections that this turn had to do with so far.
    pub(crate) fn touched(&self) -> &[ConnId] {
        &self.turn.touched
    }

    /// As [`Engine::next_output`], which changes nothing that lasts.
    pub(crate) fn next_output(&mut self) -> Option<ConnId> {
        self.engine.next_output()
    }

    /// As [`Engine::defer`], which changes nothing that lasts.
    pub(crate) fn defer(&mut self, conn: ConnId) {
        self.engine.defer(conn);
    }

    /// As [`Engine::next_wanting`].
    pub(crate) fn next_wanting(&mut self) -> Option<ConnId> {
        self.engine.next_wanting()
    }

    /// As [`Engine::next_effect`]: what was not done at a death is asked for again.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.engine.next_effect()
    }

    /// As [`Engine::set_tracing`].
    pub(crate) fn set_tracing(&mut self, on: bool) {
        self.engine.set_tracing(on);
    }

    /// As [`Engine::clear_litter`].
    pub(crate) fn clear_litter(&mut self) {
        self.engine.clear_litter();
    }
}

/// A time as records have it.
fn nanoseconds(time: Time) -> u64 {
    u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)
}
