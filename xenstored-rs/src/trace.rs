//! The trace file: one line for every message and for every object that comes and goes.
//!
//! The lines are those of the C daemon, so that existing scripts read them, with two differences: bytes of a payload
//! that would break a line are written as `\xNN` (a guest must not be able to forge lines), and what is known about
//! the client and the outcome follows as `name=value` after the closing parenthesis.
//!
//! ```text
//! io: IN 0x1c (d0) 20260131 14:05:09 READ (/local/domain/1/name ) pid=812
//! io: OUT 0x1c (d0) 20260131 14:05:09 READ (guest) pid=812 op=READ path=/local/domain/1/name result=OK us=4
//! obj: CREATE transaction 0x1d
//! ```
//!
//! Lines are collected in memory and written by [`Trace::flush`], once a turn of the event loop. A file that cannot be
//! written is reported once and never stops the daemon; when it works again, the file itself says how many lines are
//! missing.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use xenstore_wire::Op;

pub use crate::trace_switch::{TraceSwitch, TraceSwitches, UnknownTraceSwitch};
use crate::trace_text::{put_decimal, put_hex, put_payload, put_word};

/// Collected bytes above which lines are written without waiting for the end of the turn.
const BUFFER_TARGET: usize = 64 * 1024;

/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A whole request came in.
    In,
    /// A message went out at once.
    Out,
    /// The first bytes of a message went out, the rest is waiting.
    OutStart,
    /// The last bytes of such a message went out.
    OutEnd,
    /// A message could not be sent.
    OutErr,
}

impl Direction {
    const fn label(self) -> &'static str {
        match self {
            Self::In => "IN",
            Self::Out => "OUT",
            Self::OutStart => "OUT(START)",
            Self::OutEnd => "OUT(END)",
            Self::OutErr => "OUT(ERR)",
        }
    }
}

/// What became of a request; goes with the line of its reply.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Message type number of the request.
    pub op: u32,
    /// The node asked for, empty if there was none.
    pub path: &'a [u8],
    /// `OK` or the name of the error.
    pub result: &'a str,
    /// From taking the request to having its reply.
    pub duration: Duration,
}

/// One message, to be traced by [`Trace::io`].
#[derive(Clone, Copy, Debug)]
pub struct IoLine<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// Number of the connection.
    pub connection: u64,
    /// Domain of the connection; 0 for a socket.
    pub domid: u16,
    /// Process at the other end of a socket, if known.
    pub client_pid: Option<i32>,
    /// Message type number.
    pub op: u32,
    /// The message's payload.
    pub payload: &'a [u8],
    /// On replies: what they answer.
    pub outcome: Option<Outcome<'a>>,
}

/// A failure to open or write the trace file.
#[derive(Debug, thiserror::Error)]
#[error("trace file {path}: cannot {action}", path = path.display())]
pub struct TraceError {
    path: PathBuf,
    action: &'static str,
    #[source]
    source: io::Error,
}

/// Where the lines go.
#[derive(Debug)]
struct Sink {
    path: PathBuf,
    file: File,
}

/// The trace of the daemon. Without a file, or after [`Trace::close`], every call is cheap and does nothing.
#[derive(Debug)]
pub struct Trace {
    switches: TraceSwitches,
    /// The file to open when tracing is switched on.
    path: Option<PathBuf>,
    sink: Option<Sink>,
    buffer: Vec<u8>,
    lines_in_buffer: u64,
    /// Lines that could not be written since the last success; above zero means that the failure was reported.
    lost: u64,
    /// A failure that happened between two flushes.
    failure: Option<TraceError>,
    stamp: Stamp,
}

impl Trace {
    /// A trace that writes nothing until it gets a file.
    #[must_use]
    pub fn new(switches: TraceSwitches) -> Self {
        Self {
            switches,
            path: None,
            sink: None,
            buffer: Vec::new(),
            lines_in_buffer: 0,
            lost: 0,
            failure: None,
            stamp: Stamp::new(TimeZone::system()),
        }
    }

    /// What is traced.
    #[must_use]
    pub const fn switches(&self) -> TraceSwitches {
        self.switches
    }

    /// For changing what is traced.
    pub const fn switches_mut(&mut self) -> &mut TraceSwitches {
        &mut self.switches
    }

    /// Whether a line of this kind would be written. Ask before collecting what only the line needs.
    #[must_use]
    pub fn wants(&self, switch: TraceSwitch) -> bool {
        self.sink.is_some() && self.switches.is_on(switch)
    }

    /// Whether a file is open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.sink.is_some()
    }

    /// Writes what is collected, then goes on in this file; it is created with mode 0600 or appended to.
    ///
    /// # Errors
    /// If the file cannot be opened. Tracing then goes on where it was.
    pub fn set_file(&mut self, path: PathBuf) -> Result<(), TraceError> {
        let file = open(&path)?;
        self.write_out();
        self.sink = Some(Sink { path: path.clone(), file });
        self.path = Some(path);
        self.buffer.extend_from_slice(b"\n***\n");
        Ok(())
    }

    /// Opens the file by its name again: after a rotation, and after [`Trace::close`].
    ///
    /// Collected lines go to the old file first, so that none is lost.
    ///
    /// # Errors
    /// If the file cannot be opened. Tracing then goes on in the old one.
    pub fn reopen(&mut self) -> Result<(), TraceError> {
        match self.path.clone() {
            Some(path) => self.set_file(path),
            None => Ok(()),
        }
    }

    /// Writes what is collected and stops tracing. The file's name is kept for [`Trace::reopen`].
    pub fn close(&mut self) {
        self.write_out();
        self.sink = None;
    }

    /// The wall clock for the lines to come. Once a turn is enough: lines show whole seconds.
    pub const fn set_time(&mut self, now: SystemTime) {
        self.stamp.now = now;
    }

    /// Traces a message, if messages are traced.
    pub fn io(&mut self, line: &IoLine<'_>) {
        if !self.wants(TraceSwitch::Io) {
            return;
        }
        let out = &mut self.buffer;
        out.extend_from_slice(b"io: ");
        out.extend_from_slice(line.direction.label().as_bytes());
        out.push(b' ');
        put_hex(out, line.connection);
        out.extend_from_slice(b" (d");
        put_decimal(out, line.domid.into());
        out.extend_from_slice(b") ");
        out.extend_from_slice(self.stamp.text());
        out.push(b' ');
        out.extend_from_slice(op_name(line.op));
        out.extend_from_slice(b" (");
        put_payload(out, line.payload);
        out.push(b')');
        if let Some(pid) = line.client_pid {
            out.extend_from_slice(b" pid=");
            put_decimal(out, pid.unsigned_abs().into());
        }
        if let Some(outcome) = line.outcome {
            out.extend_from_slice(b" op=");
            out.extend_from_slice(op_name(outcome.op));
            out.extend_from_slice(b" path=");
            put_word(out, outcome.path);
            out.extend_from_slice(b" result=");
            out.extend_from_slice(outcome.result.as_bytes());
            out.extend_from_slice(b" us=");
            put_decimal(out, u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX));
        }
        self.end_line();
    }

    /// Traces that an object came into being.
    pub fn create(&mut self, kind: &str, id: u64) {
        self.line(TraceSwitch::Obj, format_args!("CREATE {kind} {id:#x}"));
    }

    /// Traces that an object is gone.
    pub fn destroy(&mut self, kind: &str, id: u64) {
        self.line(TraceSwitch::Obj, format_args!("DESTROY {kind} {id:#x}"));
    }

    /// Traces a line of our own text, which must not hold what a guest wrote.
    pub fn line(&mut self, switch: TraceSwitch, text: fmt::Arguments<'_>) {
        if self.wants(switch) {
            // Writing to a Vec cannot fail.
            write!(self.buffer, "{}: {text}", switch.name()).unwrap_or_default();
            self.end_line();
        }
    }

    /// Writes text whatever the switches say (memory reports, the print command); a line break is added. Bytes that
    /// would break the line are escaped unless they are line breaks.
    pub fn print(&mut self, text: &[u8]) {
        if self.sink.is_some() {
            self.buffer.extend_from_slice(b"control: ");
            put_payload(&mut self.buffer, text);
            self.end_line();
        }
    }

    /// Writes what was collected since the last call. Call it once a turn.
    ///
    /// # Errors
    /// The first failure after a success; those that follow are silent.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.write_out();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn end_line(&mut self) {
        self.buffer.push(b'\n');
        self.lines_in_buffer += 1;
        if self.buffer.len() >= BUFFER_TARGET {
            self.write_out();
        }
    }

    /// Empties the buffer into the file, or drops it.
    fn write_out(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut self.lines_in_buffer);
        if let Some(sink) = &mut self.sink {
            let notice = match self.lost {
                0 => Ok(()),
                lost => sink.file.write_all(format!("\n*** {lost} lines lost\n").as_bytes()),
            };
            match notice.and_then(|()| sink.file.write_all(&self.buffer)) {
                Ok(()) => self.lost = 0,
                Err(source) => {
                    if self.lost == 0 {
                        self.failure = Some(TraceError { path: sink.path.clone(), action: "write", source });
                    }
                    self.lost += lines.max(1);
                }
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_TARGET);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.write_out();
    }
}

fn open(path: &Path) -> Result<File, TraceError> {
    // Rust opens with O_CLOEXEC. O_NONBLOCK keeps a pipe without a reader from stopping the daemon; regular files
    // ignore it.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)
        .map_err(|source| TraceError { path: path.into(), action: "open", source })
}

fn op_name(number: u32) -> &'static [u8] {
    Op::from_number(number).map_or("**UNKNOWN**", Op::name).as_bytes()
}

/// Local time as `YYYYMMDD HH:MM:SS`, made once a second.
#[derive(Debug)]
struct Stamp {
    zone: TimeZone,
    now: SystemTime,
    /// The second that `text` shows.
    second: Option<u64>,
    text: String,
}

impl Stamp {
    const fn new(zone: TimeZone) -> Self {
        Self { zone, now: SystemTime::UNIX_EPOCH, second: None, text: String::new() }
    }

    fn text(&mut self) -> &[u8] {
        let second = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            let moment = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
            let moment = moment.unwrap_or_default().to_zoned(self.zone.clone());
            // A String takes every write.
            write!(self.text, "{}", moment.strftime("%Y%m%d %H:%M:%S")).unwrap_or_default();
        }
        self.text.as_bytes()
    }
}

#[cfg(test)]
mod tests;
