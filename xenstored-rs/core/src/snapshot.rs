//! What the store was at earlier moments.
//!
//! A snapshot is a number: the generation at which it was taken. While it is open, the first change of a node after it
//! puts what the node was aside. A node that did not change since costs nothing, and neither does opening a snapshot.
//! When one closes, what it kept goes to the next older one, if that can still see it.

use std::collections::BTreeMap;

use crate::{
    children::Children,
    node::{Content, Generation, Node, NodeId},
};

/// Number of an open snapshot, in the order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotId(u64);

/// What nodes were before their first change after one snapshot and before the next.
#[derive(Debug)]
struct Snapshot {
    generation: Generation,
    contents: BTreeMap<NodeId, Content>,
    lists: BTreeMap<NodeId, (Generation, Children)>,
    /// Roots of subtrees that were removed in that time, whose nodes are not free yet.
    removed: Vec<NodeId>,
}

/// The open snapshots, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: BTreeMap<SnapshotId, Snapshot>,
    last: u64,
}

impl Snapshots {
    /// Opens a snapshot of the store as it is, where `generation` is the last change.
    pub(crate) fn open(&mut self, generation: Generation) -> SnapshotId {
        self.last += 1;
        let id = SnapshotId(self.last);
        let (contents, lists, removed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        self.open.insert(id, Snapshot { generation, contents, lists, removed });
        id
    }

    /// Closes a snapshot; returns the roots of removed subtrees that nobody can see any more.
    #[must_use]
    pub(crate) fn close(&mut self, id: SnapshotId) -> Vec<NodeId> {
        let Some(mut closed) = self.open.remove(&id) else { return Vec::new() };
        let Some((_, older)) = self.open.range_mut(..id).next_back() else { return closed.removed };
        // The smaller collection moves into the larger. What the older one has of a node is what it was earlier, and
        // that is what it is to keep.
        if older.contents.len() < closed.contents.len() {
            std::mem::swap(&mut older.contents, &mut closed.contents);
            older.contents.append(&mut closed.contents);
        } else {
            for (node, content) in closed.contents {
                older.contents.entry(node).or_insert(content);
            }
        }
        if older.lists.len() < closed.lists.len() {
            std::mem::swap(&mut older.lists, &mut closed.lists);
            older.lists.append(&mut closed.lists);
        } else {
            for (node, list) in closed.lists {
                older.lists.entry(node).or_insert(list);
            }
        }
        older.removed.append(&mut closed.removed);
        Vec::new()
    }

    /// Puts a node's content aside, if a snapshot needs it.
    pub(crate) fn keep_content(&mut self, id: NodeId, node: &Node) {
        if let Some(mut newest) = self.open.last_entry()
            && node.content.generation <= newest.get().generation
        {
            newest.get_mut().contents.entry(id).or_insert_with(|| node.content.clone());
        }
    }

    /// Puts a node's child list aside, if a snapshot needs it.
    pub(crate) fn keep_list(&mut self, id: NodeId, node: &Node) {
        if let Some(mut newest) = self.open.last_entry()
            && node.list_generation <= newest.get().generation
        {
            newest.get_mut().lists.entry(id).or_insert_with(|| (node.list_generation, node.children.clone()));
        }
    }

    /// Takes charge of the nodes of a removed subtree until no snapshot can see them; gives it back where none can now.
    #[must_use]
    pub(crate) fn keep_removed(&mut self, root: NodeId) -> Option<NodeId> {
        match self.open.last_entry() {
            Some(mut newest) => {
                newest.get_mut().removed.push(root);
                None
            }
            None => Some(root),
        }
    }

    /// What a node's content was at a snapshot, where it changed since.
    pub(crate) fn content(&self, at: SnapshotId, id: NodeId) -> Option<&Content> {
        self.open.range(at..).find_map(|(_, snapshot)| snapshot.contents.get(&id))
    }

    /// What a node's child list was at a snapshot, where it changed since.
    pub(crate) fn list(&self, at: SnapshotId, id: NodeId) -> Option<&(Generation, Children)> {
        self.open.range(at..).find_map(|(_, snapshot)| snapshot.lists.get(&id))
    }

    /// Contents and lists that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.open.values().map(|snapshot| snapshot.contents.len() + snapshot.lists.len()).sum()
    }
}
