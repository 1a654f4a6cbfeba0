//! The tree of nodes with the accounts of who owns them.
//!
//! Changes are made in place; what open snapshots still want to see is put aside first. Nothing here asks who may do
//! what.

use crate::{
    accounts::Accounts,
    children::Children,
    id::DomId,
    node::{Content, Generation, NodeId, Nodes, State},
    path::{last_name, parent},
    permission::{Access, Permission, Permissions},
    small_bytes::SmallBytes,
    snapshot::{SnapshotId, Snapshots},
    view::{Nearest, View},
};

/// Name of the special node whose permissions say who sees domains being introduced.
pub(crate) const INTRODUCE_DOMAIN: &[u8] = b"@introduceDomain";

/// Name of the special node whose permissions say who sees domains going.
pub(crate) const RELEASE_DOMAIN: &[u8] = b"@releaseDomain";

/// All nodes, as they are and as open snapshots want them.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) nodes: Nodes,
    pub(crate) snapshots: Snapshots,
    pub(crate) accounts: Accounts,
    root: NodeId,
    introduce_domain: NodeId,
    release_domain: NodeId,
    /// Last change of anything in the tree.
    changed: Generation,
    /// Nodes, and paths of transactions, that were freed since somebody asked.
    pub(crate) freed: usize,
}

impl Store {
    /// The store of a fresh start: `/`, `/tool`, `/tool/xenstored` and the two special nodes, owned by `owner`.
    pub(crate) fn new(owner: DomId) -> Self {
        let mut nodes = Nodes::default();
        let private = Permissions::private(owner);
        let any = Permission { domid: DomId::ANY, access: Access::Read, ignored: false };
        let public = Permissions::new(private.owner_entry(), vec![any]);
        let mut add = |name: &[u8], permissions: &Permissions| {
            let content = Content { value: SmallBytes::empty(), permissions: permissions.clone(), generation: 0 };
            nodes.add(name, content, State::Live)
        };
        let (root, introduce_domain, release_domain) =
            (add(b"", &private), add(INTRODUCE_DOMAIN, &private), add(RELEASE_DOMAIN, &public));
        let (snapshots, accounts) = (Snapshots::default(), Accounts::default());
        let mut store =
            Self { nodes, snapshots, accounts, root, introduce_domain, release_domain, changed: 0, freed: 0 };
        for (id, path) in [(root, &b"/"[..]), (introduce_domain, INTRODUCE_DOMAIN), (release_domain, RELEASE_DOMAIN)] {
            store.charge(id, path.len(), 1);
        }
        store.create(b"/tool/xenstored", b"", &private, 0);
        store
    }

    /// The root.
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// A special node.
    pub(crate) fn special(&self, name: &[u8]) -> Option<NodeId> {
        match name {
            INTRODUCE_DOMAIN => Some(self.introduce_domain),
            RELEASE_DOMAIN => Some(self.release_domain),
            _ => None,
        }
    }

    /// Both special nodes with their names.
    pub(crate) fn specials(&self) -> [(&'static [u8], NodeId); 2] {
        [(RELEASE_DOMAIN, self.release_domain), (INTRODUCE_DOMAIN, self.introduce_domain)]
    }

    /// The store as it is.
    pub(crate) fn now(&self) -> View<'_> {
        View::now(self)
    }

    /// The node at a canonical path or special name, as it is.
    pub(crate) fn find(&self, path: &[u8]) -> Option<NodeId> {
        self.now().find(path)
    }

    /// Permissions of the node at a path, as they are.
    pub(crate) fn permissions_at(&self, path: &[u8]) -> Option<Permissions> {
        Some(self.nodes.get(self.find(path)?).content.permissions.clone())
    }

    /// Whether anything changed after a moment.
    pub(crate) fn changed_after(&self, generation: Generation) -> bool {
        self.changed > generation
    }

    /// Opens a snapshot; returns it with the generation that it shows.
    pub(crate) fn open_snapshot(&mut self) -> (SnapshotId, Generation) {
        (self.snapshots.open(self.changed), self.changed)
    }

    /// Closes a snapshot and frees what only it could see.
    pub(crate) fn close_snapshot(&mut self, id: SnapshotId) {
        for root in self.snapshots.close(id) {
            self.free(root);
        }
    }

    /// Sets the value of a node.
    pub(crate) fn set_value(&mut self, id: NodeId, value: SmallBytes, generation: Generation) {
        self.snapshots.keep_content(id, self.nodes.get(id));
        self.changed = generation;
        let content = &mut self.nodes.get_mut(id).content;
        let more = signed(value.len()) - signed(content.value.len());
        content.value = value;
        content.generation = generation;
        self.accounts.charge(content.permissions.owner(), 0, more);
    }

    /// Sets the permissions of a node whose path has `path_len` bytes; a new owner takes it into its account.
    pub(crate) fn set_permissions(&mut self, id: NodeId, path_len: usize, new: Permissions, generation: Generation) {
        self.snapshots.keep_content(id, self.nodes.get(id));
        self.changed = generation;
        self.charge(id, path_len, -1);
        let content = &mut self.nodes.get_mut(id).content;
        content.permissions = new;
        content.generation = generation;
        self.charge(id, path_len, 1);
    }

    /// Makes a node that does not exist, and every ancestor that is missing, all with the same permissions.
    pub(crate) fn create(&mut self, path: &[u8], value: &[u8], permissions: &Permissions, generation: Generation) {
        let Nearest { id: above, path_len, missing } = self.now().nearest(path);
        if missing > 0 {
            let below = if path_len == 1 { &path[1..] } else { &path[path_len + 1..] };
            let root = self.build(below, value, permissions, generation, State::Live);
            let top = path.len() - below.len() + self.nodes.get(root).name.len();
            self.graft(above, root, &path[..top], generation);
        }
    }

    /// Makes a chain of nodes for the names of a relative path, the last with a value; returns the first.
    pub(crate) fn build(
        &mut self,
        below: &[u8],
        value: &[u8],
        permissions: &Permissions,
        generation: Generation,
        state: State,
    ) -> NodeId {
        let mut content = Content { value: value.into(), permissions: permissions.clone(), generation };
        let mut child = None;
        for name in below.rsplit(|&byte| byte == b'/') {
            let id = self.nodes.add(name, content, state);
            content = Content { value: SmallBytes::empty(), permissions: permissions.clone(), generation };
            if let Some(child) = child {
                self.nodes.get_mut(id).children = Children::One(child);
            }
            child = Some(id);
        }
        child.expect("a path splits into one name at least")
    }

    /// Hangs a subtree, at `path` from then on, below a node that has no child of that name.
    pub(crate) fn graft(&mut self, above: NodeId, root: NodeId, path: &[u8], generation: Generation) {
        let mut ids = Vec::new();
        self.now().walk(root, path, |path, id| ids.push((id, path.len())));
        for (id, path_len) in ids {
            let node = self.nodes.get_mut(id);
            node.state = State::Live;
            // Made by a transaction, it may be older than snapshots that do not see it.
            node.content.generation = generation;
            node.list_generation = generation;
            self.charge(id, path_len, 1);
        }
        self.change_list(above, generation, |children, nodes| children.put(nodes, root));
        let owner = self.nodes.get(above).content.permissions.owner();
        self.accounts.charge(owner, 0, signed(last_name(path).len() + 1));
    }

    /// Takes the node at `path` out of its parent with all that lies below it. The nodes stay until
    /// [`Store::bury`], so that their watchers can be told.
    pub(crate) fn remove(&mut self, path: &[u8], generation: Generation) -> Option<NodeId> {
        let above = self.find(parent(path))?;
        let name = last_name(path);
        let root = self.now().child(above, name)?;
        self.change_list(above, generation, |children, nodes| {
            children.take(nodes, name);
        });
        let owner = self.nodes.get(above).content.permissions.owner();
        self.accounts.charge(owner, 0, -signed(name.len() + 1));
        let mut ids = Vec::new();
        self.now().walk(root, path, |path, id| ids.push((id, path.len())));
        for (id, path_len) in ids {
            self.nodes.get_mut(id).state = State::Removed;
            self.charge(id, path_len, -1);
        }
        Some(root)
    }

    fn change_list(&mut self, id: NodeId, generation: Generation, change: impl FnOnce(&mut Children, &Nodes)) {
        self.snapshots.keep_list(id, self.nodes.get(id));
        self.changed = generation;
        let node = self.nodes.get_mut(id);
        node.list_generation = generation;
        let mut children = std::mem::replace(&mut node.children, Children::None);
        change(&mut children, &self.nodes);
        self.nodes.get_mut(id).children = children;
    }

    /// Frees a removed subtree as soon as no snapshot can see it.
    pub(crate) fn bury(&mut self, root: NodeId) {
        if let Some(root) = self.snapshots.keep_removed(root, &self.nodes) {
            self.free(root);
        }
    }

    /// Frees all nodes of a subtree that nobody can see.
    pub(crate) fn free(&mut self, root: NodeId) {
        let mut doomed = vec![root];
        while let Some(id) = doomed.pop() {
            self.freed += 1;
            doomed.extend(self.nodes.free(id).children.iter());
        }
    }

    /// Adds one node to the accounts (`sign` 1) or takes it from them (-1).
    fn charge(&mut self, id: NodeId, path_len: usize, sign: i64) {
        let size = self.now().size(id) + path_len;
        self.accounts.charge(self.nodes.get(id).content.permissions.owner(), sign, sign * signed(size));
    }

    /// Counts all nodes afresh. Where that differs from the accounts, they are put right, and it is told how they were
    /// wrong.
    pub(crate) fn mend_accounts(&mut self) -> Option<String> {
        let mut counted = Accounts::default();
        let mut count = |path: &[u8], id: NodeId| {
            let owner = self.nodes.get(id).content.permissions.owner();
            counted.charge(owner, 1, signed(self.now().size(id) + path.len()));
        };
        self.now().walk(self.root, b"/", &mut count);
        for (name, id) in self.specials() {
            count(name, id);
        }
        let wrong = self.accounts.iter().chain(counted.iter()).find_map(|(domid, _)| {
            let (kept, right) = (self.accounts.usage(domid), counted.usage(domid));
            (kept != right).then(|| format!("domain {domid} was accounted {kept:?}, it has {right:?}"))
        })?;
        self.accounts = counted;
        Some(wrong)
    }
}

/// A length as a difference.
pub(crate) fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;

    const DOM0: DomId = DomId::DOM0;

    fn private(domid: u16) -> Permissions {
        Permissions::private(DomId(domid))
    }

    fn paths(store: &Store) -> Vec<String> {
        let mut paths = Vec::new();
        store.now().walk(store.root(), b"/", |path, _| paths.push(String::from_utf8(path.to_vec()).unwrap()));
        paths
    }

    #[test]
    fn a_fresh_store_has_five_nodes() {
        let mut store = Store::new(DOM0);
        assert_eq!(paths(&store), ["/", "/tool", "/tool/xenstored"]);
        assert_eq!(store.accounts.usage(DOM0).nodes, 5);
        assert_eq!(store.mend_accounts(), None);
    }

    #[test]
    fn missing_ancestors_are_made_along() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b/c", b"v", &private(7), 1);
        assert_eq!(paths(&store), ["/", "/a", "/a/b", "/a/b/c", "/tool", "/tool/xenstored"]);
        let value = |path: &[u8]| store.now().content(store.find(path).unwrap()).value.as_slice().to_vec();
        assert_eq!((value(b"/a/b/c"), value(b"/a/b")), (b"v".to_vec(), Vec::new()));
        assert_eq!(store.accounts.usage(DomId(7)).nodes, 3);
        assert_eq!(store.mend_accounts(), None);
    }

    #[test]
    fn the_nearest_node_tells_what_is_missing() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"", &private(0), 1);
        let at = |path: &[u8]| {
            let nearest = store.now().nearest(path);
            (nearest.path_len, nearest.missing)
        };
        assert_eq!(at(b"/"), (1, 0));
        assert_eq!(at(b"/a/b"), (4, 0));
        assert_eq!(at(b"/a/b/c/d"), (4, 2));
        assert_eq!(at(b"/x/y"), (1, 2));
    }

    #[test]
    fn a_new_owner_takes_the_node_into_its_account() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"value", &private(4), 1);
        let node = store.find(b"/a/b").unwrap();
        store.set_permissions(node, 4, private(5), 2);
        assert_eq!((store.accounts.usage(DomId(4)).nodes, store.accounts.usage(DomId(5)).nodes), (1, 1));
        assert_eq!(store.mend_accounts(), None);
    }

    #[test]
    fn lists_change_only_with_the_names() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"", &private(0), 10);
        let (a, b) = (store.find(b"/a").unwrap(), store.find(b"/a/b").unwrap());
        store.set_value(b, b"x"[..].into(), 11);
        store.set_value(a, b"x"[..].into(), 12);
        assert_eq!(store.now().list_generation(a), 10);
        store.create(b"/a/c", b"", &private(0), 13);
        assert_eq!(store.now().list_generation(a), 13);
        let removed = store.remove(b"/a/c", 14).unwrap();
        store.bury(removed);
        assert_eq!(store.now().list_generation(a), 14);
    }

    #[test]
    fn removed_nodes_are_freed_at_once_without_a_snapshot() {
        let mut store = Store::new(DOM0);
        let before = store.nodes.len();
        store.create(b"/a/b/c", b"", &private(3), 1);
        let removed = store.remove(b"/a", 2).unwrap();
        assert_eq!(store.nodes.len(), before + 3, "watchers are to be told first");
        store.bury(removed);
        assert_eq!(store.nodes.len(), before);
        assert_eq!(store.mend_accounts(), None);
    }

    #[test]
    fn a_deep_path_needs_no_deep_stack() {
        let deep = b"/a".repeat(2000);
        let mut store = Store::new(DOM0);
        store.create(&deep, b"", &private(0), 1);
        assert_eq!(store.accounts.usage(DOM0).nodes, 2005);
        assert_eq!(store.mend_accounts(), None);
        let removed = store.remove(b"/a", 2).unwrap();
        store.bury(removed);
        assert_eq!(store.accounts.usage(DOM0).nodes, 5);
    }
}
