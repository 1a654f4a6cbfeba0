//! How much of a guest is served, and when.
//!
//! A request of a guest is outstanding until its reply and all events that it caused are delivered; with so many
//! outstanding as its quota allows, its next requests wait. Events for a guest that does not read expire. A guest whose
//! writes spoil the transactions of others waits a moment; nobody else does, and the privileged domain never.

use std::time::Duration;

use crate::{
    connection::ConnectionKind,
    effect::{Effect, Note},
    engine::Engine,
    id::{ConnId, DomId, Time},
    node::NodeId,
    output::Cause,
    permission::Access,
    quota::{Quota, within},
};

/// How long a guest waits that spoiled a transaction for the first time.
const PENALTY: Duration = Duration::from_millis(50);

/// How long at most, where it goes on.
const LONGEST_PENALTY: Duration = Duration::from_secs(1);

/// Bytes that may be kept of what open transactions of guests see and nobody else does. A few guests with the largest nodes
/// and as many transactions as they may have fill that; many together could fill any memory.
pub(crate) const EARLIER_MOST: usize = 64 << 20;

/// After so long without spoiling anything, a penalty is short again.
const FORGIVEN: Duration = Duration::from_secs(10);

impl Engine {
    /// The domain of a connection whose use is limited: a guest's.
    pub(crate) fn guest(&self, conn: ConnId) -> Option<DomId> {
        match self.connections.get(conn.index())?.kind {
            ConnectionKind::Domain(domid) if domid != self.config.priv_domid => Some(domid),
            _ => None,
        }
    }

    /// Whether the next request of a connection may be served.
    pub(crate) fn may_serve(&self, conn: ConnId) -> bool {
        let Some(connection) = self.connections.get(conn.index()).filter(|connection| connection.may_serve()) else {
            return false;
        };
        let Some(domid) = self.guest(conn) else { return true };
        let outstanding = connection.outstanding.len() as u64 + 1;
        // Only what drains by itself is waited for: a domain must be able to remove its nodes.
        let full = !connection.output.unsent().is_empty()
            && !within(self.domains.limit(domid, Quota::Memory), self.memory(domid));
        within(self.domains.limit(domid, Quota::Outstanding), outstanding)
            && connection.slowed_until <= self.now
            && !full
    }

    /// Has [`Engine::next_wanting`] tell of a connection whose input is not wanted now, once it is. That is forgotten with
    /// this engine: who has another looks at all connections anew.
    pub fn defer(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.deferred = true;
        }
    }

    /// The next connection that was deferred and whose input is wanted again, until there is none. One that waits only
    /// since a limit is low is not told of when that limit is raised.
    pub fn next_wanting(&mut self) -> Option<ConnId> {
        self.wanting.pop_front()
    }

    /// Whether [`Engine::next_wanting`] has anything to tell.
    #[must_use]
    pub fn has_wanting(&self) -> bool {
        !self.wanting.is_empty()
    }

    /// Tells of a connection that was deferred, if its input is wanted again.
    pub(crate) fn end_deferral(&mut self, conn: ConnId) {
        if self.wants_input(conn)
            && let Some(connection) = self.connections.get_mut(conn.index())
        {
            connection.deferred = false;
            self.wanting.push_back(conn);
        }
    }

    /// Bytes that a domain holds: its nodes, its watches, its transactions and what waits to be sent to it.
    pub(crate) fn memory(&self, domid: DomId) -> u64 {
        let conn = self.domains.get(domid).and_then(|domain| domain.connection);
        let connection = conn.and_then(|conn| self.connections.get(conn.index()));
        self.store.accounts.usage(domid).bytes + connection.map_or(0, |connection| connection.bytes() as u64)
    }

    /// Begins a request of a guest; what it causes is counted.
    pub(crate) fn begin_request(&mut self, conn: ConnId) {
        self.cause = None;
        if self.guest(conn).is_some()
            && let Some(connection) = self.connections.get_mut(conn.index())
        {
            connection.next_request += 1;
            self.cause = Some(Cause { conn, life: connection.life, request: connection.next_request });
        }
    }

    /// Counts a message that a guest's request caused.
    pub(crate) fn caused(&mut self, cause: Cause) {
        let connection =
            self.connections.get_mut(cause.conn.index()).filter(|connection| connection.life == cause.life);
        let Some(connection) = connection else { return };
        connection.outstanding.add(cause.request, 1);
        let outstanding = connection.outstanding.len() as u64;
        if let ConnectionKind::Domain(domid) = connection.kind {
            self.domains.note(domid, Quota::Outstanding, outstanding);
        }
    }

    /// A message that a guest's request caused is delivered, or will never be.
    pub(crate) fn delivered(&mut self, cause: Cause) {
        let connection =
            self.connections.get_mut(cause.conn.index()).filter(|connection| connection.life == cause.life);
        let Some(connection) = connection else { return };
        connection.outstanding.delivered(cause.request);
        self.settle(cause.conn);
    }

    /// When an event for a guest that is sent now expires.
    pub(crate) fn expiry(&self, conn: ConnId) -> Option<Time> {
        let timeout = self.config.event_timeout.filter(|_| self.guest(conn).is_some())?;
        Some(Time(self.now.0 + timeout))
    }

    /// Makes sure that [`Engine::step`] looks at a connection at a time.
    pub(crate) fn set_alarm(&mut self, conn: ConnId, time: Time) {
        if let Some(connection) = self.connections.get_mut(conn.index())
            && connection.alarm.is_none()
        {
            connection.alarm = Some(time);
            self.alarms.insert((time, conn, connection.life));
            self.altered();
        }
    }

    /// Takes a connection's alarm back. One that is left to ring for nobody would stay until its time: whoever starts
    /// over again and again would have as many.
    pub(crate) fn drop_alarm(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.index())
            && let Some(time) = connection.alarm.take()
        {
            self.alarms.remove(&(time, conn, connection.life));
        }
    }

    /// When [`Engine::step`] should be called next, should nothing else happen before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.alarms.first().map(|(time, ..)| *time)
    }

    /// Looks at the connections whose time has come.
    pub(crate) fn ring_alarms(&mut self) {
        while let Some(&(time, conn, life)) = self.alarms.first()
            && time <= self.now
        {
            self.alarms.pop_first();
            self.altered();
            let connection = self.connections.get_mut(conn.index()).filter(|connection| connection.life == life);
            let Some(connection) = connection else { continue };
            connection.alarm = None;
            let causes = connection.output.expire(self.now);
            let slowed = Some(connection.slowed_until).filter(|until| *until > self.now);
            let next = connection.output.next_expiry().into_iter().chain(slowed).min();
            causes.into_iter().for_each(|cause| self.delivered(cause));
            // An alarm for a time that is past would ring for ever.
            if let Some(next) = next.filter(|next| *next > self.now) {
                self.set_alarm(conn, next);
            }
            self.check_patience(conn);
            self.settle(conn);
        }
    }

    /// Has transactions of guests begin again, those first that are open longest, where too much is kept for them. Their
    /// requests go on: a kernel takes it well only at the commit that it has to try again.
    pub(crate) fn relieve(&mut self) {
        while self.store.snapshots.guest_bytes() > self.earlier_most
            && let Some((conn, id)) = self.store.snapshots.oldest_guest()
        {
            let domid = self.domid(conn);
            let connection = self.connections.get_mut(conn.index());
            let Some(open) = connection.and_then(|connection| connection.transactions.get_mut(&id)) else { return };
            open.begin_again(&mut self.store);
            self.store.snapshots.note_guest(open.snapshot, conn, id);
            self.altered();
            self.effects.push_back(Effect::Note(Note::TransactionLost { domid }));
        }
    }

    /// Remembers which guest changed a node while transactions are open; others than guests are not blamed.
    pub(crate) fn note_writer(&mut self, conn: ConnId, nodes: impl IntoIterator<Item = NodeId>) {
        if self.store.snapshots.is_empty() {
            self.writers.clear();
        } else if let Some(domid) = self.guest(conn) {
            self.writers.extend(nodes.into_iter().map(|node| (node, domid)));
        } else if !self.writers.is_empty() {
            nodes.into_iter().for_each(|node| _ = self.writers.remove(&node));
        }
    }

    /// A commit failed since a node had changed: slows the guest that changed it, unless that is who wanted to commit, or
    /// that one has no right to the node. To ask for a node that one may not see is not a way to hold its owner up.
    pub(crate) fn blame(&mut self, conn: ConnId, node: Option<NodeId>) {
        let Some(node) = node else { return };
        let (caller, permissions) = (self.caller(conn), &self.store.nodes.get(node).content.permissions);
        if !caller.may(permissions, Access::Read) && !caller.may(permissions, Access::Write) {
            return;
        }
        let Some(&domid) = self.writers.get(&node) else { return };
        let Some(culprit) = self.domains.get(domid).and_then(|domain| domain.connection) else { return };
        let Some(connection) = self.connections.get_mut(culprit.index()).filter(|_| culprit != conn) else { return };
        let forgiven = self.now.0 > connection.slowed_until.0 + FORGIVEN;
        connection.penalty = if forgiven { PENALTY } else { (connection.penalty * 2).clamp(PENALTY, LONGEST_PENALTY) };
        connection.slowed_until = Time(self.now.0 + connection.penalty);
        let (until, penalty) = (connection.slowed_until, connection.penalty);
        let next = connection.output.next_expiry().map_or(until, |expiry| expiry.min(until));
        // An alarm that is set already for a later time is moved.
        self.drop_alarm(culprit);
        self.set_alarm(culprit, next);
        self.effects.push_back(Effect::Note(Note::Slowed { domid, penalty }));
    }
}
