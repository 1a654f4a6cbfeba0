//! Domains that come, and those that start over.

use crate::{
    connection::ConnectionKind,
    engine::Engine,
    id::{ConnId, DomId},
};

impl Engine {
    /// Makes a domain known and opens the connection of its ring. A domain that is known already starts over: its
    /// watches, transactions, waiting input and output are dropped. What an earlier domain of that id left is gone by
    /// then.
    pub fn introduce(&mut self, domid: DomId) -> ConnId {
        self.altered();
        if self.is_ending(domid) {
            self.end_at_once();
        }
        let domain = self.domains.entry(domid);
        domain.exists = true;
        if let Some(conn) = domain.connection {
            self.restart(conn);
            return conn;
        }
        domain.introduced = true;
        let conn = self.open(ConnectionKind::Domain(domid));
        self.domains.entry(domid).connection = Some(conn);
        if domid != self.config.priv_domid {
            self.fire_introduced(domid);
        }
        conn
    }

    /// A domain asks in its ring for a new connection in place of the one that it has: drops all that the old one left.
    /// False where the domain has none any more.
    pub fn reconnect(&mut self, conn: ConnId) -> bool {
        let lives = self.connections.get(conn.index()).is_some_and(|connection| connection.closing.is_none());
        if lives {
            self.altered();
            self.restart(conn);
        }
        lives
    }

    /// Drops all that a connection of an earlier life of its domain left.
    fn restart(&mut self, conn: ConnId) {
        self.reset_watches(conn);
        self.drop_alarm(conn);
        self.forget_asked(conn);
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.outstanding.clear();
            // What its requests of the earlier life cause later is not counted against the new one.
            self.lives += 1;
            connection.life = self.lives;
        }
        self.drop_output(conn);
        // A guest may start over when it likes, and does not get out of waiting by that.
        if let Some(until) = self.connections.get(conn.index()).map(|connection| connection.slowed_until)
            && until > self.now
        {
            self.set_alarm(conn, until);
        }
    }
}
