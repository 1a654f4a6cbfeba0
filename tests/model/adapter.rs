//! What the comparison needs of a store, whether it is the model or the engine.

use xenstore_wire::put_message;

/// One end that talks to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Conn {
    /// A client of the unix socket: domain 0, privileged.
    Socket(u16),
    /// The ring of an introduced domain.
    Domain(u16),
}

/// What a host says of one of its domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostEvent {
    /// The domain is there from now on.
    Exists(u16),
    /// The domain shut itself down, or was suspended.
    Shutdown(u16),
    /// The domain is gone for good; its number may come back.
    Destroyed(u16),
}

/// What a domain uses of its quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Nodes that it owns.
    pub(crate) nodes: u64,
    /// Watches that its ring registered.
    pub(crate) watches: u64,
    /// Transactions that its ring has open.
    pub(crate) transactions: u64,
    /// Bytes of its nodes, watches and transactions.
    pub(crate) memory: u64,
}

/// A whole store behind its connections.
pub(crate) trait Store {
    /// Opens a socket connection. Domains' connections open by INTRODUCE.
    fn open(&mut self, conn: Conn);

    /// The client of a socket connection goes away.
    fn close(&mut self, conn: Conn);

    /// Whether the connection is there and served.
    fn is_open(&self, conn: Conn) -> bool;

    /// Bytes arrive, and every whole request among them is served.
    fn receive(&mut self, conn: Conn, bytes: &[u8]);

    /// All that was sent to the connection since the last call.
    fn take_output(&mut self, conn: Conn) -> Vec<u8>;

    /// The host reports on a domain.
    fn host_event(&mut self, event: HostEvent);

    /// What a domain uses, as the store itself counts it.
    fn quota_counts(&mut self, domid: u16) -> Counts;

    /// Who serves the store dies, and another goes on with what it left. The model knows of no process and lives on.
    fn restart(&mut self) {}

    /// One whole request arrives.
    fn request(&mut self, conn: Conn, op: u32, req_id: u32, tx_id: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op, req_id, tx_id, payload);
        self.receive(conn, &bytes);
    }
}
