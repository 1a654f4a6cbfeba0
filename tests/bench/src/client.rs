//! A blocking client that costs little and hides nothing: what it sends is what the daemon reads.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use xenstore_wire::{Header, OK, Op, payload, put_message, split_message};

/// How long any one answer may take before the work counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Room for a few of the longest messages, so that a batch of answers is taken with one read.
const INPUT: usize = 64 * 1024;

/// Why a work could not be played.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The socket, a file or a process failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The daemon refused a request.
    #[error("{op} answered {name}")]
    Store {
        /// Which request it was.
        op: &'static str,
        /// The error's name as sent.
        name: String,
    },
    /// Anything else that makes the figures worthless.
    #[error("{0}")]
    Unusable(String),
}

impl From<nix::Error> for Failure {
    fn from(error: nix::Error) -> Self {
        Self::Io(error.into())
    }
}

/// Result of everything that plays against a daemon.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    input: Box<[u8]>,
    taken: usize,
    filled: usize,
    output: Vec<u8>,
    events: usize,
    floor: bool,
    req_id: u32,
}

impl Client {
    /// Connects to a daemon's socket. With `floor`, the transaction id carries the size of the answer that is wanted,
    /// since an echo cannot know it.
    pub(crate) fn connect(socket: &Path, floor: bool) -> Outcome<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let input = vec![0; INPUT].into_boxed_slice();
        Ok(Self { stream, input, taken: 0, filled: 0, output: Vec::new(), events: 0, floor, req_id: 0 })
    }

    /// Sends one request and waits for its answer, whose payload is returned. `size` is what the floor shall answer.
    pub(crate) fn request(&mut self, op: Op, tx_id: u32, body: &[u8], size: usize) -> Outcome<&[u8]> {
        self.queue(op, tx_id, body, size);
        self.send()?;
        self.answer(op)
    }

    /// Puts a request behind those that wait to be sent.
    pub(crate) fn queue(&mut self, op: Op, tx_id: u32, body: &[u8], size: usize) {
        self.req_id = self.req_id.wrapping_add(1);
        let tx_id = if self.floor { u32::try_from(size).unwrap_or(0) } else { tx_id };
        put_message(&mut self.output, op.number(), self.req_id, tx_id, body);
    }

    /// Sends all that is queued with one write.
    pub(crate) fn send(&mut self) -> Outcome<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// The payload of the next answer; events that come before it are counted.
    pub(crate) fn answer(&mut self, op: Op) -> Outcome<&[u8]> {
        loop {
            let (header, range) = self.message()?;
            let body = &self.input[range.clone()];
            if header.op == Op::WatchEvent.number() {
                self.events += 1;
            } else if header.op == op.number() {
                return Ok(&self.input[range]);
            } else {
                let name = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
                return Err(Failure::Store { op: op.name(), name });
            }
        }
    }

    /// Waits until `count` events have come since the last call, and forgets them.
    pub(crate) fn take_events(&mut self, count: usize) -> Outcome<()> {
        while self.events < count {
            let (header, _) = self.message()?;
            if header.op != Op::WatchEvent.number() {
                return Err(Failure::Unusable(format!("a message of type {} where events were due", header.op)));
            }
            self.events += 1;
        }
        self.events -= count;
        Ok(())
    }

    /// The next whole message: its header, and where its payload lies in the input.
    fn message(&mut self) -> Outcome<(Header, std::ops::Range<usize>)> {
        loop {
            let waiting = &self.input[self.taken..self.filled];
            let split = split_message(waiting).map_err(|error| Failure::Unusable(error.to_string()))?;
            if let Some((message, rest)) = split {
                let end = self.filled - rest.len();
                let found = (message.header, end - message.payload.len()..end);
                self.taken = end;
                return Ok(found);
            }
            self.input.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
            let count = self.stream.read(&mut self.input[self.filled..])?;
            if count == 0 {
                return Err(Failure::Unusable("the daemon closed the connection".to_owned()));
            }
            self.filled += count;
        }
    }

    /// READ.
    pub(crate) fn read(&mut self, path: &str, size: usize) -> Outcome<&[u8]> {
        self.with_path(Op::Read, 0, path, b"", size)
    }

    /// WRITE.
    pub(crate) fn write(&mut self, tx_id: u32, path: &str, value: &[u8]) -> Outcome<()> {
        self.with_path(Op::Write, tx_id, path, value, OK.len()).map(drop)
    }

    /// SET_PERMS to the owner alone.
    pub(crate) fn set_owner(&mut self, tx_id: u32, path: &str, domid: usize) -> Outcome<()> {
        self.with_path(Op::SetPerms, tx_id, path, format!("n{domid}\0").as_bytes(), OK.len()).map(drop)
    }

    /// WATCH, and the event that every new watch fires at once.
    pub(crate) fn watch(&mut self, path: &str, token: &str) -> Outcome<()> {
        self.with_path(Op::Watch, 0, path, format!("{token}\0").as_bytes(), OK.len())?;
        self.take_events(1)
    }

    /// TRANSACTION_START; the floor's transaction is always 1.
    pub(crate) fn start(&mut self) -> Outcome<u32> {
        self.queue(Op::TransactionStart, 0, b"\0", 2);
        self.send()?;
        self.take_transaction()
    }

    /// The number of a transaction whose start was sent.
    pub(crate) fn take_transaction(&mut self) -> Outcome<u32> {
        let floor = self.floor;
        let body = self.answer(Op::TransactionStart)?;
        let id = payload::one_string(body).and_then(payload::number::<u32>);
        if floor { Ok(1) } else { id.map_err(|_| Failure::Unusable("a transaction id is no number".to_owned())) }
    }

    /// TRANSACTION_END.
    pub(crate) fn end(&mut self, tx_id: u32, commit: bool) -> Outcome<()> {
        self.request(Op::TransactionEnd, tx_id, if commit { b"T\0" } else { b"F\0" }, OK.len()).map(drop)
    }

    /// Any request whose payload is a path and `tail` behind it.
    pub(crate) fn with_path(&mut self, op: Op, tx_id: u32, path: &str, tail: &[u8], size: usize) -> Outcome<&[u8]> {
        let mut body = [0; 256];
        let len = path.len() + 1 + tail.len();
        body[..path.len()].copy_from_slice(path.as_bytes());
        body[path.len() + 1..len].copy_from_slice(tail);
        self.request(op, tx_id, &body[..len], size)
    }
}

/// To wait for answers of several clients at once.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use xenstore_wire::{Decoder, XsError, put_error, put_event, put_ok};

    /// Answers each request with what `answer` appends, until the client goes.
    fn serve(listener: UnixListener, answer: impl Fn(&mut Vec<u8>, &Header) + Send + 'static) {
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut decoder = Decoder::new();
            let mut bytes = [0; 512];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                decoder.push(&bytes[..count]);
                let mut out = Vec::new();
                while let Some(message) = decoder.next_message().unwrap() {
                    answer(&mut out, &message.header);
                }
                stream.write_all(&out).unwrap();
            }
        });
    }

    fn client(answer: impl Fn(&mut Vec<u8>, &Header) + Send + 'static) -> (tempfile::TempDir, Client) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        serve(UnixListener::bind(&path).unwrap(), answer);
        let client = Client::connect(&path, false).unwrap();
        (dir, client)
    }

    #[test]
    fn events_are_counted_wherever_they_come() {
        let (_dir, mut client) = client(|out, header| {
            put_event(out, b"/a", b"t");
            put_ok(out, header);
            put_event(out, b"/a", b"t");
        });
        client.watch("/a", "t").unwrap();
        client.take_events(1).unwrap();
    }

    #[test]
    fn a_refusal_carries_its_name() {
        let (_dir, mut client) = client(|out, header| put_error(out, header, XsError::Again));
        let error = client.end(7, true).unwrap_err();
        assert!(matches!(error, Failure::Store { op: "TRANSACTION_END", name } if name == "EAGAIN"));
    }
}
