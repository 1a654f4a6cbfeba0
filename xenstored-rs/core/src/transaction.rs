//! Transactions: a snapshot to work on, what was relied on, and what was changed.

use std::{collections::BTreeMap, rc::Rc};

use xenstore_wire::XsError;

use crate::{
    id::{DomId, TxId},
    node::{Generation, Node},
    path::{is_at_or_below, parent},
    store::{Store, signed},
};

/// What a transaction relied on at one path. Each is checked against the store as it is at the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relied {
    /// The node is there, or is not.
    pub(crate) existence: bool,
    /// Its value and permissions, or that it is not there.
    pub(crate) content: bool,
    /// Its permissions.
    pub(crate) permissions: bool,
    /// The names of its children.
    pub(crate) list: bool,
    /// All of it and all below.
    pub(crate) subtree: bool,
}

impl Relied {
    /// Only that the node is there, or is not.
    pub(crate) const EXISTENCE: Self =
        Self { existence: true, content: false, permissions: false, list: false, subtree: false };
    /// Value and permissions.
    pub(crate) const CONTENT: Self = Self { content: true, ..Self::EXISTENCE };
    /// Permissions alone.
    pub(crate) const PERMISSIONS: Self = Self { permissions: true, ..Self::EXISTENCE };
    /// The child list, and the permission to read it.
    pub(crate) const LIST: Self = Self { list: true, ..Self::PERMISSIONS };
    /// The node with all below it.
    pub(crate) const SUBTREE: Self = Self { subtree: true, ..Self::EXISTENCE };

    fn add(&mut self, other: Self) {
        self.existence |= other.existence;
        self.content |= other.content;
        self.permissions |= other.permissions;
        self.list |= other.list;
        self.subtree |= other.subtree;
    }

    /// Whether all of it holds for a node that was `base` at the start and is `current` now.
    fn holds(self, base: Option<&Rc<Node>>, current: Option<&Rc<Node>>) -> bool {
        match (base, current) {
            (None, None) => true,
            (Some(base), Some(current)) => {
                Rc::ptr_eq(base, current)
                    || (!self.subtree
                        && (!self.content || base.generation == current.generation)
                        && (!self.permissions || base.permissions == current.permissions)
                        && (!self.list || base.list_generation() == current.list_generation()))
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

/// An open transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: TxId,
    /// The store at that moment.
    base: Store,
    /// The store as the transaction made it.
    pub(crate) store: Store,
    relied: BTreeMap<Box<[u8]>, Relied>,
    written: BTreeMap<Box<[u8]>, Written>,
    /// A change failed half-way of a client's plan: the commit must fail.
    pub(crate) poisoned: bool,
    touched: usize,
    /// Bytes that the paths it touched take.
    pub(crate) bytes: usize,
}

impl Transaction {
    pub(crate) fn new(id: TxId, store: &Store) -> Self {
        let (mut base, mut own) = (store.clone(), store.clone());
        base.accounts.take_touched();
        own.accounts.take_touched();
        Self {
            id,
            base,
            store: own,
            relied: BTreeMap::new(),
            written: BTreeMap::new(),
            poisoned: false,
            touched: 0,
            bytes: 0,
        }
    }

    /// Notes what is relied on at a path. What the transaction itself wrote there is its own and can't be disturbed.
    pub(crate) fn rely(&mut self, path: &[u8], relied: Relied) {
        let mut relied = relied;
        if let Some(written) = self.written.get(path) {
            if written.removed {
                return;
            }
            if written.value && relied.content {
                relied = Relied { content: false, permissions: true, ..relied };
            }
            relied.permissions &= !written.permissions;
        }
        if let Some(there) = self.relied.get_mut(path) {
            there.add(relied);
            return;
        }
        self.touch(path);
        self.relied.insert(path.into(), relied);
    }

    /// Notes a change at a path.
    pub(crate) fn write(&mut self, path: &[u8], mark: impl FnOnce(&mut Written)) {
        if let Some(there) = self.written.get_mut(path) {
            mark(there);
            return;
        }
        self.touch(path);
        let mut written =
            Written { order: u32::try_from(self.written.len()).unwrap_or(u32::MAX), ..Written::default() };
        mark(&mut written);
        self.written.insert(path.into(), written);
    }

    fn touch(&mut self, path: &[u8]) {
        if !self.touched(path) {
            self.touched += 1;
            self.bytes += path.len();
        }
    }

    /// Whether the transaction touched that path already.
    pub(crate) fn touched(&self, path: &[u8]) -> bool {
        self.relied.contains_key(path) || self.written.contains_key(path)
    }

    /// Number of paths that it touched.
    pub(crate) fn touched_count(&self) -> usize {
        self.touched
    }

    /// The paths that were changed, in the order of their first change, each with what was done.
    pub(crate) fn changes(&self) -> Vec<(&[u8], Written)> {
        let mut changes: Vec<_> = self.written.iter().map(|(path, written)| (&**path, *written)).collect();
        changes.sort_unstable_by_key(|(_, written)| written.order);
        changes
    }

    /// Whether it changed the node at that path.
    pub(crate) fn wrote(&self, path: &[u8]) -> bool {
        self.written.contains_key(path)
    }

    /// The store at the start.
    pub(crate) fn base(&self) -> &Store {
        &self.base
    }

    /// Whether it changed nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.written.is_empty()
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
        if self.is_unchallenged(current) {
            return Ok(());
        }
        let holds = self.relied.iter().all(|(path, relied)| relied.holds(self.base.find(path), current.find(path)));
        if holds { Ok(()) } else { Err(XsError::Again) }
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
        for (path, written) in &self.written {
            if done.is_some_and(|done| is_at_or_below(path, done)) {
                continue;
            }
            done = self.apply_path(current, path, *written, generation);
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
        let mut ends =
            path.iter().enumerate().skip(1).filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at).collect::<Vec<_>>();
        ends.push(path.len());
        for end in ends {
            let top = &path[..end];
            let (base, mine, now) = (self.base.find(top), self.store.find(top), merged.find(top));
            match (base, mine, now) {
                // Removed, or made and removed: what was relied on says that nobody else touched it.
                (_, None, Some(_)) => {
                    merged.remove_accounted(top, generation);
                    return Some(top);
                }
                (_, None, None) => return Some(top),
                (_, Some(mine), None) => {
                    merged.replace_accounted(parent(top), Rc::clone(mine), generation);
                    return Some(top);
                }
                (Some(base), Some(mine), Some(now))
                    if Rc::ptr_eq(base, now) && top.first() != Some(&b'@') && top != b"/" =>
                {
                    merged.replace_accounted(parent(top), Rc::clone(mine), generation);
                    return Some(top);
                }
                _ => {}
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
