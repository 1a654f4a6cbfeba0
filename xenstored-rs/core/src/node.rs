//! The nodes, and what each holds.

use crate::{children::Children, permission::Permissions, slots::Slots, small_bytes::SmallBytes};

/// Bytes that a node counts for beside its permissions, value and child names (`docs/misc/xenstore.txt`, quotas).
const HEADER_SIZE: usize = 16;

/// Bytes that each permission entry counts for.
const PERMISSION_SIZE: usize = 8;

/// Number of a change, unique in the life of the store and rising.
pub(crate) type Generation = u64;

/// A node, from its making until no snapshot can see it any more; then its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

/// Value and permissions: what READ and GET_PERMS tell.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) value: SmallBytes,
    pub(crate) permissions: Permissions,
    /// Last change of value or permissions.
    pub(crate) generation: Generation,
}

/// Whose a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the tree.
    Live,
    /// Made by a transaction that is still open: nobody else sees it.
    Private,
    /// Removed from the tree; snapshots may still see it.
    Removed,
}

/// A node as it is now. What it was is with the snapshots that want to know.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: SmallBytes,
    pub(crate) content: Content,
    pub(crate) children: Children,
    /// Last change of the child list.
    pub(crate) list_generation: Generation,
    pub(crate) state: State,
}

/// All nodes, by number.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Slots<Node>);

impl Nodes {
    /// Adds a node without children.
    ///
    /// # Panics
    /// As [`Slots::insert`].
    pub(crate) fn add(&mut self, name: &[u8], content: Content, state: State) -> NodeId {
        let list_generation = content.generation;
        let node = Node { name: name.into(), content, children: Children::None, list_generation, state };
        NodeId(self.0.insert(node))
    }

    /// Frees a node's number.
    ///
    /// # Panics
    /// As [`Nodes::get`].
    pub(crate) fn free(&mut self, id: NodeId) -> Node {
        self.0.remove(id.0 as usize).expect("a node is freed once")
    }

    /// Gives up room behind the last node.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink();
    }

    /// The node.
    ///
    /// # Panics
    /// When the number is free: numbers are freed only once nothing refers to them.
    pub(crate) fn get(&self, id: NodeId) -> &Node {
        self.0.get(id.0 as usize).expect("who refers to a node keeps it")
    }

    /// The node, to be changed.
    ///
    /// # Panics
    /// As [`Nodes::get`].
    pub(crate) fn get_mut(&mut self, id: NodeId) -> &mut Node {
        self.0.get_mut(id.0 as usize).expect("who refers to a node keeps it")
    }

    /// Whether there are free numbers below the last in use.
    #[cfg(test)]
    pub(crate) fn has_free(&self) -> bool {
        self.0.entries().iter().any(Option::is_none)
    }

    /// Number of nodes, removed and private ones included.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Bytes that a node of such parts counts for in the `node-size` quota.
pub(crate) fn size_of(permissions: usize, value: usize, child_list: usize) -> usize {
    HEADER_SIZE + PERMISSION_SIZE * permissions + value + child_list
}

impl Content {
    /// Bytes that a node of this content counts for.
    pub(crate) fn size(&self, child_list: usize) -> usize {
        size_of(self.permissions.len(), self.value.len(), child_list)
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_small() {
        assert_eq!(std::mem::size_of::<Node>(), 80, "hundreds of thousands of these are the daemon's memory");
    }
}
