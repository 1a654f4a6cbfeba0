//! The tree: a map from path to node, copied whole whenever two views of it are needed.

use crate::{path, permission::Permission};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    rc::Rc,
};

/// The special node whose watchers hear of new domains.
pub(crate) const INTRODUCE_DOMAIN: &[u8] = b"@introduceDomain";
/// The special node whose watchers hear of domains that shut down or went away.
pub(crate) const RELEASE_DOMAIN: &[u8] = b"@releaseDomain";

/// What a path holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Any bytes.
    pub(crate) value: Vec<u8>,
    /// At least the owner's entry.
    pub(crate) permissions: Vec<Permission>,
    /// Last change of the value or the permissions.
    pub(crate) generation: u64,
    /// Last change of the list of children.
    pub(crate) list_generation: u64,
}

impl Node {
    /// The domain that owns it.
    pub(crate) fn owner(&self) -> u16 {
        self.permissions[0].domid
    }
}

/// One elementary change; every request that changes something is a sequence of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A node that was not there, under a parent that was.
    Create {
        /// Where.
        path: Vec<u8>,
        /// Its whole list.
        permissions: Vec<Permission>,
    },
    /// Another value for a node that is there.
    Value {
        /// Where.
        path: Vec<u8>,
        /// All of it.
        value: Vec<u8>,
    },
    /// Other permissions for a node that is there.
    Permissions {
        /// Where.
        path: Vec<u8>,
        /// The whole list.
        permissions: Vec<Permission>,
    },
    /// A node that is there goes, and all below it.
    Remove {
        /// Where.
        path: Vec<u8>,
    },
}

impl Change {
    /// The node that it is about.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Create { path, .. } | Self::Value { path, .. } | Self::Permissions { path, .. } => path,
            Self::Remove { path } => path,
        }
    }
}

/// Every node by its absolute path, the two special ones included.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Shared between copies, so that a copy is quick enough for long random runs.
    nodes: BTreeMap<Rc<[u8]>, Rc<Node>>,
    clock: u64,
}

impl Tree {
    /// The tree of a store that just started: five nodes, all of domain 0.
    pub(crate) fn new() -> Self {
        let mut tree = Self { nodes: BTreeMap::new(), clock: 0 };
        let private = vec![Permission::new(b'n', 0)];
        let public = vec![Permission::new(b'n', 0), Permission::new(b'r', crate::choice::DOMID_ANY)];
        for path in [b"/".as_slice(), b"/tool", b"/tool/xenstored", INTRODUCE_DOMAIN] {
            tree.apply(&Change::Create { path: path.to_vec(), permissions: private.clone() });
        }
        tree.apply(&Change::Create { path: RELEASE_DOMAIN.to_vec(), permissions: public });
        tree
    }

    /// The node at a path.
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Node> {
        self.nodes.get(path).map(Rc::as_ref)
    }

    /// A node and all below it: the node itself first, then what is below its children, in turn by name.
    pub(crate) fn root_first(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let below = self.children(path).into_iter().flat_map(|name| self.root_first(&child(path, &name)));
        [path.to_vec()].into_iter().chain(below).collect()
    }

    /// The names of a node's children, sorted by bytes.
    pub(crate) fn children(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let inside = if path == b"/" { b"/".to_vec() } else { [path, b"/"].concat() };
        let from = (Bound::Included(inside.as_slice()), Bound::Unbounded);
        let below = self.nodes.range::<[u8], _>(from).map(|(key, _)| key).take_while(|key| key.starts_with(&inside));
        below.filter(|key| path::parent(key) == Some(path)).map(|key| path::leaf(key).to_vec()).collect()
    }

    /// The names of a node's children with a NUL each, as the wire lists them.
    pub(crate) fn list(&self, path: &[u8]) -> Vec<u8> {
        self.children(path).into_iter().flat_map(|name| [name.as_slice(), b"\0"].concat()).collect()
    }

    /// The node itself, or the nearest one above it that exists.
    pub(crate) fn nearest(&self, path: &[u8]) -> &[u8] {
        let mut here = path;
        loop {
            if let Some((key, _)) = self.nodes.get_key_value(here) {
                return key;
            }
            here = path::parent(here).unwrap_or(b"/");
        }
    }

    /// A node and all below it: leaves first, siblings by name, the node itself last.
    pub(crate) fn leaves_first(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for name in self.children(path) {
            out.extend(self.leaves_first(&child(path, &name)));
        }
        out.push(path.to_vec());
        out
    }

    /// Bytes that the node-size quota counts: a fixed part, the permissions, the value and the children's names.
    pub(crate) fn size(&self, path: &[u8]) -> usize {
        let node = &self.nodes[path];
        size_of(node.permissions.len(), node.value.len(), self.list(path).len())
    }

    /// The domains that own nodes.
    pub(crate) fn owners(&self) -> BTreeSet<u16> {
        self.nodes.values().map(|node| node.owner()).collect()
    }

    /// How many nodes a domain owns.
    pub(crate) fn owned(&self, domid: u16) -> u64 {
        self.nodes.values().filter(|node| node.owner() == domid).count() as u64
    }

    /// Bytes of the nodes that a domain owns: their sizes and the lengths of their paths.
    pub(crate) fn bytes_owned(&self, domid: u16) -> u64 {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner() == domid);
        owned.map(|(path, _)| (self.size(path) + path.len()) as u64).sum()
    }

    /// Makes one change.
    ///
    /// # Panics
    /// When the change does not fit the tree: whoever made it looked at another one.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.clock += 1;
        let now = self.clock;
        match change {
            Change::Create { path, permissions } => {
                let node =
                    Node { value: Vec::new(), permissions: permissions.clone(), generation: now, list_generation: now };
                assert!(
                    self.nodes.insert(path.as_slice().into(), Rc::new(node)).is_none(),
                    "{path:?} is there already"
                );
                self.list_changed(path, now);
            }
            Change::Value { path, value } => {
                let node = self.change(path);
                node.value.clone_from(value);
                node.generation = now;
            }
            Change::Permissions { path, permissions } => {
                let node = self.change(path);
                node.permissions.clone_from(permissions);
                node.generation = now;
            }
            Change::Remove { path } => {
                for gone in self.leaves_first(path) {
                    assert!(self.nodes.remove(gone.as_slice()).is_some(), "{gone:?} is there");
                }
                self.list_changed(path, now);
            }
        }
    }

    fn list_changed(&mut self, child: &[u8], now: u64) {
        if let Some(parent) = path::parent(child) {
            self.change(parent).list_generation = now;
        }
    }

    fn change(&mut self, path: &[u8]) -> &mut Node {
        Rc::make_mut(self.nodes.get_mut(path).expect("the node is there"))
    }
}

/// The path of a child.
fn child(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path == b"/" { [b"/", name].concat() } else { [path, b"/", name].concat() }
}

/// Bytes that the node-size quota counts for a node with so many permissions, value and list bytes.
pub(crate) fn size_of(permissions: usize, value: usize, list: usize) -> usize {
    16 + 8 * permissions + value + list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(paths: &[&str]) -> Tree {
        let mut tree = Tree::new();
        for path in paths {
            let permissions = vec![Permission::new(b'n', 1)];
            tree.apply(&Change::Create { path: path.as_bytes().to_vec(), permissions });
        }
        tree
    }

    #[test]
    fn a_new_store_has_five_nodes_of_domain_0() {
        assert_eq!(Tree::new().owned(0), 5);
        assert_eq!(Tree::new().children(b"/"), [b"tool".to_vec()]);
    }

    #[test]
    fn children_are_sorted_by_bytes_and_leaves_go_first() {
        let tree = with(&["/a", "/a-b", "/a/x", "/a/x/y", "/a/B", "/a/x-1"]);
        assert_eq!(tree.list(b"/"), b"a\0a-b\0tool\0");
        assert_eq!(tree.list(b"/a"), b"B\0x\0x-1\0");
        let order = tree.leaves_first(b"/a");
        assert_eq!(
            order.iter().map(|path| std::str::from_utf8(path).unwrap()).collect::<Vec<_>>(),
            ["/a/B", "/a/x/y", "/a/x", "/a/x-1", "/a"]
        );
    }

    #[test]
    fn removal_takes_all_below_and_nothing_beside() {
        let mut tree = with(&["/a", "/a-b", "/a/x", "/a/x/y"]);
        tree.apply(&Change::Remove { path: b"/a".to_vec() });
        assert_eq!(tree.owned(1), 1);
        assert_eq!(tree.nearest(b"/a/x/y"), b"/");
        assert_eq!(tree.bytes_owned(1), 16 + 8 + 4);
    }
}
