//! Transactions: a copy of the whole tree, a log of changes, and what the changes relied on.

use crate::{
    choice,
    store::{Change, Tree},
    watch::Fired,
};
use std::collections::BTreeMap;

/// What was relied on about a path. A node that is missing is relied on to be missing, whatever the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reliance {
    /// Neither value nor permissions change.
    pub(crate) node: bool,
    /// The list of children does not change.
    pub(crate) list: bool,
    /// The permissions do not change.
    pub(crate) permissions: bool,
}

impl Reliance {
    /// The node was read.
    pub(crate) const NODE: Self = Self { node: true, list: false, permissions: false };
    /// The names of its children were read.
    pub(crate) const LIST: Self = Self { node: false, list: true, permissions: false };
    /// It was written by the right of its permissions, or its permissions were inherited.
    pub(crate) const PERMISSIONS: Self = Self { node: false, list: false, permissions: true };
    /// It was removed.
    pub(crate) const ALL: Self = Self { node: true, list: true, permissions: true };
}

/// An open transaction.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// The tree at the start.
    pub(crate) snapshot: Tree,
    /// The tree as the transaction sees it.
    pub(crate) working: Tree,
    /// What it relied on, by path.
    pub(crate) relied: BTreeMap<Vec<u8>, Reliance>,
    /// What it changed, in order.
    pub(crate) log: Vec<Change>,
    /// Whom to tell at the commit, in order of the first write, a node once.
    pub(crate) fired: Vec<Fired>,
    /// A request failed half-way, so the commit fails.
    pub(crate) poisoned: bool,
    /// A domain that the log gives rights to died meanwhile.
    pub(crate) doomed: bool,
    /// A write succeeded that changed nothing.
    pub(crate) wrote_idly: bool,
}

impl Transaction {
    /// A transaction that starts now.
    pub(crate) fn start(tree: &Tree) -> Self {
        Self {
            snapshot: tree.clone(),
            working: tree.clone(),
            relied: BTreeMap::new(),
            log: Vec::new(),
            fired: Vec::new(),
            poisoned: false,
            doomed: false,
            wrote_idly: false,
        }
    }

    /// Keeps in mind what a request relies on.
    pub(crate) fn rely(&mut self, path: &[u8], on: Reliance) {
        let so_far = self.relied.entry(path.to_vec()).or_default();
        so_far.node |= on.node;
        so_far.list |= on.list;
        so_far.permissions |= on.permissions;
    }

    /// Makes the changes of one request in the transaction's own tree.
    pub(crate) fn perform(&mut self, changes: Vec<Change>, fired: Vec<Fired>) {
        for change in changes {
            self.working.apply(&change);
            self.log.push(change);
        }
        for new in fired {
            match self.fired.iter_mut().find(|old| old.path == new.path) {
                Some(old) => old.exact &= new.exact,
                None => self.fired.push(new),
            }
        }
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_read_only(&self) -> bool {
        self.log.is_empty() && !(choice::IDLE_WRITES_MAKE_A_WRITER && self.wrote_idly)
    }

    /// Whether something that was relied on is no longer so in the tree of now.
    pub(crate) fn conflicts(&self, now: &Tree) -> bool {
        let broken = |(path, on): (&Vec<u8>, &Reliance)| match (self.snapshot.get(path), now.get(path)) {
            (None, None) => false,
            (Some(then), Some(now)) => {
                (on.node && then.generation != now.generation)
                    || (on.list && then.list_generation != now.list_generation)
                    || (on.permissions && then.permissions_generation != now.permissions_generation)
            }
            _ => true,
        };
        self.doomed || self.relied.iter().any(broken)
    }

    /// Takes note that a domain died: rights that the log gives it must not reach the next bearer of its number.
    pub(crate) fn domain_died(&mut self, domid: u16) {
        self.doomed |= self.log.iter().any(|change| match change {
            Change::Create { permissions, .. } | Change::Permissions { permissions, .. } => {
                permissions.iter().any(|entry| entry.domid == domid && !entry.ignored)
            }
            Change::Value { .. } | Change::Remove { .. } => false,
        });
    }
}
