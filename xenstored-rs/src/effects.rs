//! What the engine asks for beside bytes: log lines, the trace, and answers that need files.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{ffi::OsStr, fs::OpenOptions, io, io::Write, os::unix::fs::OpenOptionsExt};

use tracing::{info, warn};
use xenstore_core::{ConnId, Note, Question, Time, Trace as Moment};
use xenstore_wire::{Op, XsError, payload};

use crate::rate_limit::{Admission, RateLimited};
use crate::run_dir::RunDir;
use crate::trace::{Direction, IoLine, Outcome, Trace, TraceSwitch};

/// Lines of one kind about one domain in each interval.
const LINES: u32 = 3;

/// The interval.
const INTERVAL: Duration = Duration::from_secs(60);

/// A kind of log line, and the domain or client that it is about.
type Key = (&'static str, u32);

/// A request that was traced and not yet answered.
#[derive(Debug)]
struct Pending {
    op: u32,
    req_id: u32,
    path: Vec<u8>,
}

/// Log and trace.
#[derive(Debug)]
pub(crate) struct Effects {
    trace: Trace,
    files: RunDir,
    gate: RateLimited<Key>,
    pending: BTreeMap<ConnId, Pending>,
    now: Time,
    /// When this turn began, as a traced request sees it.
    since: std::time::Instant,
}

impl Effects {
    /// Log lines and trace lines of a daemon with these files.
    #[must_use]
    pub(crate) fn new(trace: Trace, files: RunDir) -> Self {
        Self {
            trace,
            files,
            gate: RateLimited::new(LINES, INTERVAL),
            pending: BTreeMap::new(),
            now: Time::default(),
            since: std::time::Instant::now(),
        }
    }

    /// Whether messages are traced.
    #[must_use]
    pub(crate) fn wants_trace(&self) -> bool {
        self.trace.wants(TraceSwitch::Io) || self.trace.wants(TraceSwitch::Obj)
    }

    /// A turn begins.
    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.now = now;
        if self.trace.is_open() {
            self.set_clock();
        }
    }

    /// What the lines of the trace say of time from here on.
    fn set_clock(&mut self) {
        self.since = std::time::Instant::now();
        self.trace.set_time(SystemTime::now());
    }

    /// A turn ends: what was traced goes to its file, and lines that were held back are counted.
    pub(crate) fn end_turn(&mut self, now: Time) {
        if let Err(error) = self.trace.flush() {
            warn!(error = &error as &dyn std::error::Error, "tracing fails");
        }
        if self.gate.next_deadline().is_some_and(|deadline| deadline <= now.0) {
            for ((what, whom), suppressed) in self.gate.take_expired(now.0) {
                info!(what, whom, suppressed, "lines were held back");
            }
        }
    }

    /// When [`Effects::end_turn`] is due, should nothing happen before.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.gate.next_deadline()
    }

    /// Opens the trace file by its name again.
    pub(crate) fn reopen_trace(&mut self) {
        if let Err(error) = self.trace.reopen() {
            warn!(error = &error as &dyn std::error::Error, "the trace goes on in its old file");
        }
    }

    /// The daemon ends.
    pub(crate) fn finish(&mut self) {
        self.trace.close();
    }

    /// Writes a log line unless there were enough of its kind.
    pub(crate) fn complain(&mut self, what: &'static str, line: impl FnOnce()) {
        self.admit((what, u32::MAX), line);
    }

    fn admit(&mut self, key: Key, line: impl FnOnce()) {
        if let Admission::Write { suppressed } = self.gate.admit(&key, self.now.0) {
            if suppressed > 0 {
                info!(what = key.0, whom = key.1, suppressed, "lines were held back");
            }
            line();
        }
    }

    /// Writes what a person should read.
    pub(crate) fn note(&mut self, note: Note) {
        match note {
            Note::QuotaHit(hit) => {
                let (domid, quota, limit) = (hit.domid.0, hit.quota.name(), hit.limit);
                self.admit((quota, u32::from(domid)), || warn!(domid, quota, limit, "a domain ran into its quota"));
            }
            Note::SoftMemory { domid, bytes, limit, over } => self.admit(("soft-memory", u32::from(domid.0)), || {
                let domid = domid.0;
                if over {
                    warn!(domid, bytes, limit, "a domain holds more memory than its soft limit");
                } else {
                    info!(domid, bytes, limit, "a domain is back below its soft limit of memory");
                }
            }),
            Note::Slowed { domid, penalty } => self.admit(("slowed", u32::from(domid.0)), || {
                let (domid, milliseconds) = (domid.0, penalty.as_millis());
                warn!(domid, milliseconds, "a domain's writes spoil the transactions of others; it waits");
            }),
            Note::TransactionLost { domid } => self.admit(("transaction", u32::from(domid.0)), || {
                let domid = domid.0;
                warn!(domid, "a domain's transaction fails: what is kept for those of guests takes too much memory");
            }),
            Note::BuffersFull { held } => self.complain("buffers", || {
                warn!(held, "connections hold all the memory that they may; a new one was refused");
            }),
            Note::Print(text) => {
                self.trace.print(&text);
                info!("control: {}", text.escape_ascii());
            }
            Note::Mended(what) => warn!("the accounts were wrong and are mended: {what}"),
        }
    }

    /// Answers a question that needs files or the host.
    pub(crate) fn answer(&mut self, question: Question) -> Result<Vec<u8>, XsError> {
        // The trace may be opened by this, in the middle of a turn.
        self.set_clock();
        match question {
            Question::Log(words) => self.log(&words),
            Question::LogFile(name) => {
                let path = self.files.resolve(Path::new(OsStr::from_bytes(&name))).map_err(|_| XsError::Inval)?;
                self.trace.set_file(path).map_err(|error| failed(&error))?;
                Ok(xenstore_wire::OK.to_vec())
            }
            Question::Introduce { domid, .. } => {
                self.admit(("introduce", u32::from(domid.0)), || {
                    warn!(domid = domid.0, "a domain was to be introduced, but this daemon serves sockets only");
                });
                Err(XsError::Inval)
            }
            // Answered by the loop, which has the figures and the host.
            Question::Turns | Question::LiveUpdate(_) | Question::Exist(_) | Question::Report { .. } => {
                Err(XsError::Io)
            }
        }
    }

    /// `memreport`: the reply with the report, or to its being appended to a file.
    pub(crate) fn report(&self, mut text: Vec<u8>, file: Option<&[u8]>) -> Result<Vec<u8>, XsError> {
        let Some(file) = file else {
            text.push(0);
            return Ok(text);
        };
        let path = self.files.resolve(Path::new(OsStr::from_bytes(file))).map_err(|_| XsError::Inval)?;
        append(&path, &text).map_err(|error| failed(&error))?;
        Ok(xenstore_wire::OK.to_vec())
    }

    /// `log`: shows the switches, opens or closes the trace, or turns a switch.
    fn log(&mut self, words: &[Vec<u8>]) -> Result<Vec<u8>, XsError> {
        match words {
            [] => {
                let mut text = self.trace.switches().listing().into_bytes();
                text.push(0);
                return Ok(text);
            }
            [word] if word == b"on" => self.trace.reopen().map_err(|error| failed(&error))?,
            [word] if word == b"off" => self.trace.close(),
            [word] => {
                let switch = std::str::from_utf8(word).map_err(|_| XsError::Inval)?;
                self.trace.switches_mut().change(switch).map_err(|_| XsError::Inval)?;
            }
            _ => return Err(XsError::Inval),
        }
        Ok(xenstore_wire::OK.to_vec())
    }

    /// Writes a line into the trace.
    pub(crate) fn trace(&mut self, moment: &Moment, client_pid: Option<i32>) {
        let number = |conn: ConnId| conn.index() as u64;
        match moment {
            Moment::In { conn, domid, header, payload } => {
                let path = payload::string_and_rest(payload).map_or(&[][..], |(path, _)| path).to_vec();
                self.pending.insert(*conn, Pending { op: header.op, req_id: header.req_id, path });
                let direction = Direction::In;
                let (connection, domid, op) = (number(*conn), domid.0, header.op);
                self.trace.io(&IoLine { direction, connection, domid, client_pid, op, payload, outcome: None });
            }
            Moment::Out { conn, domid, header, payload } => {
                let is_reply = header.op != Op::WatchEvent.number();
                let pending = if is_reply { self.pending.remove(conn) } else { None };
                let error = payload.strip_suffix(b"\0").and_then(|name| std::str::from_utf8(name).ok());
                let outcome =
                    pending.as_ref().filter(|pending| pending.req_id == header.req_id).map(|pending| Outcome {
                        op: pending.op,
                        path: &pending.path,
                        result: if header.op == Op::Error.number() { error.unwrap_or("?") } else { "OK" },
                        duration: self.since.elapsed(),
                    });
                let direction = Direction::Out;
                let (connection, domid, op) = (number(*conn), domid.0, header.op);
                self.trace.io(&IoLine { direction, connection, domid, client_pid, op, payload, outcome });
            }
            Moment::Create { kind, conn } => self.trace.create(kind, number(*conn)),
            Moment::Destroy { kind, conn } => {
                if *kind == "connection" {
                    self.pending.remove(conn);
                }
                self.trace.destroy(kind, number(*conn));
            }
        }
    }
}

/// Appends to a regular file; anything else could make the daemon wait.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.write_all(text)
}

/// The error of the wire that a failed file operation comes closest to.
fn failed(error: &(dyn std::error::Error + 'static)) -> XsError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return XsError::ALL.iter().copied().find(|error| error.errno() == errno).unwrap_or(XsError::Inval);
        }
        cause = error.source();
    }
    XsError::Inval
}
