//! A connected socket, between the kernel and the engine.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use xenstore_core::ConnId;

/// A client's end of the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    token: Token,
    /// The engine's side of it.
    pub(crate) conn: ConnId,
    /// Process at the other end when it connected, if the kernel tells it.
    pub(crate) pid: Option<i32>,
    /// The kernel may have bytes for us: it tells so once, then it is ours to remember.
    pub(crate) readable: bool,
    /// The end of what the client sends is among what the kernel has: reading goes on until it is met, since the kernel
    /// does not tell of it again.
    pub(crate) closing: bool,
    /// The client sends no more.
    pub(crate) ended: bool,
    /// The kernel takes no more; it tells when it does again.
    blocked: bool,
    /// In the loop's list of clients to read from.
    pub(crate) listed: bool,
    /// In the loop's list of clients of which a short read was taken for the end of what there is.
    pub(crate) doubted: bool,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// So many bytes came.
    Bytes(usize),
    /// None are there now.
    Nothing,
    /// The client sends no more.
    End,
    /// The connection is broken.
    Broken,
}

/// What writing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// So many bytes left; the kernel takes no more now if that is not all.
    Bytes(usize),
    /// Nobody reads there any more.
    Broken,
}

impl Client {
    /// Takes a connection in and asks to be told of what it sends.
    pub(crate) fn register(
        mut stream: UnixStream,
        conn: ConnId,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE)?;
        let pid = getsockopt(&stream.as_fd(), PeerCredentials).ok().map(|credentials| credentials.pid());
        Ok(Self {
            stream,
            token,
            conn,
            pid,
            readable: false,
            closing: false,
            ended: false,
            blocked: false,
            listed: false,
            doubted: false,
        })
    }

    /// Reads once into `buffer`. Less than a full buffer means that the kernel has no more, which saves asking again. It
    /// is not always so (descriptors that are sent along end a read early), so the loop asks once more a while later.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Reading {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => {
                    self.readable = false;
                    self.ended = true;
                    return Reading::End;
                }
                Ok(count) => {
                    self.readable = self.closing || count == buffer.len();
                    return Reading::Bytes(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Reading::Nothing;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Reading::Broken,
            }
        }
    }

    /// Writes what the kernel takes of `bytes`. Where that is not all, asks to be told when it takes more, and is blocked
    /// until then: most clients read, and being told of each time they do would cost a turn for every reply.
    pub(crate) fn write(&mut self, bytes: &[u8], registry: &Registry) -> Writing {
        let mut written = 0;
        while !self.blocked && written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if registry.reregister(&mut self.stream, self.token, interest).is_err() {
                        return Writing::Broken;
                    }
                    self.blocked = true;
                }
                Err(_) => return Writing::Broken,
            }
        }
        Writing::Bytes(written)
    }

    /// Notes that the kernel takes bytes again. True where that was waited for.
    pub(crate) fn unblock(&mut self, registry: &Registry) -> bool {
        let waited = self.blocked;
        if waited {
            self.blocked = false;
            // A failure leaves us told of more than we want, which is only slower.
            let _ = registry.reregister(&mut self.stream, self.token, Interest::READABLE);
        }
        waited
    }
}
