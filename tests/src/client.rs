//! One connection to a store daemon, by the bytes of the wire.

use crate::wait::PATIENCE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use xenstore_wire::{Decoder, Header, Op, put_message};

/// Why nothing came.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The daemon closed the connection.
    Closed,
    /// The deadline passed.
    Timeout,
    /// What came is no xenstore message.
    Garbage(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the daemon closed the connection"),
            Self::Timeout => f.write_str("nothing came in time"),
            Self::Garbage(what) => write!(f, "no xenstore message: {what}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Garbage(error.to_string()),
        }
    }
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Type, ids and length as received.
    pub header: Header,
    /// The bytes behind the header.
    pub payload: Vec<u8>,
}

impl Reply {
    /// The name of the error, without its NUL, if this is an error reply.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let name = self.payload.strip_suffix(b"\0").unwrap_or(&self.payload);
        (self.header.op == Op::Error.number()).then(|| String::from_utf8_lossy(name).into_owned())
    }

    /// The payload of a success, the name of the error otherwise.
    ///
    /// # Errors
    /// The error's name, without its NUL.
    pub fn result(&self) -> Result<&[u8], String> {
        self.error().map_or(Ok(&self.payload), Err)
    }
}

/// One watch event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The path that changed, as the daemon names it to this watcher.
    pub path: String,
    /// The watch's token.
    pub token: String,
}

impl Event {
    /// An event of this path and token.
    #[must_use]
    pub fn new(path: &str, token: &str) -> Self {
        Self { path: path.into(), token: token.into() }
    }
}

/// What a connection delivered, in the order it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The answer to a request.
    Reply(Reply),
    /// A watch event.
    Event(Event),
}

/// A blocking client: requests out, replies and events in, each with a deadline.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: Decoder,
    arrived: VecDeque<Wire>,
    next_req_id: u32,
    patience: Duration,
}

impl Client {
    /// Connects to the daemon that listens at `socket`.
    ///
    /// # Errors
    /// Those of `connect`.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, decoder: Decoder::new(), arrived: VecDeque::new(), next_req_id: 1, patience: PATIENCE })
    }

    /// Sets how long a reply or event may take from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The socket itself, for tests that misbehave on it.
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Whether anything has come that is not taken yet.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        let mut wanted = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        !self.arrived.is_empty() || poll(&mut wanted, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Turns of the daemon's loop, by its own count; `None` where it tells none.
    pub fn turns(&mut self) -> Option<u64> {
        let report = self.request(Op::Control, b"turns\0").ok()?;
        let report = String::from_utf8(report).ok()?;
        report.lines().find_map(|line| line.strip_prefix("count")?.trim().strip_prefix(':')?.trim().parse().ok())
    }

    /// Sends a request and returns its `req_id`, without waiting.
    ///
    /// # Errors
    /// [`ClientError::Closed`], or [`ClientError::Timeout`] when the daemon takes nothing more.
    pub fn send(&mut self, op: u32, tx_id: u32, payload: &[u8]) -> Result<u32, ClientError> {
        let req_id = self.next_req_id;
        self.next_req_id += 1;
        let mut bytes = Vec::new();
        put_message(&mut bytes, op, req_id, tx_id, payload);
        self.send_raw(&bytes)?;
        Ok(req_id)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Tells the daemon that no more requests will come; replies can still be read.
    ///
    /// # Errors
    /// Those of `shutdown`.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Reads from the socket once.
    fn fill(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 65536];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.decoder.push(&bytes[..count]);
        while let Some(message) = self.decoder.next_message().map_err(|e| ClientError::Garbage(e.to_string()))? {
            let (header, payload) = (message.header, message.payload.to_vec());
            self.arrived.push_back(if header.op == Op::WatchEvent.number() {
                Wire::Event(event(&header, &payload)?)
            } else {
                Wire::Reply(Reply { header, payload })
            });
        }
        Ok(())
    }

    /// Takes the first arrival that `want` accepts, reading more until there is one.
    fn first<T>(&mut self, want: impl Fn(&Wire) -> Option<T>) -> Result<T, ClientError> {
        let deadline = Instant::now() + self.patience;
        loop {
            let found = self.arrived.iter().enumerate().find_map(|(at, wire)| Some((at, want(wire)?)));
            if let Some((at, found)) = found {
                self.arrived.remove(at);
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(ClientError::Timeout);
            }
            self.fill(deadline)?;
        }
    }

    /// The next thing that the daemon sends, reply or event.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn arrival(&mut self) -> Result<Wire, ClientError> {
        self.first(|wire| Some(wire.clone()))
    }

    /// The next reply; events in front of it are kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn reply(&mut self) -> Result<Reply, ClientError> {
        self.first(|wire| match wire {
            Wire::Reply(reply) => Some(reply.clone()),
            Wire::Event(_) => None,
        })
    }

    /// The next event; replies in front of it are kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn event(&mut self) -> Result<Event, ClientError> {
        self.first(|wire| match wire {
            Wire::Event(event) => Some(event.clone()),
            Wire::Reply(_) => None,
        })
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// [`ClientError`]; an error reply is no error here.
    pub fn try_request(&mut self, op: Op, tx_id: u32, payload: &[u8]) -> Result<Reply, ClientError> {
        self.send(op.number(), tx_id, payload)?;
        self.reply()
    }

    /// Sends a request, waits for its reply and returns its payload, or the name of its error.
    ///
    /// # Errors
    /// The name that the error reply carries.
    ///
    /// # Panics
    /// When no reply comes, or it does not carry the request's type and ids.
    pub fn request_in(&mut self, tx_id: u32, op: Op, payload: &[u8]) -> Result<Vec<u8>, String> {
        let req_id = self.send(op.number(), tx_id, payload).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        let reply = self.reply().unwrap_or_else(|e| panic!("reply to {op:?}: {e}"));
        assert_eq!((reply.header.req_id, reply.header.tx_id), (req_id, tx_id), "ids of the reply to {op:?}");
        let result = reply.result()?;
        assert_eq!(reply.header.op, op.number(), "type of the reply to {op:?}");
        Ok(result.to_vec())
    }

    /// [`Self::request_in`] outside any transaction.
    ///
    /// # Errors
    /// The name that the error reply carries.
    pub fn request(&mut self, op: Op, payload: &[u8]) -> Result<Vec<u8>, String> {
        self.request_in(0, op, payload)
    }

    /// Writes a value.
    ///
    /// # Panics
    /// When the daemon refuses.
    pub fn write(&mut self, path: &str, value: &[u8]) {
        let payload = [path.as_bytes(), b"\0", value].concat();
        assert_eq!(self.request(Op::Write, &payload), Ok(b"OK\0".to_vec()), "WRITE {path}");
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The name that the error reply carries.
    pub fn read(&mut self, path: &str) -> Result<Vec<u8>, String> {
        self.request(Op::Read, format!("{path}\0").as_bytes())
    }

    /// Registers a watch and takes its initial event.
    ///
    /// # Panics
    /// When the daemon refuses, or the event is not the one that registration gives.
    pub fn watch(&mut self, path: &str, token: &str) {
        let payload = format!("{path}\0{token}\0");
        assert_eq!(self.request(Op::Watch, payload.as_bytes()), Ok(b"OK\0".to_vec()), "WATCH {path}");
        assert_eq!(self.event(), Ok(Event::new(path, token)), "initial event of {path}");
    }

    /// Opens a transaction and returns its id.
    ///
    /// # Panics
    /// When the daemon refuses, or the id is no number above 0.
    pub fn start_transaction(&mut self) -> u32 {
        let payload = self.request(Op::TransactionStart, b"\0").expect("a transaction starts");
        let id = String::from_utf8_lossy(&payload).trim_end_matches('\0').parse().unwrap_or(0);
        assert_ne!(id, 0, "transaction id {payload:?}");
        id
    }

    /// Commits a transaction.
    ///
    /// # Errors
    /// The name that the error reply carries.
    pub fn commit(&mut self, tx_id: u32) -> Result<(), String> {
        self.request_in(tx_id, Op::TransactionEnd, b"T\0").map(drop)
    }

    /// All events that earlier requests, on whatever connection, have caused here.
    ///
    /// A daemon serves requests one after another and keeps a connection's output in order; so whatever was caused
    /// before this call stands in front of the answer to a request made now.
    ///
    /// # Panics
    /// When the daemon does not answer.
    pub fn settled_events(&mut self) -> Vec<Event> {
        self.fence().unwrap_or_else(|e| panic!("no answer: {e}"));
        let (events, rest): (Vec<_>, _) = self.arrived.drain(..).partition(|wire| matches!(wire, Wire::Event(_)));
        self.arrived = rest.into();
        events
            .into_iter()
            .filter_map(|wire| match wire {
                Wire::Event(event) => Some(event),
                Wire::Reply(_) => None,
            })
            .collect()
    }

    /// Waits until the daemon has answered everything sent on this connection so far; what arrives is kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn fence(&mut self) -> Result<(), ClientError> {
        const FENCE: u32 = 0xfe4c_e000;
        let mut bytes = Vec::new();
        put_message(&mut bytes, Op::GetDomainPath.number(), FENCE, 0, b"0\0");
        self.send_raw(&bytes)?;
        self.first(|wire| match wire {
            Wire::Reply(reply) if reply.header.req_id == FENCE => Some(()),
            _ => None,
        })
    }

    /// Waits until the daemon closes this connection; whatever comes before that is dropped.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] when it stays open.
    pub fn closed(&mut self) -> Result<(), ClientError> {
        loop {
            match self.arrival() {
                Ok(_) => {}
                Err(ClientError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The event of a message, which must carry no ids and two strings.
fn event(header: &Header, payload: &[u8]) -> Result<Event, ClientError> {
    let mut strings = payload.split(|&byte| byte == 0).map(|string| String::from_utf8_lossy(string).into_owned());
    let (path, token, end) = (strings.next(), strings.next(), strings.next());
    match (path, token, end, strings.next()) {
        (Some(path), Some(token), Some(end), None) if end.is_empty() && header.req_id == 0 && header.tx_id == 0 => {
            Ok(Event { path, token })
        }
        _ => Err(ClientError::Garbage(format!("watch event {header:?} {payload:?}"))),
    }
}
