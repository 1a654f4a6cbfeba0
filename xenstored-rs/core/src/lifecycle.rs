//! Domains coming and going.

use std::collections::BTreeSet;

use crate::{
    connection::ConnectionKind,
    effect::Effect,
    engine::Engine,
    event::Change,
    id::{ConnId, DomId},
    node::NodeId,
    path::is_at_or_below,
    permission::Permissions,
};

impl Engine {
    /// Makes a domain known and opens the connection of its ring. A domain that is known already starts over: its
    /// watches, transactions, waiting input and output are dropped.
    pub fn introduce(&mut self, domid: DomId) -> ConnId {
        self.altered();
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

    /// Drops all that a connection of an earlier life of its domain left.
    fn restart(&mut self, conn: ConnId) {
        self.reset_watches(conn);
        self.drop_alarm(conn);
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.asked = None;
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

    /// Forgets a domain that is introduced: its watches first, then what it owned, then the news of its going.
    pub(crate) fn release(&mut self, domid: DomId) {
        if self.domains.get(domid).is_some_and(|domain| domain.introduced) {
            self.end_domains(&[domid], true);
        }
    }

    /// Domains are gone for good.
    pub(crate) fn domains_gone(&mut self, domids: &[DomId]) {
        self.end_domains(domids, false);
    }

    /// Ends what there is of domains: nodes that they owned are removed with all below them, entries that name them leave every
    /// permission list, and those that were introduced are reported. One walk of the tree serves all.
    fn end_domains(&mut self, domids: &[DomId], still_there: bool) {
        let gone: BTreeSet<DomId> = domids.iter().copied().filter(|&domid| self.domains.get(domid).is_some()).collect();
        if gone.is_empty() {
            return;
        }
        self.altered();
        for &domid in &gone {
            if let Some(conn) = self.domains.get_mut(domid).and_then(|domain| domain.connection.take()) {
                self.close(conn);
            }
        }
        for (_, domain) in self.domains.iter_mut() {
            domain.target = domain.target.filter(|target| !gone.contains(target));
        }
        for (_, connection) in self.connections.iter_mut() {
            for transaction in connection.transactions.values_mut() {
                transaction.outdated |= transaction.names_any(&self.store, |domid| gone.contains(&domid));
            }
        }
        self.clear_tree_of(&gone);
        self.fire_changes();
        let mut released = Vec::new();
        for &domid in &gone {
            if let Some(domain) = self.domains.forget(domid, still_there)
                && domain.introduced
            {
                self.effects.push_back(Effect::Release { domid });
                released.push(domid);
            }
        }
        self.fire_released(&released);
    }

    fn clear_tree_of(&mut self, gone: &BTreeSet<DomId>) {
        let is_gone = |domid: DomId| gone.contains(&domid);
        let mut owned: Vec<Box<[u8]>> = Vec::new();
        let mut named: Vec<(NodeId, usize, Permissions)> = Vec::new();
        let mut look = |path: &[u8], id: NodeId| {
            if owned.last().is_some_and(|top| is_at_or_below(path, top)) {
                return;
            }
            let permissions = &self.store.nodes.get(id).content.permissions;
            let orphan = is_gone(permissions.owner());
            // The root and the special nodes are never removed.
            let lasts = path == b"/" || path.first() == Some(&b'@') || self.config.keep_orphans;
            if orphan && !lasts {
                owned.push(path.into());
                return;
            }
            let left = permissions.without(is_gone);
            if left.is_some() || orphan {
                let left = left.unwrap_or_else(|| permissions.clone());
                let heir = if orphan { self.config.priv_domid } else { left.owner() };
                named.push((id, path.len(), left.with_owner(heir)));
            }
        };
        self.store.now().walk(self.store.root(), b"/", &mut look);
        for (name, id) in self.store.specials() {
            look(name, id);
        }
        for (id, path_len, permissions) in named {
            let generation = self.next_generation();
            let permissions = self.permissions.shared(permissions);
            self.store.set_permissions(id, path_len, permissions, generation);
        }
        for path in owned {
            let generation = self.next_generation();
            if let Some(root) = self.store.remove(&path, generation) {
                self.changes.push(Change::Removed { path, root });
            }
        }
    }
}
