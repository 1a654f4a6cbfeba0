//! The tree of nodes with the accounts of who owns them.
//!
//! A clone is a snapshot: a few pointers. A change copies the nodes on its path where a snapshot still shares them and
//! is made in place otherwise. Nothing here asks who may do what.

use std::rc::Rc;

use crate::{
    accounts::Accounts,
    id::DomId,
    node::{Generation, Node},
    path::{names, parent, push_name},
    permission::{Access, Permission, Permissions},
};

/// Name of the special node whose permissions say who sees domains being introduced.
pub(crate) const INTRODUCE_DOMAIN: &[u8] = b"@introduceDomain";

/// Name of the special node whose permissions say who sees domains going.
pub(crate) const RELEASE_DOMAIN: &[u8] = b"@releaseDomain";

/// All nodes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: Rc<Node>,
    introduce_domain: Rc<Node>,
    release_domain: Rc<Node>,
    pub(crate) accounts: Accounts,
}

/// Where the way to a path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearest<'a> {
    /// The node itself, or its nearest ancestor that exists.
    pub(crate) node: &'a Node,
    /// Bytes of the path that lead to that node.
    pub(crate) path_len: usize,
    /// Names below that node which do not exist; 0 where the node itself was found.
    pub(crate) missing: usize,
}

impl Store {
    /// The store of a fresh start: `/`, `/tool`, `/tool/xenstored` and the two special nodes, owned by `owner`.
    pub(crate) fn new(owner: DomId) -> Self {
        let private = Permissions::private(owner);
        let any = Permission { domid: DomId::ANY, access: Access::Read, ignored: false };
        let first = *private.iter().next().expect("there is always an owner");
        let node = |name: &[u8], permissions: &Permissions| Rc::new(Node::new(name, b"", permissions.clone(), 0));
        let mut store = Self {
            root: node(b"", &private),
            introduce_domain: node(INTRODUCE_DOMAIN, &private),
            release_domain: node(RELEASE_DOMAIN, &Permissions::new(first, vec![any])),
            accounts: Accounts::default(),
        };
        for (node, path_len) in [
            (Rc::clone(&store.root), 1),
            (Rc::clone(&store.introduce_domain), INTRODUCE_DOMAIN.len()),
            (Rc::clone(&store.release_domain), RELEASE_DOMAIN.len()),
        ] {
            store.charge(&node, path_len, 1);
        }
        store.create(b"/tool/xenstored", b"", &private, 0);
        store
    }

    /// The node at a canonical path or special name.
    pub(crate) fn find(&self, path: &[u8]) -> Option<&Rc<Node>> {
        if path.first() == Some(&b'@') {
            return self.special(path);
        }
        let mut node = &self.root;
        for name in names(path) {
            node = node.child(name)?;
        }
        Some(node)
    }

    fn special(&self, name: &[u8]) -> Option<&Rc<Node>> {
        match name {
            INTRODUCE_DOMAIN => Some(&self.introduce_domain),
            RELEASE_DOMAIN => Some(&self.release_domain),
            _ => None,
        }
    }

    /// The node at a canonical path, or its nearest ancestor.
    pub(crate) fn nearest(&self, path: &[u8]) -> Nearest<'_> {
        let mut node = &self.root;
        let mut path_len = 0;
        let mut rest = names(path);
        loop {
            let before = rest.clone();
            let Some(name) = rest.next() else { break };
            let Some(child) = node.child(name) else {
                return Nearest { node, path_len: path_len.max(1), missing: before.count() };
            };
            node = child;
            path_len += 1 + name.len();
        }
        Nearest { node, path_len: path_len.max(1), missing: 0 }
    }

    /// The node at `path`, no longer shared with any snapshot.
    fn node_mut(&mut self, path: &[u8]) -> Option<&mut Node> {
        let special = match path {
            INTRODUCE_DOMAIN => Some(&mut self.introduce_domain),
            RELEASE_DOMAIN => Some(&mut self.release_domain),
            _ => None,
        };
        if let Some(node) = special {
            return Some(Rc::make_mut(node));
        }
        let mut node = Rc::make_mut(&mut self.root);
        for name in names(path) {
            node = Rc::make_mut(node.child_mut(name)?);
        }
        Some(node)
    }

    /// Sets the value of a node that exists.
    pub(crate) fn set_value(&mut self, path: &[u8], value: &[u8], generation: Generation) {
        let Some(node) = self.node_mut(path) else { return };
        let owner = node.permissions.owner();
        let more = signed(value.len()) - signed(node.value.len());
        node.value = value.into();
        node.generation = generation;
        self.accounts.charge(owner, 0, more);
    }

    /// Sets the permissions of a node that exists; a new owner takes the node into its account.
    pub(crate) fn set_permissions(&mut self, path: &[u8], permissions: Permissions, generation: Generation) {
        let Some(node) = self.node_mut(path) else { return };
        let (old_owner, old) = (node.permissions.owner(), signed(node.size() + path.len()));
        node.permissions = permissions;
        node.generation = generation;
        let (new_owner, new) = (node.permissions.owner(), signed(node.size() + path.len()));
        if old_owner == new_owner {
            self.accounts.charge(old_owner, 0, new - old);
        } else {
            self.accounts.charge(old_owner, -1, -old);
            self.accounts.charge(new_owner, 1, new);
        }
    }

    /// Makes a node that does not exist, and every ancestor that is missing, all with the same permissions.
    pub(crate) fn create(&mut self, path: &[u8], value: &[u8], permissions: &Permissions, generation: Generation) {
        let Nearest { path_len, missing, .. } = self.nearest(path);
        if missing == 0 {
            return;
        }
        let (above, below) = path.split_at(if path_len == 1 { 0 } else { path_len });
        let mut below: Vec<&[u8]> = names(below).collect();
        let mut node = Node::new(below.pop().unwrap_or_default(), value, permissions.clone(), generation);
        while let Some(name) = below.pop() {
            let mut holder = Node::new(name, b"", permissions.clone(), generation);
            holder.put_child(Rc::new(node), generation);
            node = holder;
        }
        self.graft(if above.is_empty() { b"/" } else { above }, Rc::new(node), generation);
    }

    /// Puts a whole subtree in as a child of a node that exists, in place of one with the same name.
    pub(crate) fn graft(&mut self, above: &[u8], subtree: Rc<Node>, generation: Generation) {
        self.charge_subtree(&subtree, above, 1);
        let Some(node) = self.node_mut(above) else { return };
        let owner = node.permissions.owner();
        let old = node.child_list_len();
        let replaced = node.child(subtree.name.as_slice()).map(Rc::clone);
        node.put_child(subtree, generation);
        let more = signed(node.child_list_len()) - signed(old);
        self.accounts.charge(owner, 0, more);
        if let Some(replaced) = replaced {
            self.charge_subtree(&replaced, above, -1);
        }
    }

    /// Puts a subtree in where the accounts already tell of it.
    pub(crate) fn replace_accounted(&mut self, above: &[u8], subtree: Rc<Node>, generation: Generation) {
        if let Some(node) = self.node_mut(above) {
            node.put_child(subtree, generation);
        }
    }

    /// Takes a subtree out where the accounts already tell of its going.
    pub(crate) fn remove_accounted(&mut self, path: &[u8], generation: Generation) {
        if let Some(node) = self.node_mut(parent(path)) {
            node.take_child(last_name(path), generation);
        }
    }

    /// Takes a node out with all that lies below it.
    pub(crate) fn remove(&mut self, path: &[u8], generation: Generation) -> Option<Rc<Node>> {
        self.find(path)?;
        let name = last_name(path);
        let node = self.node_mut(parent(path))?;
        let owner = node.permissions.owner();
        let taken = node.take_child(name, generation)?;
        self.accounts.charge(owner, 0, -signed(name.len() + 1));
        self.charge_subtree(&taken, parent(path), -1);
        Some(taken)
    }

    /// Adds a subtree to the accounts (`sign` 1) or takes it from them (-1).
    fn charge_subtree(&mut self, subtree: &Rc<Node>, above: &[u8], sign: i64) {
        let accounts = &mut self.accounts;
        walk(subtree, above, |path, node| {
            accounts.charge(node.permissions.owner(), sign, sign * signed(node.size() + path.len()));
        });
    }

    /// Adds one node to the accounts (`sign` 1) or takes it from them (-1).
    pub(crate) fn charge(&mut self, node: &Node, path_len: usize, sign: i64) {
        self.accounts.charge(node.permissions.owner(), sign, sign * signed(node.size() + path_len));
    }

    /// Counts all nodes afresh. Where that differs from the accounts, they are put right, and it is told how they were
    /// wrong.
    pub(crate) fn mend_accounts(&mut self) -> Option<String> {
        let mut counted = Accounts::default();
        let mut count = |path: &[u8], node: &Rc<Node>| {
            counted.charge(node.permissions.owner(), 1, signed(node.size() + path.len()));
        };
        walk(&self.root, b"", &mut count);
        for (name, node) in self.specials() {
            count(name, node);
        }
        let wrong = self.accounts.iter().chain(counted.iter()).find_map(|(domid, _)| {
            let (kept, right) = (self.accounts.usage(domid), counted.usage(domid));
            (kept != right).then(|| format!("domain {domid} was accounted {kept:?}, it has {right:?}"))
        })?;
        self.accounts = counted;
        Some(wrong)
    }

    /// The root.
    pub(crate) fn root(&self) -> &Rc<Node> {
        &self.root
    }

    /// The two special nodes.
    pub(crate) fn specials(&self) -> [(&'static [u8], &Rc<Node>); 2] {
        [(RELEASE_DOMAIN, &self.release_domain), (INTRODUCE_DOMAIN, &self.introduce_domain)]
    }
}

/// The last name of a canonical path.
pub(crate) fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Visits a subtree that hangs below `above`, each node before its children, children in order; `above` is the
/// parent's path, or empty where `subtree` is the root.
pub(crate) fn walk<'a>(subtree: &'a Rc<Node>, above: &[u8], mut visit: impl FnMut(&[u8], &'a Rc<Node>)) {
    let mut path = above.to_vec();
    let mut stack = vec![(subtree, path.len())];
    while let Some((node, above_len)) = stack.pop() {
        path.truncate(above_len);
        if path.is_empty() {
            path.push(b'/');
        } else {
            push_name(&mut path, node.name.as_slice());
        }
        visit(&path, node);
        let first = stack.len();
        stack.extend(node.children().map(|child| (child, path.len())));
        stack[first..].reverse();
    }
}

/// A length as a difference.
pub(crate) fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Usage;
    use std::collections::BTreeMap;

    const DOM0: DomId = DomId::DOM0;

    fn paths(store: &Store) -> Vec<String> {
        let mut paths = Vec::new();
        walk(store.root(), b"", |path, _| paths.push(String::from_utf8(path.to_vec()).unwrap()));
        paths
    }

    /// The accounts as they must be, counted afresh.
    fn counted(store: &Store) -> BTreeMap<DomId, Usage> {
        let mut accounts = Accounts::default();
        let mut count = |path: &[u8], node: &Rc<Node>| {
            accounts.charge(node.permissions.owner(), 1, signed(node.size() + path.len()));
        };
        walk(store.root(), b"", &mut count);
        for (name, node) in store.specials() {
            count(name, node);
        }
        accounts.iter().collect()
    }

    fn assert_accounts(store: &Store) {
        assert_eq!(store.accounts.iter().collect::<BTreeMap<_, _>>(), counted(store));
    }

    #[test]
    fn a_fresh_store_has_five_nodes() {
        let store = Store::new(DOM0);
        assert_eq!(paths(&store), ["/", "/tool", "/tool/xenstored"]);
        assert_eq!(store.accounts.usage(DOM0).nodes, 5);
        assert_accounts(&store);
    }

    #[test]
    fn missing_ancestors_are_made_along() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b/c", b"v", &Permissions::private(DomId(7)), 1);
        assert_eq!(paths(&store), ["/", "/a", "/a/b", "/a/b/c", "/tool", "/tool/xenstored"]);
        assert_eq!(store.find(b"/a/b/c").unwrap().value.as_slice(), b"v");
        assert_eq!(store.find(b"/a/b").unwrap().value.len(), 0);
        assert_eq!(store.accounts.usage(DomId(7)).nodes, 3);
        assert_accounts(&store);
    }

    #[test]
    fn the_nearest_node_tells_what_is_missing() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"", &Permissions::private(DOM0), 1);
        let at = |path: &[u8]| {
            let nearest = store.nearest(path);
            (nearest.path_len, nearest.missing)
        };
        assert_eq!(at(b"/"), (1, 0));
        assert_eq!(at(b"/a/b"), (4, 0));
        assert_eq!(at(b"/a/b/c/d"), (4, 2));
        assert_eq!(at(b"/x/y"), (1, 2));
    }

    #[test]
    fn a_snapshot_keeps_what_it_was() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"old", &Permissions::private(DOM0), 1);
        let snapshot = store.clone();
        store.set_value(b"/a/b", b"newer", 2);
        store.create(b"/a/c", b"", &Permissions::private(DomId(3)), 3);
        store.remove(b"/tool", 4);
        assert_eq!(snapshot.find(b"/a/b").unwrap().value.as_slice(), b"old");
        assert_eq!(paths(&snapshot), ["/", "/a", "/a/b", "/tool", "/tool/xenstored"]);
        assert_eq!(paths(&store), ["/", "/a", "/a/b", "/a/c"]);
        assert_accounts(&snapshot);
        assert_accounts(&store);
    }

    #[test]
    fn a_change_without_a_snapshot_is_made_in_place() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"old", &Permissions::private(DOM0), 1);
        let (above, node) = (Rc::as_ptr(store.find(b"/a").unwrap()), Rc::as_ptr(store.find(b"/a/b").unwrap()));
        store.set_value(b"/a/b", b"new", 2);
        assert_eq!(Rc::as_ptr(store.find(b"/a").unwrap()), above);
        assert_eq!(Rc::as_ptr(store.find(b"/a/b").unwrap()), node);
    }

    #[test]
    fn a_change_leaves_its_siblings_shared_with_the_snapshot() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"", &Permissions::private(DOM0), 1);
        let snapshot = store.clone();
        store.set_value(b"/a/b", b"new", 2);
        assert!(Rc::ptr_eq(store.find(b"/tool").unwrap(), snapshot.find(b"/tool").unwrap()));
        assert!(!Rc::ptr_eq(store.find(b"/a").unwrap(), snapshot.find(b"/a").unwrap()));
    }

    #[test]
    fn a_new_owner_takes_the_node_into_its_account() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"value", &Permissions::private(DomId(4)), 1);
        store.set_permissions(b"/a/b", Permissions::private(DomId(5)), 2);
        assert_eq!((store.accounts.usage(DomId(4)).nodes, store.accounts.usage(DomId(5)).nodes), (1, 1));
        assert_accounts(&store);
    }

    #[test]
    fn lists_change_only_with_the_names() {
        let mut store = Store::new(DOM0);
        store.create(b"/a/b", b"", &Permissions::private(DOM0), 10);
        store.set_value(b"/a/b", b"x", 11);
        store.set_value(b"/a", b"x", 12);
        assert_eq!(store.find(b"/a").unwrap().list_generation(), 10);
        store.create(b"/a/c", b"", &Permissions::private(DOM0), 13);
        assert_eq!(store.find(b"/a").unwrap().list_generation(), 13);
        store.remove(b"/a/c", 14);
        assert_eq!(store.find(b"/a").unwrap().list_generation(), 14);
        store.remove(b"/a/b", 15);
        assert_eq!(store.find(b"/a").unwrap().list_generation(), 0);
    }

    #[test]
    fn a_deep_path_needs_no_deep_stack() {
        let deep = b"/a".repeat(2000);
        let mut store = Store::new(DOM0);
        store.create(&deep, b"", &Permissions::private(DOM0), 1);
        assert_eq!(store.accounts.usage(DOM0).nodes, 2005);
        assert_accounts(&store);
        store.remove(b"/a", 2);
        assert_eq!(store.accounts.usage(DOM0).nodes, 5);
    }
}
