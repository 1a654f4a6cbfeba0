//! What one daemon tells another.

use crate::{
    id::{ConnId, DomId},
    permission::Permission,
};

/// Values with their names.
pub type Named = Vec<(Box<[u8]>, u32)>;

/// A store and who uses it, between two daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Descriptor of the socket that clients connect to.
    pub listener: Option<i32>,
    /// Descriptor of the event channels, with all ports bound.
    pub event_channels: Option<i32>,
    /// Port on it that tells of domains changing their state, where that is known.
    pub domain_state_port: Option<u32>,
    /// Who is connected.
    pub connections: Vec<SavedConnection>,
    /// Every node and special node; a node comes after its parent.
    pub nodes: Vec<SavedNode>,
    /// Limits of domains without limits of their own, by name; soft ones begin with `soft-`.
    pub quotas: Named,
    /// Domains of which something is set apart.
    pub domains: Vec<SavedDomain>,
}

/// How a connection is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A unix socket.
    Socket {
        /// Its descriptor.
        fd: i32,
    },
    /// The ring of a domain.
    Ring {
        /// The domain.
        domid: DomId,
        /// The domain whose rights it has beside its own.
        target: Option<DomId>,
        /// This end of its event channel.
        local_port: u32,
        /// The domain's end, where that is known.
        remote_port: Option<u32>,
        /// Frame of its ring, where that is known.
        gfn: Option<u64>,
    },
}

/// A connection with what is under way on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedConnection {
    /// Its number here; of no meaning to another daemon.
    pub conn: Option<ConnId>,
    /// How it is reached.
    pub peer: Peer,
    /// What tells the domain from others of its number, where the host does.
    pub unique_id: Option<u64>,
    /// Its watches.
    pub watches: Vec<SavedWatch>,
    /// Bytes that came and are not served: whole requests and the beginning of one.
    pub input: Vec<u8>,
    /// Bytes that wait to be sent.
    pub output: Vec<u8>,
    /// Bytes at the front of `output` that end a message whose beginning is sent.
    pub partial: usize,
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedWatch {
    /// Path as the client named it.
    pub path: Box<[u8]>,
    /// Token.
    pub token: Box<[u8]>,
    /// Levels below the path that fire; none is no limit.
    pub depth: Option<u16>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedNode {
    /// Absolute path, or the name of a special node.
    pub path: Box<[u8]>,
    /// Value.
    pub value: Box<[u8]>,
    /// Permissions, the owner's entry first; never empty.
    pub permissions: Vec<Permission>,
}

/// What is set for one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedDomain {
    /// The domain.
    pub domid: DomId,
    /// Feature bits that it is offered, where that is told.
    pub features: Option<u32>,
    /// Its own limits, by name.
    pub quotas: Named,
}
