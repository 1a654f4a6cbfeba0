//! A connected socket, between the kernel and the engine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

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
    /// The keeper holds a copy of it.
    pub(crate) kept: bool,
    /// In the loop's list of clients of which a short read was taken for the end of what there is.
    pub(crate) doubted: bool,
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
            kept: false,
        })
    }

    /// Whether the kernel takes no more now, as far as is known.
    pub(crate) fn blocked(&self) -> bool {
        self.blocked
    }

    /// Asks to be told when the kernel takes more, after it did not take all: most clients read, and being told of each
    /// time they do would cost a turn for every reply.
    ///
    /// # Errors
    /// If the kernel cannot wait for it.
    pub(crate) fn block(&mut self, registry: &Registry) -> io::Result<()> {
        registry.reregister(&mut self.stream, self.token, Interest::READABLE | Interest::WRITABLE)?;
        self.blocked = true;
        Ok(())
    }

    /// Ends the connection though others hold copies of it.
    pub(crate) fn end(&mut self, registry: &Registry) {
        // Either fails only where nothing is left to end.
        let _ = registry.deregister(&mut self.stream);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
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

/// The socket, to be read from and written to.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
