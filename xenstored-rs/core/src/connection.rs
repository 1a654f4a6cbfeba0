//! One client or guest, as the engine sees it.

use std::collections::BTreeMap;

use xenstore_wire::Header;

use crate::{
    effect::Question,
    id::{DomId, TxId},
    output::Output,
    permission::{Access, Permissions},
    pool::Pool,
    transaction::Transaction,
};

/// How a connection reaches the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A unix socket: it speaks for the domain of the store.
    Socket,
    /// The ring of a domain.
    Domain(DomId),
}

/// Who asks: what a request's rights hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) domid: DomId,
    /// The domain whose rights the caller has too.
    pub(crate) target: Option<DomId>,
    /// The caller may do everything, and no quota counts.
    pub(crate) privileged: bool,
}

impl Caller {
    /// Whether the caller may do `wanted` with a node of such permissions.
    pub(crate) fn may(self, permissions: &Permissions, wanted: Access) -> bool {
        self.privileged || permissions.access(self.domid, self.target).allows(wanted)
    }

    /// Whether the caller owns such a node, or may act for its owner.
    pub(crate) fn owns(self, permissions: &Permissions) -> bool {
        let owner = permissions.owner();
        self.privileged || owner == self.domid || Some(owner) == self.target
    }
}

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: ConnectionKind,
    /// Bytes that came and are not served yet: the beginning of a request, or whole ones that wait for their turn.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Output,
    pub(crate) transactions: BTreeMap<TxId, Box<Transaction>>,
    last_tx: u32,
    /// Watches registered.
    pub(crate) watches: u32,
    /// Bytes that the watches count for.
    pub(crate) watch_bytes: usize,
    /// The request that waits for the shell's answer.
    pub(crate) asked: Option<(Header, Question)>,
    /// In the queue of connections with whole requests.
    pub(crate) ready: bool,
    /// In the queue of connections with output.
    pub(crate) flushing: bool,
    /// Given up: nothing of it is served any more.
    pub(crate) closing: bool,
    /// Bytes of buffers that the pool was told of.
    accounted: usize,
}

impl Connection {
    pub(crate) fn new(kind: ConnectionKind) -> Self {
        Self {
            kind,
            input: Vec::new(),
            output: Output::default(),
            transactions: BTreeMap::new(),
            last_tx: 0,
            watches: 0,
            watch_bytes: 0,
            asked: None,
            ready: false,
            flushing: false,
            closing: false,
            accounted: 0,
        }
    }

    /// A transaction number that is not in use: they count up from 1, and 0 is none.
    pub(crate) fn next_tx(&mut self) -> TxId {
        loop {
            self.last_tx = self.last_tx.wrapping_add(1);
            let id = TxId(self.last_tx);
            if id.0 != 0 && !self.transactions.contains_key(&id) {
                return id;
            }
        }
    }

    /// Whether the next request may be served.
    pub(crate) fn may_serve(&self) -> bool {
        !self.closing && self.asked.is_none() && self.output.unsent().len() < crate::engine::OUTPUT_PAUSE
    }

    /// Bytes held for the connection beside its nodes: watches, transactions, unsent replies and events.
    pub(crate) fn bytes(&self) -> usize {
        let transactions: usize = self.transactions.values().map(|transaction| transaction.bytes).sum();
        self.watch_bytes + transactions + self.output.unsent().len()
    }

    /// Tells the pool what the connection's buffers take now.
    pub(crate) fn account(&mut self, pool: &mut Pool) {
        let now = self.input.capacity() + self.output.held();
        pool.account(self.accounted, now);
        self.accounted = now;
    }

    /// Gives all buffers back.
    pub(crate) fn release_buffers(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.input));
        self.output.clear(pool);
        self.account(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_numbers_skip_zero_and_those_in_use() {
        let mut conn = Connection::new(ConnectionKind::Socket);
        assert_eq!(conn.next_tx(), TxId(1));
        conn.last_tx = u32::MAX - 1;
        assert_eq!(conn.next_tx(), TxId(u32::MAX));
        assert_eq!(conn.next_tx(), TxId(1));
    }
}
