//! One client or guest, as the engine sees it.

use std::{collections::BTreeMap, time::Duration};

use xenstore_wire::Header;

use crate::{
    effect::{CloseReason, Question},
    id::{DomId, Time, TxId},
    output::{Cause, Output},
    outstanding::Outstanding,
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

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) header: Header,
    /// What the shell was asked; none for a request that names a domain about which something is under way.
    pub(crate) question: Option<Question>,
    /// The request's payload: it is served anew where the answer is not its reply.
    pub(crate) payload: Box<[u8]>,
}

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: ConnectionKind,
    /// Number among all connections that ever were.
    pub(crate) life: u64,
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
    pub(crate) asked: Option<Asked>,
    /// In the queue of connections with whole requests.
    pub(crate) ready: bool,
    /// The shell wants to be told when more of its input is wanted.
    pub(crate) deferred: bool,
    /// In the queue of connections with output.
    pub(crate) flushing: bool,
    /// Why it was given up: nothing of it is served any more.
    pub(crate) closing: Option<CloseReason>,
    /// Requests of a guest that are not all delivered.
    pub(crate) outstanding: Outstanding,
    /// Number of the next request of a guest.
    pub(crate) next_request: u64,
    /// Until when a guest that spoiled the transactions of others waits.
    pub(crate) slowed_until: Time,
    /// How long it waits the next time.
    pub(crate) penalty: Duration,
    /// When it last took anything of what waits for it, or when that began to wait.
    pub(crate) progress: Time,
    /// [`Engine::kept`](crate::engine::Engine) at the time when its output began to fill with replies to requests that
    /// read; none where anything else is in it.
    pub(crate) reads_since: Option<u64>,
    /// When it is to be looked at: its entry in the list of alarms.
    pub(crate) alarm: Option<Time>,
    /// Bytes for its buffers that the pool was told of.
    accounted: usize,
}

impl Connection {
    pub(crate) fn new(kind: ConnectionKind, life: u64) -> Self {
        Self {
            kind,
            life,
            input: Vec::new(),
            output: Output::default(),
            transactions: BTreeMap::new(),
            last_tx: 0,
            watches: 0,
            watch_bytes: 0,
            asked: None,
            ready: false,
            deferred: false,
            flushing: false,
            closing: None,
            outstanding: Outstanding::default(),
            next_request: 0,
            slowed_until: Time::default(),
            penalty: Duration::ZERO,
            progress: Time::default(),
            reads_since: None,
            alarm: None,
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
        self.closing.is_none() && self.asked.is_none() && self.output.unsent().len() < crate::engine::OUTPUT_PAUSE
    }

    /// Bytes held for the connection beside its nodes: watches, transactions, unsent replies and events.
    pub(crate) fn bytes(&self) -> usize {
        let transactions: usize = self.transactions.values().map(|open| open.bytes + open.values).sum();
        self.watch_bytes + transactions + self.output.weight()
    }

    /// Tells the pool what the connection's buffers count for now.
    pub(crate) fn account(&mut self, pool: &mut Pool) {
        let now = Pool::weight(self.input.len()) + self.output.held();
        pool.account(self.accounted, now);
        self.accounted = now;
    }

    /// Gives all buffers back; returns what the messages that are dropped with them were caused by.
    pub(crate) fn release_buffers(&mut self, pool: &mut Pool) -> Vec<Cause> {
        pool.give(std::mem::take(&mut self.input));
        let causes = self.output.clear(pool);
        self.account(pool);
        causes
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_numbers_skip_zero_and_those_in_use() {
        let mut conn = Connection::new(ConnectionKind::Socket, 1);
        assert_eq!(conn.next_tx(), TxId(1));
        conn.last_tx = u32::MAX - 1;
        assert_eq!(conn.next_tx(), TxId(u32::MAX));
        assert_eq!(conn.next_tx(), TxId(1));
    }
}
