//! Transactions: what one changed, and what it relied on.
//!
//! A transaction sees the store as it was when it started, with its own changes over it. Its changes stand apart from
//! the store: contents and child lists of its own for nodes that others see too, and nodes that only it sees. Nothing
//! of the store is copied for it but what it changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    accounts::Accounts,
    children::Children,
    id::{DomId, TxId},
    node::{Content, Generation, NodeId, State},
    path::{last_name, parent, push_name},
    permission::Permissions,
    reliance::Relied,
    small_bytes::SmallBytes,
    snapshot::SnapshotId,
    store::{Store, signed},
    view::{Nearest, View},
};

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
#[derive(Clone, Copy, Debug)]
struct Touched {
    /// The node there at the start.
    base: Option<NodeId>,
    relied: Relied,
    written: Option<Written>,
}

/// Value and permissions that a transaction gave to a node.
#[derive(Debug)]
struct OwnContent {
    path: Box<[u8]>,
    content: Content,
    value: bool,
    permissions: bool,
}

/// Children that a transaction gave to a node.
#[derive(Debug)]
struct OwnList {
    path: Box<[u8]>,
    children: Children,
    generation: Generation,
    /// Children that only the transaction sees.
    added: BTreeMap<SmallBytes, NodeId>,
    /// Names of children that were there and were removed, whether there is one of that name again or not.
    removed: BTreeSet<SmallBytes>,
}

/// An open transaction. It is ended by [`Transaction::apply`] or [`Transaction::abort`]: being dropped alone would leave
/// its snapshot open and its nodes behind.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: TxId,
    /// The store at its start.
    pub(crate) snapshot: SnapshotId,
    /// Last change of the store at that moment.
    pub(crate) generation: Generation,
    contents: BTreeMap<NodeId, OwnContent>,
    lists: BTreeMap<NodeId, OwnList>,
    /// Accounts at the start.
    base_accounts: Accounts,
    /// Accounts with its changes.
    accounts: Accounts,
    touched: BTreeMap<Box<[u8]>, Touched>,
    /// Paths of `touched` that were written.
    written: u32,
    /// A change failed half-way of a client's plan: the commit must fail.
    pub(crate) poisoned: bool,
    /// A domain that it gave rights to is gone: they must not pass to the next with its id. Or it was begun again half-way.
    pub(crate) outdated: bool,
    /// Bytes that the paths it touched take.
    pub(crate) bytes: usize,
    /// Bytes of the values that it holds itself: of the nodes that it changed or made.
    pub(crate) values: usize,
}

impl Transaction {
    /// A transaction on the store as it is.
    pub(crate) fn new(id: TxId, store: &mut Store) -> Self {
        let (snapshot, generation) = store.open_snapshot();
        let mut base_accounts = store.accounts.clone();
        base_accounts.forget_touched();
        Self {
            id,
            snapshot,
            generation,
            contents: BTreeMap::new(),
            lists: BTreeMap::new(),
            accounts: base_accounts.clone(),
            base_accounts,
            touched: BTreeMap::new(),
            written: 0,
            poisoned: false,
            outdated: false,
            bytes: 0,
            values: 0,
        }
    }

    /// Content that it gave to a node.
    pub(crate) fn own_content(&self, id: NodeId) -> Option<&Content> {
        self.contents.get(&id).map(|own| &own.content)
    }

    /// Child list that it gave to a node.
    pub(crate) fn own_list(&self, id: NodeId) -> Option<(Generation, &Children)> {
        self.lists.get(&id).map(|own| (own.generation, &own.children))
    }

    /// Bytes of a node's value that it holds itself; none where the value is the store's.
    pub(crate) fn own_value_len(&self, store: &Store, id: NodeId) -> Option<usize> {
        let node = store.nodes.get(id);
        let private = (node.state == State::Private).then_some(&node.content);
        private.or_else(|| self.own_content(id)).map(|content| content.value.len())
    }

    /// What each domain owns, with its changes.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Notes what is relied on at a path, where it sees `seen`. What the transaction itself wrote there is its own and
    /// can't be disturbed.
    pub(crate) fn rely(&mut self, store: &Store, path: &[u8], seen: Option<NodeId>, mut relied: Relied) {
        let touched = self.touch(store, path, seen);
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

    fn write(&mut self, store: &Store, path: &[u8], seen: Option<NodeId>, mark: impl FnOnce(&mut Written)) {
        let order = self.written;
        let touched = self.touch(store, path, seen);
        let new = touched.written.is_none();
        mark(touched.written.get_or_insert_with(|| Written { order, ..Written::default() }));
        self.written += u32::from(new);
    }

    fn touch(&mut self, store: &Store, path: &[u8], seen: Option<NodeId>) -> &mut Touched {
        if !self.touched.contains_key(path) {
            // With no list changed, what it sees now was there at the start.
            let base = if self.lists.is_empty() { seen } else { View::then(store, self).find(path) };
            self.bytes += path.len();
            self.touched.insert(path.into(), Touched { base, relied: Relied::NOTHING, written: None });
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

    /// The paths that were changed, in the order of their first change, each with what was done.
    pub(crate) fn changes(&self) -> Vec<(&[u8], Written)> {
        let written = |(path, touched): (_, &Touched)| Some((path, touched.written?));
        let mut changes: Vec<(&[u8], Written)> =
            self.touched.iter().map(|(path, touched)| (&**path, touched)).filter_map(written).collect();
        changes.sort_unstable_by_key(|(_, written)| written.order);
        changes
    }

    /// Whether it changed the node at that path.
    pub(crate) fn wrote(&self, path: &[u8]) -> bool {
        self.touched.get(path).is_some_and(|touched| touched.written.is_some())
    }

    /// Whether it changed nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.written == 0
    }

    /// Sets the value of a node that it sees.
    pub(crate) fn set_value(
        &mut self,
        store: &mut Store,
        id: NodeId,
        path: &[u8],
        value: SmallBytes,
        generation: Generation,
    ) {
        self.write(store, path, Some(id), |written| written.value = true);
        let content = self.content_mut(store, id, path, |own| own.value = true);
        let (old, new) = (content.value.len(), value.len());
        content.value = value;
        content.generation = generation;
        let owner = content.permissions.owner();
        self.accounts.charge(owner, 0, signed(new) - signed(old));
        self.values = self.values - old + new;
    }

    /// Sets the permissions of a node that it sees.
    pub(crate) fn set_permissions(
        &mut self,
        store: &mut Store,
        id: NodeId,
        path: &[u8],
        new: Permissions,
        generation: Generation,
    ) {
        self.write(store, path, Some(id), |written| written.permissions = true);
        let list_len = View::of(store, Some(self)).child_list_len(id) + path.len();
        let content = self.content_mut(store, id, path, |own| own.permissions = true);
        let (old_owner, old) = (content.permissions.owner(), signed(content.size(list_len)));
        content.permissions = new;
        content.generation = generation;
        let (owner, new) = (content.permissions.owner(), signed(content.size(list_len)));
        self.accounts.charge(old_owner, -1, -old);
        self.accounts.charge(owner, 1, new);
    }

    /// The content of a node that it sees, to be changed for it alone.
    fn content_mut<'s>(
        &'s mut self,
        store: &'s mut Store,
        id: NodeId,
        path: &[u8],
        mark: impl FnOnce(&mut OwnContent),
    ) -> &'s mut Content {
        if store.nodes.get(id).state == State::Private {
            return &mut store.nodes.get_mut(id).content;
        }
        if !self.contents.contains_key(&id) {
            let content = View::then(store, self).content(id).clone();
            self.values += content.value.len();
            self.contents.insert(id, OwnContent { path: path.into(), content, value: false, permissions: false });
        }
        let own = self.contents.get_mut(&id).expect("it is there or was just put there");
        mark(own);
        &mut own.content
    }

    /// Makes a node that it does not see, and its missing ancestors, all with the same permissions.
    pub(crate) fn create(
        &mut self,
        store: &mut Store,
        path: &[u8],
        value: &[u8],
        permissions: &Permissions,
        generation: Generation,
    ) {
        self.write(store, path, None, |written| written.value = true);
        let Nearest { id: above, path_len, missing } = View::of(store, Some(self)).nearest(path);
        if missing == 0 {
            return;
        }
        let start = if path_len == 1 { 1 } else { path_len + 1 };
        let root = store.build(&path[start..], value, permissions, generation, State::Private);
        self.values += value.len();
        let name = store.nodes.get(root).name.clone();
        let end = start + name.len();
        let owner = View::of(store, Some(self)).content(above).permissions.owner();
        self.accounts.charge(owner, 0, signed(name.len() + 1));
        let mut charges = Vec::new();
        let view = View::of(store, Some(self));
        view.walk(root, &path[..end], |path, id| {
            charges.push((view.content(id).permissions.owner(), signed(view.size(id) + path.len())));
        });
        for (owner, bytes) in charges {
            self.accounts.charge(owner, 1, bytes);
        }
        self.change_list(store, above, &path[..path_len], generation, |own, children, nodes| {
            children.put(nodes, root);
            if let Some(own) = own {
                own.added.insert(name, root);
            }
        });
    }

    /// Removes a node that it sees, with all below it.
    pub(crate) fn remove(&mut self, store: &mut Store, path: &[u8], generation: Generation) {
        let name = SmallBytes::from(last_name(path));
        let view = View::of(store, Some(self));
        let Some(above) = view.find(parent(path)) else { return };
        let Some(root) = view.child(above, name.as_slice()) else { return };
        self.write(store, path, Some(root), |written| {
            written.removed = true;
            written.value = false;
            written.permissions = false;
        });
        let view = View::of(store, Some(self));
        let mut gone = Vec::new();
        view.walk(root, path, |path, id| {
            gone.push((id, view.content(id).permissions.owner(), signed(view.size(id) + path.len())));
        });
        let owner = view.content(above).permissions.owner();
        self.accounts.charge(owner, 0, -signed(name.len() + 1));
        for &(_, owner, bytes) in &gone {
            self.accounts.charge(owner, -1, -bytes);
        }
        self.change_list(store, above, parent(path), generation, |own, children, nodes| {
            children.take(nodes, name.as_slice());
            if let Some(own) = own
                && own.added.remove(&name).is_none()
            {
                own.removed.insert(name);
            }
        });
        for (id, ..) in gone {
            self.values -= self.own_value_len(store, id).unwrap_or(0);
            self.contents.remove(&id);
            self.lists.remove(&id);
            if store.nodes.get(id).state == State::Private {
                store.nodes.free(id);
            }
        }
    }

    /// Changes the child list of a node that it sees, for it alone.
    fn change_list(
        &mut self,
        store: &mut Store,
        id: NodeId,
        path: &[u8],
        generation: Generation,
        change: impl FnOnce(Option<&mut OwnList>, &mut Children, &crate::node::Nodes),
    ) {
        if store.nodes.get(id).state == State::Private {
            let node = store.nodes.get_mut(id);
            node.list_generation = generation;
            let mut children = std::mem::replace(&mut node.children, Children::None);
            change(None, &mut children, &store.nodes);
            store.nodes.get_mut(id).children = children;
            return;
        }
        if !self.lists.contains_key(&id) {
            let children = View::then(store, self).children(id).clone();
            let (added, removed) = (BTreeMap::new(), BTreeSet::new());
            self.lists.insert(id, OwnList { path: path.into(), children, generation, added, removed });
        }
        if let Some(own) = self.lists.get_mut(&id) {
            own.generation = generation;
            let mut children = std::mem::replace(&mut own.children, Children::None);
            change(Some(own), &mut children, &store.nodes);
            own.children = children;
        }
    }

    /// Whether it gave rights to one of these domains, or nodes.
    pub(crate) fn names_any(&self, store: &Store, gone: impl Fn(DomId) -> bool) -> bool {
        let names = |content: &Content| content.permissions.iter().any(|entry| !entry.ignored && gone(entry.domid));
        let mut found = self.contents.values().any(|own| own.permissions && names(&own.content));
        for own in self.lists.values() {
            for &root in own.added.values() {
                store.now().walk(root, b"/", |_, id| found |= names(store.now().content(id)));
            }
        }
        found
    }

    /// What the commit does to each domain's usage: domain, nodes then, nodes more.
    pub(crate) fn growth(&self, store: &Store) -> Vec<(DomId, u64, i64)> {
        let mut growth = Vec::new();
        for domid in self.accounts.touched() {
            let (base, mine) = (self.base_accounts.usage(domid), self.accounts.usage(domid));
            let more = i64::from(mine.nodes) - i64::from(base.nodes);
            let then = i64::from(store.accounts.usage(domid).nodes) + more;
            growth.push((domid, u64::try_from(then).unwrap_or(0), more));
        }
        growth
    }

    /// Whether all that the transaction relied on is still so.
    ///
    /// # Errors
    /// The node that changed meanwhile, where it is one.
    pub(crate) fn validate(&self, store: &Store) -> Result<(), Option<NodeId>> {
        if self.outdated {
            return Err(None);
        }
        if !store.changed_after(self.generation) {
            return Ok(());
        }
        let conflict = self.touched.iter().find(|(path, touched)| !self.holds(store, path, touched));
        conflict.map_or(Ok(()), |(path, touched)| Err(touched.base.or_else(|| store.find(path))))
    }

    fn holds(&self, store: &Store, path: &[u8], touched: &Touched) -> bool {
        let relied = touched.relied;
        if relied == Relied::NOTHING {
            return true;
        }
        let Some(base) = touched.base else { return store.find(path).is_none() };
        let same_permissions =
            |id: NodeId| View::then(store, self).content(base).permissions == store.now().content(id).permissions;
        let node = store.nodes.get(base);
        if node.state == State::Removed {
            // Another node may stand there by now, which is enough for who only counts on there being one.
            let again = store.find(path);
            return again.is_some_and(|id| {
                !relied.needs_the_node() && (!relied.has(Relied::PERMISSIONS) || same_permissions(id))
            });
        }
        let unchanged = node.content.generation <= self.generation;
        (unchanged || (!relied.has(Relied::CONTENT) && (!relied.has(Relied::PERMISSIONS) || same_permissions(base))))
            && (!relied.has(Relied::LIST) || node.list_generation <= self.generation)
            && (!relied.has(Relied::SUBTREE) || self.is_subtree_unchanged(store, base))
    }

    fn is_subtree_unchanged(&self, store: &Store, root: NodeId) -> bool {
        let mut unchanged = true;
        store.now().walk(root, b"/", |_, id| {
            let node = store.nodes.get(id);
            unchanged &= node.content.generation <= self.generation && node.list_generation <= self.generation;
        });
        unchanged
    }

    /// Brings the changes into the store, after [`Transaction::validate`] said that this may be done, and ends the
    /// transaction. Returns the subtrees that it removed, with their paths, to be buried once their watchers are told.
    pub(crate) fn apply(&mut self, store: &mut Store, generation: Generation) -> Vec<(Box<[u8]>, NodeId)> {
        // Where a node was removed and made again by others meanwhile, the changes go to the new one.
        let target = |store: &Store, id: NodeId, path: &[u8]| match store.nodes.get(id).state {
            State::Live => Some(id),
            _ => store.find(path),
        };
        let lists: Vec<_> = std::mem::take(&mut self.lists)
            .into_iter()
            .filter_map(|(id, own)| Some((target(store, id, &own.path)?, own)))
            .collect();
        let contents: Vec<_> = std::mem::take(&mut self.contents)
            .into_iter()
            .filter_map(|(id, own)| Some((target(store, id, &own.path)?, own)))
            .collect();
        store.freed += self.touched_count();
        // Its own snapshot needs nothing put aside any more.
        store.close_snapshot(self.snapshot);
        let mut removed = Vec::new();
        for (id, own) in lists {
            let below = |name: &SmallBytes| {
                let mut path = own.path.to_vec();
                push_name(&mut path, name.as_slice());
                path
            };
            for name in &own.removed {
                let path = below(name);
                if let Some(root) = store.remove(&path, generation) {
                    removed.push((path.into(), root));
                }
            }
            for (name, &root) in &own.added {
                store.graft(id, root, &below(name), generation);
            }
        }
        for (id, own) in contents {
            if own.value {
                store.set_value(id, own.content.value, generation);
            }
            if own.permissions {
                store.set_permissions(id, own.path.len(), own.content.permissions, generation);
            }
        }
        removed
    }

    /// Lets go of all that the transaction holds and sees, and goes on with the store as it is now. What it did is forgotten,
    /// and its commit fails.
    pub(crate) fn begin_again(&mut self, store: &mut Store) {
        let again = Self { outdated: true, ..Self::new(self.id, store) };
        std::mem::replace(self, again).abort(store);
    }

    /// Ends the transaction without a trace.
    pub(crate) fn abort(self, store: &mut Store) {
        store.freed += 1 + self.touched_count();
        for own in self.lists.into_values() {
            for root in own.added.into_values() {
                store.free(root);
            }
        }
        store.close_snapshot(self.snapshot);
    }
}

mod image;
