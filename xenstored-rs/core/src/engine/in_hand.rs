//! The transaction of the request that is being served, and what that request sees.

use xenstore_wire::XsError;

use super::Engine;
use crate::{
    id::{ConnId, TxId},
    view::View,
};

impl Engine {
    /// Takes the transaction that a request names out of its connection, for the time of the request.
    pub(crate) fn take_in_hand(&mut self, conn: ConnId, tx_id: u32) -> Result<(), XsError> {
        let connection = self.connections.get_mut(conn.index()).ok_or(XsError::Io)?;
        self.in_hand = Some(connection.transactions.remove(&TxId(tx_id)).ok_or(XsError::NoEnt)?);
        Ok(())
    }

    /// Gives the transaction of a request back to its connection, where it was not ended.
    pub(crate) fn put_back(&mut self, conn: ConnId) {
        match (self.in_hand.take(), self.connections.get_mut(conn.index())) {
            (Some(transaction), Some(connection)) if connection.closing.is_none() => {
                connection.transactions.insert(transaction.id, transaction);
            }
            (Some(transaction), _) => transaction.abort(&mut self.store),
            (None, _) => {}
        }
    }

    /// Aborts the transaction of the request that is being served.
    pub(crate) fn abort_in_hand(&mut self) {
        if let Some(transaction) = self.in_hand.take() {
            transaction.abort(&mut self.store);
        }
    }

    /// Aborts all transactions of a connection.
    pub(super) fn abort_all(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.index()) else { return };
        for transaction in std::mem::take(&mut connection.transactions).into_values() {
            transaction.abort(&mut self.store);
        }
    }

    /// The store as the request that is being served sees it.
    pub(crate) fn view(&self) -> View<'_> {
        View::of(&self.store, self.in_hand.as_deref())
    }
}
