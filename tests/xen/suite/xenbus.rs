//! A client whose requests go through the kernel of domain 0, by `/dev/xen/xenbus`, and so over the kernel's ring.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use xenstore_wire::{Decoder, Op, put_message};

/// How long the kernel may take for an answer, milliseconds.
const PATIENCE: u16 = 20_000;

/// An open `/dev/xen/xenbus`.
#[derive(Debug)]
pub(crate) struct Xenbus {
    file: File,
    decoder: Decoder,
}

impl Xenbus {
    pub(crate) fn open() -> Self {
        let file = OpenOptions::new().read(true).write(true).open("/dev/xen/xenbus").expect("the kernel's device");
        Self { file, decoder: Decoder::new() }
    }

    /// The next message: type and payload.
    fn message(&mut self) -> (u32, Vec<u8>) {
        loop {
            if let Some(message) = self.decoder.next_message().expect("the kernel speaks the protocol") {
                return (message.header.op, message.payload.to_vec());
            }
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(PATIENCE));
            assert_eq!(ready, Ok(1), "nothing comes from the kernel, its ring: {:?}", xen_rig::words_of_own_ring());
            let mut bytes = [0; 4096];
            let count = self.file.read(&mut bytes).expect("the kernel's device can be read");
            self.decoder.push(&bytes[..count]);
        }
    }

    /// Sends a request and gives its answer; no watch event may come before it.
    pub(crate) fn request(&mut self, tx_id: u32, op: Op, payload: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op.number(), 7, tx_id, payload);
        self.file.write_all(&bytes).expect("the kernel takes a request");
        let (came, payload) = self.message();
        match Op::from_number(came) {
            Some(Op::Error) => Err(String::from_utf8_lossy(&payload).trim_end_matches('\0').into()),
            _ if came == op.number() => Ok(payload),
            other => panic!("{other:?} instead of the answer to {op:?}"),
        }
    }

    /// The next watch event, as path and token.
    pub(crate) fn event(&mut self) -> (String, String) {
        let (came, payload) = self.message();
        assert_eq!(Op::from_number(came), Some(Op::WatchEvent));
        let text = String::from_utf8_lossy(&payload).into_owned();
        let mut parts = text.split('\0').map(str::to_owned);
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }
}
