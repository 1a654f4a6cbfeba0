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

impl Snapshot {
    /// Whether what changed last at `generation` was so at this snapshot. What a newer one hands down may be younger: it is
    /// of no use then, and its node may not even be there any more.
    fn sees(&self, generation: Generation) -> bool {
        generation <= self.generation
    }
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

    /// Whether no snapshot is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
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

    /// Takes charge of the nodes of a removed subtree until no snapshot can see them; gives it back where none can now:
    /// without a snapshot, or with all of them older than the subtree.
    #[must_use]
    pub(crate) fn keep_removed(&mut self, root: NodeId, node: &Node) -> Option<NodeId> {
        let Some(mut newest) = self.open.last_entry() else { return Some(root) };
        let newest = newest.get_mut();
        // A node that was there when the newest was taken has not changed since, or what it was is kept.
        let kept = || newest.contents.get(&root).is_some_and(|content| newest.sees(content.generation));
        let seen = newest.sees(node.content.generation) || kept();
        if seen {
            newest.removed.push(root);
            return None;
        }
        Some(root)
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

mod image;

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};

    use crate::{
        id::{DomId, TxId},
        permission::Permissions,
        store::Store,
        transaction::Transaction,
        view::View,
    };

    /// What a test does to a store.
    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, u8),
        Give(usize, u16),
        Remove(usize),
        Open,
        Close(usize),
    }

    const PATHS: [&str; 9] = ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f/g", "/e/f/h", "/e/i", "/tool"];

    fn step() -> impl Strategy<Value = Step> {
        let path = 0..PATHS.len();
        proptest::prop_oneof![
            4 => (path.clone(), any::<u8>()).prop_map(|(path, value)| Step::Write(path, value)),
            1 => (path.clone(), 0u16..4).prop_map(|(path, owner)| Step::Give(path, owner)),
            2 => path.prop_map(Step::Remove),
            2 => proptest::strategy::Just(Step::Open),
            2 => (0usize..8).prop_map(Step::Close),
        ]
    }

    /// What can be seen of a node: path, value, owner, child list.
    type Sight = (Vec<u8>, Vec<u8>, DomId, Vec<u8>);

    /// Everything that can be seen.
    fn seen(view: View<'_>, store: &Store) -> Vec<Sight> {
        let mut seen = Vec::new();
        view.walk(store.root(), b"/", |path, id| {
            let (content, mut list) = (view.content(id), Vec::new());
            view.children(id).put_list(view.nodes(), 0, usize::MAX, &mut list);
            seen.push((path.to_vec(), content.value.as_slice().to_vec(), content.permissions.owner(), list));
        });
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

        #[test]
        fn snapshots_keep_their_moment_and_leave_nothing(steps in proptest::collection::vec(step(), 1..120)) {
            let mut store = Store::new(DomId::DOM0);
            let mut open: Vec<(Transaction, _)> = Vec::new();
            for (generation, step) in steps.into_iter().enumerate() {
                let generation = generation as u64 + 1;
                match step {
                    Step::Write(path, value) => {
                        let path = PATHS[path].as_bytes();
                        match store.find(path) {
                            Some(id) => store.set_value(id, [value][..].into(), generation),
                            None => store.create(path, &[value], &Permissions::private(DomId(1)), generation),
                        }
                    }
                    Step::Give(path, owner) => {
                        let path = PATHS[path].as_bytes();
                        if let Some(id) = store.find(path) {
                            store.set_permissions(id, path.len(), Permissions::private(DomId(owner)), generation);
                        }
                    }
                    Step::Remove(path) => {
                        if let Some(root) = store.remove(PATHS[path].as_bytes(), generation) {
                            store.bury(root);
                        }
                    }
                    Step::Open => {
                        let then = seen(store.now(), &store);
                        open.push((Transaction::new(TxId(1), &mut store), then));
                    }
                    Step::Close(which) if which < open.len() => {
                        let (transaction, _) = open.remove(which);
                        transaction.abort(&mut store);
                    }
                    Step::Close(_) => {}
                }
                for (transaction, then) in &open {
                    prop_assert_eq!(&seen(View::then(&store, transaction), &store), then);
                }
                prop_assert_eq!(store.mend_accounts(), None);
            }
            for (transaction, _) in open {
                transaction.abort(&mut store);
            }
            prop_assert_eq!(store.snapshots.kept(), 0);
            // Two special nodes stand outside the tree.
            prop_assert_eq!(store.nodes.len(), seen(store.now(), &store).len() + 2, "a node was not freed");
        }
    }

    #[test]
    fn what_comes_and_goes_after_a_snapshot_is_freed_at_once() {
        let mut store = Store::new(DomId::DOM0);
        store.create(b"/old", b"", &Permissions::private(DomId::DOM0), 1);
        let nodes = store.nodes.len();
        let transaction = Transaction::new(TxId(1), &mut store);
        for round in 0..1000 {
            let generation = 10 * round + 10;
            store.create(b"/churn/a/b", b"", &Permissions::private(DomId::DOM0), generation);
            store.set_value(store.find(b"/churn").unwrap(), b"x"[..].into(), generation + 1);
            let root = store.remove(b"/churn", generation + 2).unwrap();
            store.bury(root);
        }
        assert_eq!(store.nodes.len(), nodes);
        let root = store.remove(b"/old", 20_000).unwrap();
        store.bury(root);
        assert_eq!(store.nodes.len(), nodes, "the snapshot still sees it");
        assert!(View::then(&store, &transaction).find(b"/old").is_some());
        transaction.abort(&mut store);
        assert_eq!(store.nodes.len(), nodes - 1);
    }

    #[test]
    fn without_a_snapshot_nothing_is_kept() {
        let mut store = Store::new(DomId::DOM0);
        store.create(b"/a", b"", &Permissions::private(DomId::DOM0), 1);
        let id = store.find(b"/a").unwrap();
        store.set_value(id, b"x"[..].into(), 2);
        assert_eq!(store.snapshots.kept(), 0);
    }

    #[test]
    fn a_node_that_changes_often_is_kept_once_for_each_snapshot() {
        let mut store = Store::new(DomId::DOM0);
        store.create(b"/a", b"", &Permissions::private(DomId::DOM0), 1);
        let id = store.find(b"/a").unwrap();
        let old = Transaction::new(TxId(1), &mut store);
        for round in 0..100u64 {
            let young = Transaction::new(TxId(2), &mut store);
            for change in 0..10 {
                store.set_value(id, b"x"[..].into(), 2 + round * 10 + change);
            }
            assert!(store.snapshots.kept() <= 2);
            young.abort(&mut store);
        }
        assert_eq!(store.snapshots.kept(), 1, "however long the old one stays");
        assert_eq!(View::then(&store, &old).content(id).value.len(), 0);
        old.abort(&mut store);
        assert_eq!(store.snapshots.kept(), 0);
    }
}
