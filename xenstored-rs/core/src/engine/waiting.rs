//! Requests that wait for something to be over: for what is under way with a domain, or for other transactions.

use xenstore_wire::{Header, Message};

use super::Engine;
use crate::{
    connection::Asked,
    id::{ConnId, DomId},
};

impl Engine {
    /// Whether something is under way with a domain: it ends, or it is about to be introduced.
    pub(crate) fn is_unsettled(&self, domid: DomId) -> bool {
        self.domains.introducing.contains(&domid) || self.is_ending(domid)
    }

    /// Whether a domain of that id ended and still leaves something.
    pub(crate) fn is_ending(&self, domid: DomId) -> bool {
        self.endings.iter().any(|ending| ending.concerns(domid))
    }

    /// Makes a request wait until what is under way with the domains that it names is over.
    pub(crate) fn wait(&mut self, conn: ConnId, header: Header, payload: &[u8]) {
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.asked = Some(Asked { header, question: None, payload: payload.into() });
            self.alterations += 1;
            self.waiting.push((conn, connection.life));
        }
    }

    /// Serves requests that waited for domains, if anything is over.
    pub(super) fn serve_waiting(&mut self) {
        if !std::mem::take(&mut self.wake) {
            return;
        }
        self.altered();
        for (conn, life) in std::mem::take(&mut self.waiting) {
            let connection = self.connections.get_mut(conn.index()).filter(|connection| connection.life == life);
            let asked = connection.and_then(|connection| connection.asked.take_if(|asked| asked.question.is_none()));
            if let Some(Asked { header, payload, .. }) = asked {
                self.execute(conn, Message { header, payload: &payload });
                self.settle(conn);
            }
        }
    }

    /// Has TRANSACTION_START wait from now on, or go on again: before a daemon is executed in this one's place that does
    /// not know open transactions, so that they come to an end. A connection that has one open may open others, since it
    /// may need them to end it.
    pub fn hold_transactions(&mut self, on: bool) {
        if self.holding != on {
            self.holding = on;
            self.wake |= !on;
            self.altered();
        }
    }

    /// Whether TRANSACTION_START waits.
    #[must_use]
    pub fn holds_transactions(&self) -> bool {
        self.holding
    }
}
