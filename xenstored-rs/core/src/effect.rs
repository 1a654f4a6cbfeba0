//! What the engine wants done by the world.

use xenstore_wire::Header;

use crate::{
    id::{ConnId, DomId},
    quota::QuotaHit,
};

/// Something that the shell does for the engine, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send what is there if it can be sent at once, then close the connection and tell [`crate::Engine::close`].
    Close {
        /// The connection.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
    /// Find the answer and tell [`crate::Engine::answer`]. Until then the connection's next requests wait.
    Ask {
        /// The connection that asked.
        conn: ConnId,
        /// What it asked.
        question: Question,
    },
    /// The connection of a domain is bad: put the error into its ring, serve the ring no more, but keep it until the domain
    /// is gone. Its watches and transactions are dropped already.
    Ignore {
        /// The connection.
        conn: ConnId,
        /// The domain.
        domid: DomId,
        /// Why.
        reason: CloseReason,
        /// Whether the domain was offered to be told of errors.
        tell: bool,
    },
    /// A domain was released: unmap its ring, unbind its port, then tell [`crate::Engine::close`].
    Release {
        /// The connection of its ring.
        conn: ConnId,
        /// The domain.
        domid: DomId,
    },
    /// Write a line into the log.
    Note(Note),
    /// A line for the trace, asked for with [`crate::Engine::set_tracing`].
    Trace(Trace),
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A header announced a payload that no message may have.
    TooLong {
        /// Bytes announced.
        len: u32,
    },
    /// It does not read, and more waits for it than one connection may hold.
    OutputFull {
        /// Bytes that wait.
        bytes: usize,
    },
    /// The indices of its ring cannot be.
    RingIndex,
    /// Its domain is gone, or was released.
    Gone,
    /// The engine failed at its request: a fault of the daemon.
    Failed {
        /// What the panic said.
        what: String,
        /// Type of the request.
        op: u32,
    },
}

/// What only the shell can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Map the ring of a domain and bind its port; then answer and call [`crate::Engine::introduce`], in this order:
    /// the reply comes before the events.
    Introduce {
        /// The domain.
        domid: DomId,
        /// Guest frame of the ring, for hosts that map it by frame.
        gfn: u64,
        /// The domain's end of the event channel.
        port: u32,
    },
    /// Find out which of these domains exist, and tell [`crate::Engine::answer_existence`].
    Exist(Vec<DomId>),
    /// `log` with its arguments: show, open, close or switch the trace.
    Log(Vec<Vec<u8>>),
    /// `logfile`: trace into that file from now on.
    LogFile(Vec<u8>),
    /// `memreport`: answer with what [`crate::Engine::memory_report`] tells, with a NUL behind it; or append that to a file.
    Report {
        /// The file.
        file: Option<Vec<u8>>,
    },
    /// `live-update` with its arguments: another program is to be executed in this one's place.
    LiveUpdate(Vec<Vec<u8>>),
    /// `turns`: how long the turns of the loop took.
    Turns,
}

/// Something that a person should read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A domain ran into a quota.
    QuotaHit(QuotaHit),
    /// A domain holds more memory than its soft limit, or no longer does.
    SoftMemory {
        /// The domain.
        domid: DomId,
        /// Bytes that it holds.
        bytes: u64,
        /// The soft limit.
        limit: u32,
        /// Whether it is over the limit now.
        over: bool,
    },
    /// A domain's writes spoiled the transactions of others: it waits.
    Slowed {
        /// The domain.
        domid: DomId,
        /// How long.
        penalty: std::time::Duration,
    },
    /// A domain's transaction fails since what is kept for those of guests takes too much memory.
    TransactionLost {
        /// The domain.
        domid: DomId,
    },
    /// All buffers are in use, and a connection was refused.
    BuffersFull {
        /// Bytes held.
        held: usize,
    },
    /// `print`: text of the administrator.
    Print(Vec<u8>),
    /// `check` found something wrong and mended it.
    Mended(String),
}

/// A traced moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A request came.
    In {
        /// Its connection.
        conn: ConnId,
        /// The connection's domain.
        domid: DomId,
        /// Its header.
        header: Header,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// A reply or an event goes out.
    Out {
        /// Its connection.
        conn: ConnId,
        /// The connection's domain.
        domid: DomId,
        /// Its header.
        header: Header,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// Something came to be.
    Create {
        /// `connection`, `transaction` or `watch`.
        kind: &'static str,
        /// Its connection.
        conn: ConnId,
    },
    /// Something ended.
    Destroy {
        /// `connection`, `transaction` or `watch`.
        kind: &'static str,
        /// Its connection.
        conn: ConnId,
    },
}

impl Trace {
    /// The connection that the moment is about.
    #[must_use]
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::In { conn, .. } | Self::Out { conn, .. } | Self::Create { conn, .. } | Self::Destroy { conn, .. } => {
                Some(*conn)
            }
        }
    }
}

mod image;
