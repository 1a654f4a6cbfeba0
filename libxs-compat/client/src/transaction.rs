//! Transactions: all of it, or nothing.

use crate::client::Client;
use crate::error::Error;
use crate::nodes::{Nodes, Scope};
use xenstore_wire::{Op, XsError};

/// What came of a commit that went its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a commit that conflicts has changed nothing"]
pub enum Commit {
    /// All changes are made.
    Done,
    /// Others changed what the transaction relied on, or the daemon that knew it is gone. Nothing was changed; the
    /// transaction may be started again.
    Conflict,
}

/// A transaction that is open. It sees the store as it was at its start, with its own changes; others see those when it
/// is committed. Dropped without that, it is given up.
#[derive(Debug)]
pub struct Transaction {
    client: Client,
    /// 0 once it has ended.
    tx_id: u32,
}

impl Transaction {
    pub(crate) fn new(client: Client, tx_id: u32) -> Self {
        Self { client, tx_id }
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// `ENOSPC` when a quota would be exceeded; those of the connection, after which it is not known whether the
    /// changes are made.
    pub fn commit(mut self) -> Result<Commit, Error> {
        match self.end(true) {
            Ok(()) => Ok(Commit::Done),
            Err(Error::Refused(XsError::Again) | Error::TransactionLost) => Ok(Commit::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Gives the changes up.
    ///
    /// # Errors
    /// Those of the connection; the changes are given up all the same.
    pub fn abort(mut self) -> Result<(), Error> {
        self.end(false)
    }

    /// Whether its connection was renewed, so that it can only end in a conflict.
    pub(crate) fn is_lost(&self) -> bool {
        self.client.link().has_lost(self.tx_id)
    }

    fn end(&mut self, commit: bool) -> Result<(), Error> {
        let tx_id = std::mem::take(&mut self.tx_id);
        self.client.link().end_transaction(tx_id, commit, self.client.until())
    }

    /// Sends a request in this transaction and returns the payload of its answer. This is for what has no method of
    /// its own.
    ///
    /// # Errors
    /// Those of the daemon and of the connection.
    pub fn request(&self, op: Op, payload: &[u8]) -> Result<Vec<u8>, Error> {
        self.client.call(op, self.tx_id, &[payload], <[u8]>::to_vec)
    }
}

impl Nodes for Transaction {
    fn scope(&self) -> Scope<'_> {
        Scope::new(&self.client, self.tx_id)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.tx_id != 0 {
            // It is over on a connection that is broken, too.
            let _ended = self.end(false);
        }
    }
}
