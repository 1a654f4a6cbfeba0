//! From changes to watch events.
//!
//! An event for a node goes only to those who may read the node or its parent, or could read it before the change
//! (`docs/misc/xenstore.txt`, WATCH; a removed node is judged as it was).

use std::collections::{BTreeMap, BTreeSet};

use xenstore_wire::{HEADER_SIZE, PAYLOAD_MAX};

use crate::{
    connection::ConnectionKind,
    domain::Existence,
    engine::Engine,
    id::{ConnId, DomId},
    node::NodeId,
    path::parent,
    permission::{Access, Permissions},
    quota::{Quota, within},
    store::{INTRODUCE_DOMAIN, RELEASE_DOMAIN},
    transaction::Transaction,
    watch::{Fired, WatchId, Watched},
};

/// A change that may fire watches.
#[derive(Debug)]
pub(crate) enum Change {
    /// A node was made, or its value or permissions were set. Fires watches on it and above.
    Set {
        path: Box<[u8]>,
        /// Its permissions before, where they changed.
        old: Option<Permissions>,
    },
    /// A node was removed with all below it. Fires watches on every removed node, leaves first, then those on the node
    /// and above it. Its nodes are free afterwards.
    Removed { path: Box<[u8]>, root: NodeId },
    /// A watch was registered: its first event follows the reply.
    Registered(WatchId),
    /// A transaction was committed.
    Committed {
        transaction: Box<Transaction>,
        /// Permissions of the nodes that it changed, as they were just before, in the order of its changes.
        before: Vec<Option<Permissions>>,
        /// What it removed.
        removed: Vec<(Box<[u8]>, NodeId)>,
    },
    /// A domain is to be released, once its caller has the reply.
    Released(DomId),
}

/// Permissions that decide who sees an event: any of them will do.
type Seen<'a> = [Option<&'a Permissions>; 3];

impl Engine {
    /// Sends the events of the changes that a request made.
    pub(crate) fn fire_changes(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            match change {
                Change::Set { path, old } => {
                    let now = self.store.permissions_at(&path);
                    self.fire(&path, &[now.as_ref(), old.as_ref(), None]);
                }
                Change::Removed { path, root } => {
                    let was = self.store.nodes.get(root).content.permissions.clone();
                    self.fire_below(&path, root, |_| true);
                    self.fire(&path, &[Some(&was), None, None]);
                    self.store.bury(root);
                }
                Change::Registered(id) => self.fire_initial(id),
                Change::Committed { transaction, before, removed } => {
                    self.fire_transaction(&transaction, &before, &removed);
                    removed.into_iter().for_each(|(_, root)| self.store.bury(root));
                }
                Change::Released(domid) => self.release(domid),
            }
        }
        self.changes = changes;
    }

    /// Sends the events of a committed transaction: one for each changed node, in the order of first changes.
    fn fire_transaction(
        &mut self,
        transaction: &Transaction,
        before: &[Option<Permissions>],
        removed: &[(Box<[u8]>, NodeId)],
    ) {
        if self.watches.len() == 0 {
            return;
        }
        let removed: BTreeMap<&[u8], NodeId> = removed.iter().map(|(path, root)| (&**path, *root)).collect();
        let mut told = BTreeSet::new();
        for ((path, _), before) in transaction.changes().into_iter().zip(before) {
            if let Some(&root) = removed.get(path) {
                // A node that was made again along the way to another has changed all the same.
                self.fire_below(path, root, |below| !transaction.wrote(below) && told.insert(below.to_vec()));
            }
            let now = self.store.permissions_at(path);
            if before.is_some() || now.is_some() {
                self.fire(path, &[now.as_ref(), before.as_ref(), None]);
            }
        }
    }

    /// Fires the watches on nodes below a removed one that `wanted` lets through, leaves first.
    fn fire_below(&mut self, path: &[u8], root: NodeId, mut wanted: impl FnMut(&[u8]) -> bool) {
        for Watched { path, id, above } in self.watches.watched_below(self.store.now(), path, root) {
            if wanted(&path) {
                let permissions = |id: NodeId| self.store.nodes.get(id).content.permissions.clone();
                // The parent went too; it is judged as it was.
                let (node, above) = (permissions(id), permissions(above));
                let mut fired = std::mem::take(&mut self.fired);
                self.watches.exactly(&path, &mut fired);
                self.deliver(&path, &[Some(&node), Some(&above), None], &fired);
                self.fired = fired;
            }
        }
    }

    /// Fires the watches on a node and above it.
    fn fire(&mut self, path: &[u8], seen: &Seen<'_>) {
        // Special nodes fire with their events, not with their permissions, and nothing is above them.
        if path.first() == Some(&b'@') {
            return;
        }
        let mut fired = std::mem::take(&mut self.fired);
        self.watches.at_or_above(path, &mut fired);
        if !fired.is_empty() {
            let above = self.store.permissions_at(parent(path));
            self.deliver(path, &[seen[0], seen[1], above.as_ref()], &fired);
        }
        self.fired = fired;
    }

    /// Sends an event for `path` to the owners of the fired watches that may see it.
    fn deliver(&mut self, path: &[u8], seen: &Seen<'_>, fired: &[Fired]) {
        self.told += fired.len();
        for fired in fired {
            let Some(watch) = self.watches.get(fired.id) else { continue };
            let conn = watch.conn;
            let caller = self.caller(conn);
            if caller.privileged || seen.iter().flatten().any(|permissions| caller.may(permissions, Access::Read)) {
                push(self, fired.id, conn, path, Dropping::OverMemory);
            }
        }
    }

    /// The initial event of a watch: its own path, whether the node exists or may be read or not.
    pub(crate) fn fire_initial(&mut self, id: WatchId) {
        let Some(watch) = self.watches.get(id) else { return };
        let (conn, path) = (watch.conn, watch.path.clone());
        push(self, id, conn, &path, Dropping::Never);
    }

    /// A domain was introduced: tells the watchers of `@introduceDomain`.
    pub(crate) fn fire_introduced(&mut self, domid: DomId) {
        self.fire_special(INTRODUCE_DOMAIN, None);
        self.fire_special(INTRODUCE_DOMAIN, Some(domid));
    }

    /// Tells of domains that shut down or are gone: of one those who want to know which, without one all others.
    pub(crate) fn fire_released(&mut self, domid: Option<DomId>) {
        self.fire_special(RELEASE_DOMAIN, domid);
    }

    /// Fires a special event: without a domain for watches without a depth, else for those that want each domain.
    fn fire_special(&mut self, name: &[u8], domid: Option<DomId>) {
        let Some(permissions) = self.store.permissions_at(name) else { return };
        let mut fired = Vec::new();
        self.watches.exactly(name, &mut fired);
        fired.retain(|fired| {
            self.watches.get(fired.id).is_some_and(|watch| match domid {
                None => watch.depth.is_none(),
                Some(_) => watch.depth.is_some_and(|depth| depth > 0),
            })
        });
        let Some(domid) = domid else {
            self.deliver(name, &[Some(&permissions), None, None], &fired);
            return;
        };
        let name = [name, b"/", domid.to_string().as_bytes()].concat();
        let mut single = Vec::new();
        self.watches.exactly(&name, &mut single);
        single.retain(|fired| self.watches.get(fired.id).is_some_and(|watch| watch.depth != Some(0)));
        fired.extend(single);
        fired.sort_unstable();
        self.deliver(&name, &[Some(&permissions), None, None], &fired);
    }
}

/// Whether an event may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropping {
    /// A client waits for it.
    Never,
    /// Where its receiver holds all the memory that it may.
    OverMemory,
}

/// Appends one event to its receiver's output, unless it cannot be sent or the receiver may hold no more.
fn push(engine: &mut Engine, id: WatchId, conn: ConnId, path: &[u8], dropping: Dropping) {
    let Some(watch) = engine.watches.get(id) else { return };
    let Some(connection) = engine.connections.get_mut(conn.index()) else { return };
    let shown = watch.shown(path);
    let len = shown.len() + watch.token.len() + 2;
    if connection.closing.is_some() || len > PAYLOAD_MAX {
        return;
    }
    if let ConnectionKind::Domain(domid) = connection.kind
        && domid != engine.config.priv_domid
        && dropping == Dropping::OverMemory
    {
        // A domain that has shut down reads nothing any more, unless it resumes.
        if engine.domains.get(domid).is_some_and(|domain| domain.shutdown_reported) {
            return;
        }
        let used = engine.store.accounts.usage(domid).bytes + ((connection.bytes() + len + HEADER_SIZE) as u64);
        if !within(engine.domains.limit(domid, Quota::Memory), used) {
            return;
        }
    }
    if !connection.output.push_event(&mut engine.pool, shown, &watch.token) {
        return;
    }
    let (unsent, size) = (connection.output.unsent().len(), len + HEADER_SIZE);
    connection.account(&mut engine.pool);
    // The first event of a watch belongs to no request: a client that registers watches is not to stall over it.
    let cause = engine.cause.filter(|_| dropping == Dropping::OverMemory);
    let expires = engine.expiry(conn);
    if let Some(connection) = engine.connections.get_mut(conn.index()) {
        connection.output.mark(size, cause, expires);
    }
    cause.into_iter().for_each(|cause| engine.caused(cause));
    expires.into_iter().for_each(|time| engine.set_alarm(conn, time));
    if engine.is_tracing() {
        let message = engine.output(conn)[unsent - size..].to_vec();
        engine.trace_out(conn, &message);
    }
    engine.has_output(conn, size);
}

/// What the shell tells of domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainEvent {
    /// The domain exists. Matters where [`Existence::Told`] is in force.
    Appeared(DomId),
    /// These domains shut down; each is reported once until it resumes.
    ShutDown(Vec<DomId>),
    /// These domains are gone.
    Gone(Vec<DomId>),
}

impl Engine {
    /// Takes what the shell learned of domains.
    pub fn domain_event(&mut self, event: DomainEvent) {
        match event {
            DomainEvent::Appeared(domid) => {
                if self.config.existence != Existence::Assumed
                    && !std::mem::replace(&mut self.domains.entry(domid).exists, true)
                {
                    self.altered();
                }
            }
            DomainEvent::ShutDown(domids) => {
                let mut reported = Vec::new();
                for domid in domids {
                    if let Some(domain) = self.domains.get_mut(domid)
                        && domain.introduced
                        && !domain.shutdown_reported
                    {
                        domain.shutdown_reported = true;
                        reported.push(domid);
                    }
                }
                if !reported.is_empty() {
                    self.altered();
                    self.tell_of_shutdown(&reported);
                }
            }
            DomainEvent::Gone(domids) => self.domains_gone(&domids),
        }
    }
}
