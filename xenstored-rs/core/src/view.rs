//! The store as somebody sees it: as it is now, or as a transaction made it from what it was at its start.

use std::ops::ControlFlow;

use crate::{
    children::Children,
    node::{Content, Generation, NodeId, Nodes, State},
    path::names,
    store::Store,
    transaction::Transaction,
};

/// A moment of the store, with a transaction's own changes over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    store: &'a Store,
    seen: Seen<'a>,
}

/// Which moment.
#[derive(Clone, Copy, Debug)]
enum Seen<'a> {
    /// Now.
    Now,
    /// The start of a transaction.
    Then(Generation),
    /// The same, with the transaction's changes.
    Own(&'a Transaction),
}

/// Where the way to a path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearest {
    /// The node itself, or its nearest ancestor that exists.
    pub(crate) id: NodeId,
    /// Bytes of the path that lead to that node; 1 for the root.
    pub(crate) path_len: usize,
    /// Names below that node which do not exist; 0 where the node itself was found.
    pub(crate) missing: usize,
}

impl<'a> View<'a> {
    /// The store as it is.
    pub(crate) fn now(store: &'a Store) -> Self {
        Self { store, seen: Seen::Now }
    }

    /// The store as it was when a transaction started.
    pub(crate) fn then(store: &'a Store, transaction: &Transaction) -> Self {
        Self { store, seen: Seen::Then(transaction.generation) }
    }

    /// The store as a transaction made it, or as it is for who has none.
    pub(crate) fn of(store: &'a Store, transaction: Option<&'a Transaction>) -> Self {
        Self { store, seen: transaction.map_or(Seen::Now, Seen::Own) }
    }

    /// Value and permissions of a node.
    pub(crate) fn content(self, id: NodeId) -> &'a Content {
        let node = self.store.nodes.get(id);
        let generation = match self.seen {
            Seen::Now => return &node.content,
            Seen::Then(generation) => generation,
            Seen::Own(transaction) => {
                if let Some(content) = transaction.own_content(id) {
                    return content;
                }
                transaction.generation
            }
        };
        if node.content.generation <= generation || node.state == State::Private {
            return &node.content;
        }
        self.store.snapshots.content(id, generation).unwrap_or(&node.content)
    }

    /// Children of a node, and their list's last change.
    fn list(self, id: NodeId) -> (Generation, &'a Children) {
        let node = self.store.nodes.get(id);
        let now = (node.list_generation, &node.children);
        let generation = match self.seen {
            Seen::Now => return now,
            Seen::Then(generation) => generation,
            Seen::Own(transaction) => {
                if let Some(list) = transaction.own_list(id) {
                    return list;
                }
                transaction.generation
            }
        };
        if node.list_generation <= generation || node.state == State::Private {
            return now;
        }
        self.store.snapshots.list(id, generation).unwrap_or(now)
    }

    /// Children of a node.
    pub(crate) fn children(self, id: NodeId) -> &'a Children {
        self.list(id).1
    }

    /// Last change of a node's child list.
    pub(crate) fn list_generation(self, id: NodeId) -> Generation {
        self.list(id).0
    }

    /// Bytes of a node's child list.
    pub(crate) fn child_list_len(self, id: NodeId) -> usize {
        self.children(id).list_len(self.nodes())
    }

    /// Bytes that a node counts for in the `node-size` quota.
    pub(crate) fn size(self, id: NodeId) -> usize {
        self.content(id).size(self.child_list_len(id))
    }

    /// The child of a node.
    pub(crate) fn child(self, id: NodeId, name: &[u8]) -> Option<NodeId> {
        self.children(id).get(self.nodes(), name)
    }

    /// All nodes.
    pub(crate) fn nodes(self) -> &'a Nodes {
        &self.store.nodes
    }

    /// The node at a canonical path or special name.
    pub(crate) fn find(self, path: &[u8]) -> Option<NodeId> {
        if path.first() == Some(&b'@') {
            return self.store.special(path);
        }
        names(path).try_fold(self.store.root(), |node, name| self.child(node, name))
    }

    /// The node at a canonical path, or its nearest ancestor.
    pub(crate) fn nearest(self, path: &[u8]) -> Nearest {
        let mut id = self.store.root();
        let mut path_len = 0;
        let mut rest = names(path);
        loop {
            let before = rest.clone();
            let Some(name) = rest.next() else {
                return Nearest { id, path_len: path_len.max(1), missing: 0 };
            };
            let Some(child) = self.child(id, name) else {
                return Nearest { id, path_len: path_len.max(1), missing: before.count() };
            };
            id = child;
            path_len += 1 + name.len();
        }
    }

    /// Visits a subtree that stands at `path`, each node before its children, children in order.
    pub(crate) fn walk(self, root: NodeId, path: &[u8], mut visit: impl FnMut(&[u8], NodeId)) {
        let above = path.len() - crate::path::last_name(path).len();
        let mut path = path[..above].to_vec();
        let mut stack = vec![(root, above)];
        while let Some((id, above)) = stack.pop() {
            path.truncate(above);
            path.extend_from_slice(self.nodes().get(id).name.as_slice());
            visit(&path, id);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            stack.extend(self.children(id).iter().rev().map(|child| (child, path.len())));
        }
    }

    /// Visits the nodes of the tree that come behind `behind` in the order of [`View::walk`], until `visit` wants no
    /// more; behind `/` come all but the root. `behind` need not exist any more.
    pub(crate) fn walk_on(self, behind: &[u8], mut visit: impl FnMut(&[u8], NodeId) -> ControlFlow<()>) {
        let mut path = Vec::with_capacity(64);
        // Who is still to be visited at each level, and the length of their parent's path.
        let mut levels: Vec<(usize, Box<dyn Iterator<Item = NodeId> + 'a>)> = Vec::new();
        let mut here = Some(self.store.root());
        for name in names(behind) {
            let Some(id) = here else { break };
            levels.push((path.len(), self.children(id).after(self.nodes(), name)));
            here = self.child(id, name);
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if let Some(id) = here {
            levels.push((path.len(), self.children(id).after(self.nodes(), b"")));
        }
        while let Some((above, siblings)) = levels.last_mut() {
            let Some(id) = siblings.next() else {
                levels.pop();
                continue;
            };
            path.truncate(*above);
            path.push(b'/');
            path.extend_from_slice(self.nodes().get(id).name.as_slice());
            if visit(&path, id).is_break() {
                return;
            }
            let children = self.children(id);
            if children.len() > 0 {
                levels.push((path.len(), children.after(self.nodes(), b"")));
            }
        }
    }
}
