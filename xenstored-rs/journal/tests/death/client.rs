//! The clients: what they send and what they must be answered.

use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
};

use crate::streams::{answer, question};

/// Numbers that look random (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number from 1 to `most`.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 20).unwrap() % most + 1
    }
}

/// A client's end, and the server's: a copy of that is kept, so that it outlives each server.
pub(crate) struct Client {
    number: usize,
    pub(crate) near: UnixStream,
    pub(crate) far: UnixStream,
    pub(crate) written: u64,
    pub(crate) answered: u64,
}

impl Client {
    pub(crate) fn new(number: usize) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        Self { number, near, far, written: 0, answered: 0 }
    }

    /// Sends up to so many bytes; as many as the socket takes.
    pub(crate) fn write(&mut self, most: usize) {
        let bytes: Vec<u8> = (self.written..).take(most).map(|at| question(self.number, at)).collect();
        match self.near.write(&bytes) {
            Ok(count) => self.written += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// Reads the answers that are there, up to so many bytes, and checks each. Returns how many.
    pub(crate) fn read(&mut self, most: usize) -> usize {
        let mut bytes = vec![0; most];
        let count = match self.near.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        for byte in &bytes[..count] {
            let expected = answer(self.answered, question(self.number, self.answered));
            assert_eq!(*byte, expected, "client {}, answer {} of {}", self.number, self.answered, self.written);
            self.answered += 1;
        }
        assert!(self.answered <= self.written);
        count
    }
}
