//! Domains that end, and the removal of what they leave.
//!
//! A thousand domains may die at once, with nodes all over a large tree, and nobody else is to wait for their removal.
//! So it is done in pieces, one a turn. What others see of a domain in between is what they would see had it died a
//! little later: its nodes go first, then the news of its end goes out. A request that names a domain which has not quite
//! ended waits until it has, so that nobody takes what a dead domain had for that of the next one with its id.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::ControlFlow,
};

use crate::{
    effect::{CloseReason, Effect},
    engine::Engine,
    event::Change,
    id::{ConnId, DomId},
    node::NodeId,
    permission::Permissions,
};

/// Work of one turn on what domains leave. A node that is looked at counts for 1.
pub(crate) const PIECE: usize = 4096;

/// What removing a node counts for, or a watch, or telling one watcher.
const REMOVAL: usize = 4;

/// What letting a ring go counts for: the shell has to unmap it.
const RING: usize = 32;

/// Domains that end together.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Those whose nodes and entries are to be removed; none where domains only shut down.
    gone: BTreeSet<DomId>,
    /// Connections that still have their watches and transactions.
    connections: VecDeque<(ConnId, DomId)>,
    /// How far the walk through the tree has come.
    walked: Walked,
    /// What is to be told then, in this order.
    news: VecDeque<News>,
}

/// How far a walk has come.
#[derive(Debug, PartialEq, Eq)]
enum Walked {
    /// It has not begun.
    Nothing,
    /// To the node of this path, which need not exist any more.
    To(Box<[u8]>),
    /// There is nothing left.
    All,
}

/// An event of `@releaseDomain`.
#[derive(Clone, Copy, Debug)]
enum News {
    /// For those who do not tell domains apart.
    Any,
    /// For those who do.
    Of(DomId),
}

impl Ending {
    /// Whether a domain of that id is about to end, or its end is not told of yet.
    pub(crate) fn concerns(&self, domid: DomId) -> bool {
        self.gone.contains(&domid)
    }

    /// Takes domains that ended later into the same walk; each look at the host is told of by itself.
    fn join(&mut self, later: Self) {
        self.gone.extend(later.gone);
        self.connections.extend(later.connections);
        self.news.extend(later.news);
    }

    /// Whether a connection still has its watches and transactions, so that its ring is let go later.
    pub(crate) fn holds(&self, conn: ConnId) -> bool {
        self.connections.iter().any(|(held, _)| *held == conn)
    }
}

impl Engine {
    /// Domains are gone for good.
    pub(crate) fn domains_gone(&mut self, domids: &[DomId]) {
        let ending = self.begin_ending(domids, false);
        if !ending.gone.is_empty() {
            self.altered();
            self.endings.push_back(ending);
        }
    }

    /// Domains shut down: tells those who watch single domains of each, all others once.
    pub(crate) fn tell_of_shutdown(&mut self, domids: &[DomId]) {
        if !domids.is_empty() {
            let news = domids.iter().map(|&domid| News::Of(domid)).chain([News::Any]).collect();
            let (gone, connections) = (BTreeSet::new(), VecDeque::new());
            self.endings.push_back(Ending { gone, connections, walked: Walked::All, news });
        }
    }

    /// Forgets a domain that is introduced: its watches first, then what it owned, then the news of its going. All at
    /// once, since its caller has the reply already.
    pub(crate) fn release(&mut self, domid: DomId) {
        if self.domains.get(domid).is_some_and(|domain| domain.introduced) {
            let mut ending = self.begin_ending(&[domid], true);
            let mut left = usize::MAX;
            while !self.go_on_ending(&mut ending, &mut left) {}
        }
    }

    /// Whether domains are left that end.
    pub(crate) fn has_endings(&self) -> bool {
        !self.endings.is_empty()
    }

    /// Works on what ended domains leave, for a turn.
    pub(crate) fn end_in_pieces(&mut self) {
        self.altered();
        let mut left = self.piece;
        while left > 0
            && let Some(mut ending) = self.endings.pop_front()
        {
            if ending.walked == Walked::Nothing {
                // One walk serves all.
                std::mem::take(&mut self.endings).into_iter().for_each(|later| ending.join(later));
            }
            if self.go_on_ending(&mut ending, &mut left) {
                self.wake = true;
            } else {
                self.endings.push_front(ending);
            }
        }
        self.note_usage();
    }

    /// Finishes all that is to be done about ended domains.
    pub(crate) fn end_at_once(&mut self) {
        while self.has_endings() {
            self.end_in_pieces();
        }
    }

    /// From here on the domains are not there any more: their rings are served no more, rights by way of them are gone,
    /// and no transaction may give them any.
    fn begin_ending(&mut self, domids: &[DomId], still_there: bool) -> Ending {
        let (mut connections, mut released) = (VecDeque::new(), Vec::new());
        let gone: BTreeSet<DomId> = domids.iter().copied().filter(|&domid| self.domains.get(domid).is_some()).collect();
        for &domid in &gone {
            let Some(domain) = self.domains.forget(domid, still_there) else { continue };
            if domain.introduced {
                released.push(domid);
            }
            if let Some(conn) = domain.connection {
                self.stop_serving(conn);
                connections.push_back((conn, domid));
            }
        }
        if !gone.is_empty() {
            for (_, domain) in self.domains.iter_mut() {
                domain.target = domain.target.filter(|target| !gone.contains(target));
            }
            for (_, connection) in self.connections.iter_mut() {
                for transaction in connection.transactions.values_mut() {
                    transaction.outdated |= transaction.names_any(&self.store, |domid| gone.contains(&domid));
                }
            }
        }
        let any = released.first().map(|_| News::Any);
        let news = any.into_iter().chain(released.into_iter().map(News::Of)).collect();
        Ending { gone, connections, walked: Walked::Nothing, news }
    }

    fn stop_serving(&mut self, conn: ConnId) {
        self.drop_alarm(conn);
        self.forget_asked(conn);
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            connection.closing = Some(CloseReason::Gone);
        }
        self.drop_output(conn);
    }

    /// Works on an ending for as long as something is `left` of the turn's work; true when all of it is done.
    fn go_on_ending(&mut self, ending: &mut Ending, left: &mut usize) -> bool {
        while let Some((conn, domid)) = ending.connections.pop_front() {
            let watches = self.connections.get(conn.index()).map_or(0, |connection| connection.watches as usize);
            self.reset_watches(conn);
            self.effects.push_back(Effect::Release { conn, domid });
            *left = left.saturating_sub(RING + watches * REMOVAL);
            if *left == 0 {
                return false;
            }
        }
        while ending.walked != Walked::All {
            self.walk_piece(ending, left);
            if *left == 0 {
                return false;
            }
        }
        while let Some(news) = ending.news.pop_front() {
            let before = self.told;
            match news {
                News::Any => self.fire_released(None),
                News::Of(domid) => self.fire_released(Some(domid)),
            }
            *left = left.saturating_sub(1 + (self.told - before) * REMOVAL);
            if *left == 0 {
                break;
            }
        }
        ending.news.is_empty()
    }

    /// Walks on through the tree to the next node that one of the domains owned, and removes that; entries that name
    /// one of the domains are taken out of the permission lists on the way.
    fn walk_piece(&mut self, ending: &mut Ending, left: &mut usize) {
        let is_gone = |domid: DomId| ending.gone.contains(&domid);
        let mut named: Vec<(NodeId, usize, Permissions)> = Vec::new();
        let mut owned = None;
        let mut look = |path: &[u8], id: NodeId, lasts: bool| {
            *left = left.saturating_sub(1);
            let permissions = &self.store.nodes.get(id).content.permissions;
            let orphan = is_gone(permissions.owner());
            if orphan && !lasts {
                owned = Some(Box::from(path));
                return ControlFlow::Break(());
            }
            let entries = permissions.without(is_gone);
            if entries.is_some() || orphan {
                let entries = entries.unwrap_or_else(|| permissions.clone());
                let heir = if orphan { self.config.priv_domid } else { entries.owner() };
                named.push((id, path.len(), entries.with_owner(heir)));
                *left = left.saturating_sub(REMOVAL);
            }
            if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let behind: Box<[u8]> = match std::mem::replace(&mut ending.walked, Walked::All) {
            Walked::To(path) => path,
            Walked::Nothing | Walked::All => {
                // The root and the special nodes are never removed.
                let specials = self.store.specials();
                for (name, id) in specials.into_iter().chain([(&b"/"[..], self.store.root())]) {
                    let _ = look(name, id, true);
                }
                b"/"[..].into()
            }
        };
        let keep_orphans = self.config.keep_orphans;
        let mut walked = Walked::All;
        self.store.now().walk_on(&behind, |path, id| {
            let flow = look(path, id, keep_orphans);
            if flow.is_break() {
                walked = Walked::To(path.into());
            }
            flow
        });
        ending.walked = walked;
        for (id, path_len, permissions) in named {
            let generation = self.next_generation();
            let permissions = self.permissions.shared(permissions);
            self.store.set_permissions(id, path_len, permissions, generation);
        }
        if let Some(path) = owned {
            *left = left.saturating_sub(REMOVAL * self.remove_owned(path));
        }
    }

    /// Removes a subtree and tells its watchers; returns how much that was: nodes, and watches that fired.
    fn remove_owned(&mut self, path: Box<[u8]>) -> usize {
        let generation = self.next_generation();
        let Some(root) = self.store.remove(&path, generation) else { return 0 };
        let mut nodes = 0;
        self.store.now().walk(root, &path, |_, _| nodes += 1);
        let before = self.told;
        self.changes.push(Change::Removed { path, root });
        self.fire_changes();
        nodes + (self.told - before)
    }
}

mod image;
