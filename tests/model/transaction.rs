//! Transactions: a copy of the whole tree, a log of changes, and what the changes relied on.

use crate::{
    adapter::Conn,
    choice,
    model::{Model, Origin},
    requests::Answer,
    store::{Change, Tree},
    watch::Fired,
};
use std::collections::{BTreeMap, BTreeSet};
use xenstore_wire::{OK, XsError};

/// What was relied on about a path. A node that is missing is relied on to be missing, whatever the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reliance {
    /// Neither value nor permissions change.
    pub(crate) node: bool,
    /// The list of children does not change.
    pub(crate) list: bool,
    /// The permissions do not change.
    pub(crate) permissions: bool,
    /// It was removed, with whatever others wrote to it: what the transaction wrote there before is no excuse.
    pub(crate) removed: bool,
    /// The request was about this very node, so it counts as touched; one that goes with a node above it does not.
    pub(crate) named: bool,
}

impl Reliance {
    /// The node was read.
    pub(crate) const NODE: Self = Self { node: true, list: false, permissions: false, removed: false, named: true };
    /// The names of its children were read.
    pub(crate) const LIST: Self = Self { node: false, list: true, permissions: false, removed: false, named: true };
    /// It is there, or is not.
    pub(crate) const EXISTENCE: Self =
        Self { node: false, list: false, permissions: false, removed: false, named: true };
    /// It was written by the right of its permissions, or its permissions were inherited.
    pub(crate) const PERMISSIONS: Self =
        Self { node: false, list: false, permissions: true, removed: false, named: true };
    /// It was removed.
    pub(crate) const ALL: Self = Self { node: true, list: true, permissions: true, removed: true, named: true };
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

    /// Keeps in mind what a request relies on. What the transaction itself wrote is its own, and relies on nobody.
    pub(crate) fn rely(&mut self, path: &[u8], on: Reliance) {
        let wrote = |this: fn(&Change) -> bool| self.log.iter().any(|change| this(change) && change.path() == path);
        let mut on = on;
        if !on.removed && on.node && wrote(|change| matches!(change, Change::Value { .. })) {
            on = Reliance { node: false, permissions: true, ..on };
        }
        if !on.removed && wrote(|change| matches!(change, Change::Permissions { .. })) {
            on.permissions = false;
        }
        let so_far = self.relied.entry(path.to_vec()).or_default();
        so_far.node |= on.node;
        so_far.list |= on.list;
        so_far.permissions |= on.permissions;
        so_far.removed |= on.removed;
        so_far.named |= on.named;
    }

    /// Makes the changes of one request in the transaction's own tree.
    pub(crate) fn perform(&mut self, changes: Vec<Change>, fired: Vec<Fired>) {
        for change in changes {
            self.working.apply(&change);
            self.log.push(change);
        }
        for new in fired {
            match self.fired.iter().position(|old| old.path == new.path) {
                Some(at) if self.fired[at].exact && !new.exact && choice::REWRITTEN_MOVES_BACK => {
                    self.fired.remove(at);
                    self.fired.push(new);
                }
                Some(at) => self.fired[at].exact &= new.exact,
                None => self.fired.push(new),
            }
        }
    }

    /// The nodes that it touched: those it relied on, and those it was asked to change.
    pub(crate) fn touched(&self) -> BTreeSet<&[u8]> {
        let asked = self.fired.iter().filter(|fired| !fired.exact).map(|fired| fired.path.as_slice());
        self.relied.iter().filter(|(_, on)| on.named).map(|(path, _)| path.as_slice()).chain(asked).collect()
    }

    /// Bytes of the value of a node that it changed or made; it holds no others itself.
    pub(crate) fn held(&self, path: &[u8]) -> u64 {
        let changed = |change: &Change| !matches!(change, Change::Remove { .. }) && change.path() == path;
        let node = self.working.get(path).filter(|_| self.log.iter().any(changed));
        node.map_or(0, |node| node.value.len() as u64)
    }

    /// Bytes that it takes of its domain's memory: the names of nodes that it touched, and what it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let names: u64 = self.touched().into_iter().map(choice::touched_bytes).sum();
        names + self.values()
    }

    /// Bytes of the values of nodes that it changed or made.
    pub(crate) fn values(&self) -> u64 {
        let paths: BTreeSet<&[u8]> = self.log.iter().map(Change::path).collect();
        paths.into_iter().map(|path| self.held(path)).sum()
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_read_only(&self) -> bool {
        self.log.is_empty() && !(choice::IDLE_WRITES_MAKE_A_WRITER && self.wrote_idly)
    }

    /// Whether something that was relied on is no longer so in the tree of now.
    pub(crate) fn conflicts(&self, now: &Tree) -> bool {
        let broken = |(path, on): (&Vec<u8>, &Reliance)| match (self.snapshot.get(path), now.get(path)) {
            (None, None) => false,
            (Some(then), Some(node)) => {
                (on.node && then.generation != node.generation)
                    || (on.list && then.list_generation != node.list_generation)
                    || (on.permissions && then.permissions != node.permissions)
            }
            _ => true,
        };
        self.doomed || self.relied.iter().any(broken)
    }

    /// Takes note that a domain died: rights that the transaction gives it must not reach the next bearer of its number.
    pub(crate) fn domain_died(&mut self, domid: u16) {
        let gives = |change: &Change| matches!(change, Change::Create { .. } | Change::Permissions { .. });
        let names = |path: &[u8]| {
            let node = self.working.get(path);
            node.is_some_and(|node| node.permissions.iter().any(|entry| entry.domid == domid && !entry.ignored))
        };
        self.doomed |= self.log.iter().any(|change| gives(change) && names(change.path()));
    }
}

impl Model {
    /// `RESET_WATCHES`: the caller's watches and transactions go.
    pub(crate) fn reset_watches(&mut self, conn: Conn) -> Answer {
        let connection = self.connections.get_mut(&conn).expect("the caller is connected");
        connection.watches.clear();
        connection.transactions.clear();
        Ok(OK.to_vec())
    }

    /// `TRANSACTION_START`: all that the transaction reads is of this moment.
    pub(crate) fn transaction_start(&mut self, origin: Origin) -> Answer {
        if origin.tx_id != 0 {
            return Err(XsError::Busy);
        }
        let limit = self.caller_limit(origin.conn, "transactions");
        let connection = self.connections.get_mut(&origin.conn).expect("the caller is connected");
        if limit.is_some_and(|limit| connection.transactions.len() as u64 + 1 > limit) {
            return Err(XsError::NoSpc);
        }
        while connection.next_transaction == 0 || connection.transactions.contains_key(&connection.next_transaction) {
            connection.next_transaction = connection.next_transaction.wrapping_add(1);
        }
        let id = connection.next_transaction;
        connection.next_transaction = id.wrapping_add(1);
        connection.transactions.insert(id, Transaction::start(&self.tree));
        Ok(format!("{id}\0").into_bytes())
    }

    /// `TRANSACTION_END T` or `F`: whatever comes of it, the transaction is gone.
    pub(crate) fn transaction_end(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let commit = match args {
            b"T\0" => true,
            b"F\0" => false,
            _ => return Err(XsError::Inval),
        };
        let connection = self.connections.get_mut(&origin.conn).expect("the caller is connected");
        let transaction = connection.transactions.remove(&origin.tx_id).ok_or(XsError::NoEnt)?;
        if !commit {
            return Ok(OK.to_vec());
        }
        if transaction.poisoned {
            return Err(XsError::NoMem);
        }
        if transaction.is_read_only() {
            return Ok(OK.to_vec());
        }
        let domid = self.caller(origin.conn).domid;
        let growth = transaction.working.owned(domid).saturating_sub(transaction.snapshot.owned(domid));
        let merged = self.tree.owned(domid) + growth;
        let too_many = growth > 0 && self.caller_limit(origin.conn, "nodes").is_some_and(|most| merged > most);
        match (transaction.conflicts(&self.tree), too_many) {
            (true, false) => return Err(XsError::Again),
            (true, true) if choice::CONFLICT_BEFORE_QUOTA => return Err(XsError::Again),
            (_, true) => return Err(XsError::NoSpc),
            (false, false) => {}
        }
        let outside = Origin { tx_id: 0, ..origin };
        self.perform(outside, transaction.log, transaction.fired)
    }
}
