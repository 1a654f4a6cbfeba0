//! A store daemon whose every byte is the test's: for clients, and what they make of a daemon that errs.

use crate::wait::PATIENCE;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use xenstore_wire::{Decoder, Header, Op, put_event, put_message};

/// A socket at which the test plays the daemon.
#[derive(Debug)]
pub struct Scripted {
    dir: TempDir,
    listener: UnixListener,
}

impl Scripted {
    /// Listens in a directory of its own.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("xs-").tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket in the run directory");
        Self { dir, listener }
    }

    /// Its run directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Takes the next connection.
    ///
    /// # Panics
    /// When the listener fails.
    #[must_use]
    pub fn accept(&self) -> Line {
        let (stream, _) = self.listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a time-out");
        Line { stream, decoder: Decoder::new() }
    }
}

/// The scripted daemon's end of one connection.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    decoder: Decoder,
}

impl Line {
    /// The next request, or `None` when the client is gone.
    ///
    /// # Panics
    /// When neither comes, or what comes is no message.
    pub fn next_request(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut bytes = [0; 65536];
        loop {
            if let Some(message) = self.decoder.next_message().expect("a message") {
                return Some((message.header, message.payload.to_vec()));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no request: {error}"),
            }
        }
    }

    /// The next request, which must come.
    ///
    /// # Panics
    /// When it does not.
    pub fn request(&mut self) -> (Header, Vec<u8>) {
        self.next_request().expect("a request")
    }

    /// Sends bytes as they are. A client that is gone is no failure.
    pub fn send(&mut self, bytes: &[u8]) {
        let _sent = self.stream.write_all(bytes);
    }

    /// Answers a request.
    pub fn reply(&mut self, request: &Header, payload: &[u8]) {
        self.message(request.op, request, payload);
    }

    /// Answers a request with the name of an error.
    pub fn error(&mut self, request: &Header, name: &str) {
        self.message(Op::Error.number(), request, format!("{name}\0").as_bytes());
    }

    /// Sends a message of any type with the ids of a request.
    pub fn message(&mut self, op: u32, request: &Header, payload: &[u8]) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op, request.req_id, request.tx_id, payload);
        self.send(&bytes);
    }

    /// Sends a watch event.
    pub fn event(&mut self, path: &str, token: &str) {
        let mut bytes = Vec::new();
        put_event(&mut bytes, path.as_bytes(), token.as_bytes());
        self.send(&bytes);
    }

    /// Takes the next request, which must be of this type, and answers it `OK`.
    ///
    /// # Panics
    /// When it is of another type.
    pub fn expect_ok(&mut self, op: Op) -> Vec<u8> {
        let (header, payload) = self.request();
        assert_eq!(Op::from_number(header.op), Some(op));
        self.reply(&header, xenstore_wire::OK);
        payload
    }
}
