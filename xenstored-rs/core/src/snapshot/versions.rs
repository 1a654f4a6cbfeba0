//! What nodes were, found by node and moment.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::node::{Generation, NodeId};

/// Names a version: a node as it was from a change of it on, to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    node: NodeId,
    since: Generation,
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        COMPARED.with(|count| count.set(count.get() + 1));
        (self.node, self.since).cmp(&(other.node, other.since))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
thread_local! {
    /// Names that were compared by this thread.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Versions of all nodes that some snapshot sees. Those of one node stand side by side, so that the one of a moment is found
/// at once, however many snapshots were opened since.
#[derive(Debug)]
pub(super) struct Versions<T>(BTreeMap<Name, T>);

impl<T> Default for Versions<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Versions<T> {
    /// Adds what a node was since a change.
    pub(super) fn add(&mut self, node: NodeId, since: Generation, version: T) {
        self.0.insert(Name { node, since }, version);
    }

    /// Forgets what a node was since a change.
    pub(super) fn forget(&mut self, node: NodeId, since: Generation) {
        self.0.remove(&Name { node, since });
    }

    /// What a node was at a moment, and since when. Right where it changed after that moment and a snapshot of it is open.
    pub(super) fn at(&self, node: NodeId, moment: Generation) -> Option<(Generation, &T)> {
        let of_node = Name { node, since: 0 }..=Name { node, since: moment };
        self.0.range(of_node).next_back().map(|(name, version)| (name.since, version))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of versions.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
