//! Transactions: a snapshot to work on, what was relied on, and what was changed.

use std::{collections::BTreeMap, rc::Rc};

use xenstore_wire::XsError;

use crate::{
    id::{DomId, TxId},
    node::{Generation, Node},
    path::{is_at_or_below, names, parent},
    store::{Store, signed},
};

/// What a transaction relied on at one path, each a bit. It is checked against the store as it is at the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relied(u8);

impl Relied {
    /// The node is there, or is not.
    pub(crate) const EXISTENCE: Self = Self(1);
    /// Its value and permissions.
    pub(crate) const CONTENT: Self = Self(1 | 2);
    /// Its permissions.
    pub(crate) const PERMISSIONS: Self = Self(1 | 4);
    /// The names of its children.
    pub(crate) const LIST: Self = Self(1 | 8);
    /// All of it and all below.
    pub(crate) const SUBTREE: Self = Self(1 | 16);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without what only `other` says; existence stays.
    fn without(self, other: Self) -> Self {
        Self(self.0 & !(other.0 & !Self::EXISTENCE.0))
    }

    /// Whether all of it holds for a node that was `base` at the start and is `current` now.
    fn holds(self, base: Option<&Rc<Node>>, current: Option<&Rc<Node>>) -> bool {
        match (base, current) {
            (None, None) => true,
            (Some(base), Some(current)) => {
                Rc::ptr_eq(base, current)
                    || (!self.has(Self::SUBTREE)
                        && (!self.has(Self::CONTENT) || base.generation == current.generation)
                        && (!self.has(Self::PERMISSIONS) || base.permissions == current.permissions)
                        && (!self.has(Self::LIST) || base.list_generation() == current.list_generation()))
            }
            _ => false,
        }
    }
}

/// What a transaction did at one path, several changes of a node being one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) value: bool,
    pub(crate) permissions: bool,
    /// The node was removed, with all below it, whatever came after.
    pub(crate) removed: bool,
    /// Order of the first change: events come in it.
    order: u32,
}

/// What a transaction has to do with one path.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    relied: Relied,
    written: Option<Written>,
}

/// An open transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: TxId,
    /// The store at that moment.
    base: Store,
    /// The store as the transaction made it.
    pub(crate) store: Store,
    touched: BTreeMap<Box<[u8]>, Touched>,
    /// Paths of `touched` that were written.
    written: u32,
    /// A change failed half-way of a client's plan: the commit must fail.
    pub(crate) poisoned: bool,
    /// A domain that it gave rights to is gone: they must not pass to the next with its id.
    pub(crate) outdated: bool,
    /// Bytes that the paths it touched take.
    pub(crate) bytes: usize,
}

impl Transaction {
    pub(crate) fn new(id: TxId, store: &Store) -> Self {
        let (mut base, mut own) = (store.clone(), store.clone());
        base.accounts.take_touched();
        own.accounts.take_touched();
        Self { id, base, store: own, touched: BTreeMap::new(), written: 0, poisoned: false, outdated: false, bytes: 0 }
    }

    /// Notes what is relied on at a path. What the transaction itself wrote there is its own and can't be disturbed.
    pub(crate) fn rely(&mut self, path: &[u8], mut relied: Relied) {
        let touched = self.touch(path);
        if let Some(written) = touched.written {
            if written.removed {
                return;
            }
            if written.value && relied.has(Relied::CONTENT) {
                relied = relied.without(Relied::CONTENT).with(Relied::PERMISSIONS);
            }
            if written.permissions {
                relied = relied.without(Relied::PERMISSIONS);
            }
        }
        touched.relied = touched.relied.with(relied);
    }

    /// Notes a change at a path.
    pub(crate) fn write(&mut self, path: &[u8], mark: impl FnOnce(&mut Written)) {
        let order = self.written;
        let touched = self.touch(path);
        let new = touched.written.is_none();
        mark(touched.written.get_or_insert_with(|| Written { order, ..Written::default() }));
        self.written += u32::from(new);
    }

    fn touch(&mut self, path: &[u8]) -> &mut Touched {
        if !self.touched.contains_key(path) {
            self.bytes += path.len();
            self.touched.insert(path.into(), Touched::default());
        }
        self.touched.get_mut(path).expect("it is there or was just put there")
    }

    /// Whether the transaction touched that path already.
    pub(crate) fn touched(&self, path: &[u8]) -> bool {
        self.touched.contains_key(path)
    }

    /// Number of paths that it touched.
    pub(crate) fn touched_count(&self) -> usize {
        self.touched.len()
    }

    /// The paths that were changed, in the order of their names, each with what was done.
    fn written(&self) -> impl Iterator<Item = (&[u8], Written)> {
        self.touched.iter().filter_map(|(path, touched)| Some((&**path, touched.written?)))
    }

    /// The paths that were changed, in the order of their first change, each with what was done.
    pub(crate) fn changes(&self) -> Vec<(&[u8], Written)> {
        let mut changes: Vec<_> = self.written().collect();
        changes.sort_unstable_by_key(|(_, written)| written.order);
        changes
    }

    /// Whether it changed the node at that path.
    pub(crate) fn wrote(&self, path: &[u8]) -> bool {
        self.touched.get(path).is_some_and(|touched| touched.written.is_some())
    }

    /// The store at the start.
    pub(crate) fn base(&self) -> &Store {
        &self.base
    }

    /// Whether it changed nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.written == 0
    }

    /// Whether it set permissions that name one of these domains.
    pub(crate) fn names_any(&self, gone: impl Fn(DomId) -> bool) -> bool {
        self.written().any(|(path, written)| {
            let names = |node: &Rc<Node>| node.permissions.iter().any(|entry| gone(entry.domid));
            (written.permissions || written.value) && self.store.find(path).is_some_and(names)
        })
    }

    /// What the commit does to each domain's usage: domain, usage then, nodes more.
    pub(crate) fn growth(&self, current: &Store) -> Vec<(DomId, u64, i64)> {
        let mut store = self.store.accounts.clone();
        let mut growth = Vec::new();
        for domid in store.take_touched() {
            let (base, mine) = (self.base.accounts.usage(domid), self.store.accounts.usage(domid));
            let more = i64::from(mine.nodes) - i64::from(base.nodes);
            let then = i64::from(current.accounts.usage(domid).nodes) + more;
            growth.push((domid, u64::try_from(then).unwrap_or(0), more));
        }
        growth
    }

    /// Whether all that the transaction relied on is still so.
    ///
    /// # Errors
    /// `EAGAIN` where it is not.
    pub(crate) fn validate(&self, current: &Store) -> Result<(), XsError> {
        if self.outdated {
            return Err(XsError::Again);
        }
        if self.is_unchallenged(current) {
            return Ok(());
        }
        let holds = |path: &[u8], relied: Relied| relied.holds(self.base.find(path), current.find(path));
        let hold = self
            .touched
            .iter()
            .all(|(path, Touched { relied, .. })| *relied == Relied::default() || holds(path, *relied));
        if hold { Ok(()) } else { Err(XsError::Again) }
    }

    /// Whether nobody changed anything since the start.
    fn is_unchallenged(&self, current: &Store) -> bool {
        Rc::ptr_eq(self.base.root(), current.root()) && self.specials_unchanged(current)
    }

    /// Brings the changes into `current`, after [`Transaction::validate`] said that this may be done.
    pub(crate) fn apply(&mut self, current: &mut Store, generation: Generation) {
        if self.is_unchallenged(current) {
            *current = self.store.clone();
            return;
        }
        for domid in self.store.accounts.take_touched() {
            let (base, mine) = (self.base.accounts.usage(domid), self.store.accounts.usage(domid));
            let bytes = |usage: crate::Usage| i64::try_from(usage.bytes).unwrap_or(i64::MAX);
            current.accounts.charge(domid, i64::from(mine.nodes) - i64::from(base.nodes), bytes(mine) - bytes(base));
        }
        let mut done: Option<&[u8]> = None;
        for (path, written) in self.written() {
            if done.is_some_and(|done| is_at_or_below(path, done)) {
                continue;
            }
            done = self.apply_path(current, path, written, generation);
        }
    }

    fn specials_unchanged(&self, current: &Store) -> bool {
        self.base.specials().iter().zip(current.specials()).all(|((_, mine), (_, other))| Rc::ptr_eq(mine, other))
    }

    /// Brings one changed path into `merged`. Where nobody else changed a node on the way, the transaction's own subtree
    /// is put in whole, which settles every path in it; its root is returned.
    fn apply_path<'a>(
        &self,
        merged: &mut Store,
        path: &'a [u8],
        written: Written,
        generation: Generation,
    ) -> Option<&'a [u8]> {
        if path.first() != Some(&b'@') {
            let mut len = 0;
            let mut base = Some(self.base.root());
            let (mut mine, mut now) = (self.store.root(), merged.root());
            for name in names(path) {
                len += 1 + name.len();
                let top = &path[..len];
                base = base.and_then(|base| base.child(name));
                let Some(child) = mine.child(name) else {
                    // Removed, or made and removed: what was relied on says that nobody else touched it.
                    if now.child(name).is_some() {
                        let (mine, now) = (mine.permissions.owner(), now.permissions.owner());
                        merged.remove_accounted(top, generation);
                        merged.accounts.shift(mine, now, -signed(name.len() + 1));
                    }
                    return Some(top);
                };
                match now.child(name) {
                    Some(theirs) if base.is_none_or(|base| !Rc::ptr_eq(base, theirs)) => now = theirs,
                    // Missing: the transaction made it. The same as at the start: nobody else changed it.
                    there => {
                        let more = if there.is_some() { 0 } else { signed(name.len() + 1) };
                        let (mine, now) = (mine.permissions.owner(), now.permissions.owner());
                        merged.replace_accounted(parent(top), Rc::clone(child), generation);
                        merged.accounts.shift(mine, now, more);
                        return Some(top);
                    }
                }
                mine = child;
            }
        }
        self.apply_node(merged, path, written, generation);
        None
    }

    /// Brings the change of a single node in, where others changed it or something below it.
    fn apply_node(&self, merged: &mut Store, path: &[u8], written: Written, generation: Generation) {
        let (Some(base), Some(mine)) = (self.base.find(path), self.store.find(path)) else { return };
        let (base, mine) = (Rc::clone(base), Rc::clone(mine));
        // The merged accounts hold now + mine - base for this node. The changes below charge the true difference to
        // `now`, so take (mine - base) back first.
        merged.charge(&mine, path.len(), -1);
        merged.charge(&base, path.len(), 1);
        // Children that this transaction added or removed are charged by its accounts, not by what follows.
        let lists = signed(mine.child_list_len()) - signed(base.child_list_len());
        merged.accounts.charge(mine.permissions.owner(), 0, lists);
        if written.value {
            merged.set_value(path, mine.value.as_slice(), generation);
        }
        if written.permissions {
            merged.set_permissions(path, mine.permissions.clone(), generation);
        }
    }
}
