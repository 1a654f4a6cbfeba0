//! What the store was at earlier moments.
//!
//! A snapshot is a number: the generation at which it was taken. While it is open, the first change of a node after it
//! puts what the node was aside. A node that did not change since costs nothing, and neither does opening a snapshot.
//! What is kept belongs to the newest snapshot that sees it. When that one closes, it goes to the next older one, or is
//! dropped where that does not see it.

use std::collections::{BTreeMap, BinaryHeap};

use crate::{
    children::Children,
    id::{ConnId, TxId},
    node::{Content, Generation, Node, NodeId, Nodes},
};

mod image;
mod versions;

use versions::Versions;

/// Number of an open snapshot, in the order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotId(u64);

/// What is kept of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// Its last change.
    since: Generation,
    node: NodeId,
    /// About how many bytes it takes.
    bytes: usize,
}

/// What is kept of one kind; what changed last comes out first.
type Kept = BinaryHeap<Held>;

/// An open snapshot, and what is kept that it sees and no newer one.
#[derive(Debug)]
struct Snapshot {
    generation: Generation,
    contents: Kept,
    lists: Kept,
    /// Roots of subtrees that were removed, whose nodes are not free yet, by the last change of the root that it sees.
    removed: Kept,
    /// The guest's transaction that it was opened for.
    guest: Option<(ConnId, TxId)>,
    /// Of all that it keeps.
    bytes: usize,
}

/// The open snapshots, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: BTreeMap<SnapshotId, Snapshot>,
    contents: Versions<Content>,
    lists: Versions<Children>,
    last: u64,
    /// About how many bytes all of them keep.
    bytes: usize,
    /// Those of guests.
    guests: BTreeMap<SnapshotId, (ConnId, TxId)>,
    /// About how many bytes those keep.
    guest_bytes: usize,
}

/// What is kept of a node takes so many bytes beside what it was, and so does a node.
const ENTRY: usize = 128;

/// About how many bytes a content takes that is kept.
fn weight_of_content(content: &Content) -> usize {
    ENTRY + content.value.len()
}

/// About how many bytes a child list takes that is kept.
fn weight_of_list(children: &Children) -> usize {
    ENTRY + children.weight()
}

/// About how many bytes the nodes of a removed subtree take.
fn weight_of_removed(nodes: &Nodes, root: NodeId) -> usize {
    let (mut weight, mut below) = (0, vec![root]);
    while let Some(id) = below.pop() {
        let node = nodes.get(id);
        weight += ENTRY + node.name.len() + node.content.value.len();
        below.extend(node.children.iter());
    }
    weight
}

/// Takes something that changed last after a moment.
fn pop_after(kept: &mut Kept, moment: Generation) -> Option<Held> {
    if kept.peek()?.since > moment { kept.pop() } else { None }
}

impl Snapshot {
    fn new(generation: Generation) -> Self {
        let (contents, lists, removed) = (Kept::new(), Kept::new(), Kept::new());
        Self { generation, contents, lists, removed, guest: None, bytes: 0 }
    }

    /// Whether what changed last at `generation` was so at this snapshot.
    fn sees(&self, generation: Generation) -> bool {
        generation <= self.generation
    }
}

impl Snapshots {
    /// Opens a snapshot of the store as it is, where `generation` is the last change.
    pub(crate) fn open(&mut self, generation: Generation) -> SnapshotId {
        self.last += 1;
        let id = SnapshotId(self.last);
        self.open.insert(id, Snapshot::new(generation));
        id
    }

    /// Notes that a snapshot is for a guest's transaction.
    pub(crate) fn note_guest(&mut self, id: SnapshotId, conn: ConnId, tx: TxId) {
        if let Some(snapshot) = self.open.get_mut(&id) {
            snapshot.guest = Some((conn, tx));
            self.guest_bytes += snapshot.bytes;
            self.guests.insert(id, (conn, tx));
        }
    }

    /// Closes a snapshot; returns the roots of removed subtrees that nobody can see any more.
    #[must_use]
    pub(crate) fn close(&mut self, id: SnapshotId) -> Vec<NodeId> {
        let Some(mut closed) = self.open.remove(&id) else { return Vec::new() };
        self.bytes -= closed.bytes;
        if self.guests.remove(&id).is_some() {
            self.guest_bytes -= closed.bytes;
        }
        let Some((_, older)) = self.open.range_mut(..id).next_back() else {
            return self.drop_all(closed);
        };
        let moment = older.generation;
        while let Some(Held { since, node, bytes }) = pop_after(&mut closed.contents, moment) {
            self.contents.forget(node, since);
            closed.bytes -= bytes;
        }
        while let Some(Held { since, node, bytes }) = pop_after(&mut closed.lists, moment) {
            self.lists.forget(node, since);
            closed.bytes -= bytes;
        }
        let mut unseen = Vec::new();
        while let Some(Held { node: root, bytes, .. }) = pop_after(&mut closed.removed, moment) {
            // It may have been there then, as it was before another change.
            if let Some((since, _)) = self.contents.at(root, moment) {
                closed.removed.push(Held { since, node: root, bytes });
            } else {
                closed.bytes -= bytes;
                unseen.push(root);
            }
        }
        // The smaller goes into the larger.
        older.contents.append(&mut closed.contents);
        older.lists.append(&mut closed.lists);
        older.removed.append(&mut closed.removed);
        older.bytes += closed.bytes;
        self.bytes += closed.bytes;
        if older.guest.is_some() {
            self.guest_bytes += closed.bytes;
        }
        unseen
    }

    /// Drops what the oldest snapshot kept, which is closed.
    fn drop_all(&mut self, closed: Snapshot) -> Vec<NodeId> {
        if self.open.is_empty() {
            self.contents.clear();
            self.lists.clear();
        } else {
            closed.contents.into_iter().for_each(|held| self.contents.forget(held.node, held.since));
            closed.lists.into_iter().for_each(|held| self.lists.forget(held.node, held.since));
        }
        closed.removed.into_sorted_vec().into_iter().map(|held| held.node).collect()
    }

    /// Whether no snapshot is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The newest snapshot, with more in it.
    fn newest(&mut self, bytes: usize) -> Option<&mut Snapshot> {
        let newest = self.open.last_entry()?.into_mut();
        newest.bytes += bytes;
        self.bytes += bytes;
        if newest.guest.is_some() {
            self.guest_bytes += bytes;
        }
        Some(newest)
    }

    /// Whether the newest snapshot sees what changed last at `generation`.
    fn newest_sees(&self, generation: Generation) -> bool {
        self.open.last_key_value().is_some_and(|(_, newest)| newest.sees(generation))
    }

    /// Puts a node's content aside, if a snapshot needs it.
    pub(crate) fn keep_content(&mut self, id: NodeId, node: &Node) {
        let since = node.content.generation;
        if self.newest_sees(since) {
            let bytes = weight_of_content(&node.content);
            self.contents.add(id, since, node.content.clone());
            self.newest(bytes).into_iter().for_each(|newest| newest.contents.push(Held { since, node: id, bytes }));
        }
    }

    /// Puts a node's child list aside, if a snapshot needs it.
    pub(crate) fn keep_list(&mut self, id: NodeId, node: &Node) {
        let since = node.list_generation;
        if self.newest_sees(since) {
            let bytes = weight_of_list(&node.children);
            self.lists.add(id, since, node.children.clone());
            self.newest(bytes).into_iter().for_each(|newest| newest.lists.push(Held { since, node: id, bytes }));
        }
    }

    /// Takes charge of the nodes of a removed subtree until no snapshot can see them; gives it back where none can now:
    /// without a snapshot, or with all of them older than the subtree.
    #[must_use]
    pub(crate) fn keep_removed(&mut self, root: NodeId, nodes: &Nodes) -> Option<NodeId> {
        let Some((_, newest)) = self.open.last_key_value() else { return Some(root) };
        let last = nodes.get(root).content.generation;
        // A node that was there when the newest was taken has not changed since, or what it was is kept.
        let seen = if newest.sees(last) {
            Some(last)
        } else {
            self.contents.at(root, newest.generation).map(|(since, _)| since)
        };
        let Some(since) = seen else { return Some(root) };
        let bytes = weight_of_removed(nodes, root);
        self.newest(bytes).into_iter().for_each(|newest| newest.removed.push(Held { since, node: root, bytes }));
        None
    }

    /// What a node's content was at the generation of an open snapshot, where it changed since.
    pub(crate) fn content(&self, id: NodeId, moment: Generation) -> Option<&Content> {
        self.contents.at(id, moment).map(|(_, content)| content)
    }

    /// What a node's child list was at the generation of an open snapshot, where it changed since, and its last change then.
    pub(crate) fn list(&self, id: NodeId, moment: Generation) -> Option<(Generation, &Children)> {
        self.lists.at(id, moment)
    }

    /// Contents and lists that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.contents.len() + self.lists.len()
    }

    /// About how many bytes are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how many of them no other snapshot needs that is newer than the last of a guest's.
    pub(crate) fn guest_bytes(&self) -> usize {
        self.guest_bytes
    }

    /// The oldest open transaction of a guest.
    pub(crate) fn oldest_guest(&self) -> Option<(ConnId, TxId)> {
        self.guests.first_key_value().map(|(_, &transaction)| transaction)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};

    use super::{Held, Kept, Snapshots, versions::COMPARED, weight_of_content, weight_of_list, weight_of_removed};

    use crate::{
        id::{ConnId, DomId, TxId},
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

    /// Checks that what is kept is what the open snapshots see, each thing once and with its weight.
    fn check(store: &Store) -> Result<(), proptest::test_runner::TestCaseError> {
        let Snapshots { open, contents, lists, bytes, guest_bytes, guests, .. } = &store.snapshots;
        let (mut kept, mut all, mut of_guests) = ((0, 0), 0, 0);
        for (id, snapshot) in open {
            for held in [&snapshot.contents, &snapshot.lists, &snapshot.removed] {
                prop_assert_eq!(held.iter().find(|held| !snapshot.sees(held.since)), None);
            }
            kept = (kept.0 + snapshot.contents.len(), kept.1 + snapshot.lists.len());
            for &Held { since, node, bytes } in &snapshot.contents {
                prop_assert_eq!(Some(bytes), contents.at(node, since).map(|(_, content)| weight_of_content(content)));
            }
            for &Held { since, node, bytes } in &snapshot.lists {
                prop_assert_eq!(Some(bytes), lists.at(node, since).map(|(_, list)| weight_of_list(list)));
            }
            for &Held { node: root, bytes, .. } in &snapshot.removed {
                prop_assert_eq!(bytes, weight_of_removed(&store.nodes, root));
            }
            let sum = |kept: &Kept| kept.iter().map(|held| held.bytes).sum::<usize>();
            prop_assert_eq!(snapshot.bytes, sum(&snapshot.contents) + sum(&snapshot.lists) + sum(&snapshot.removed));
            prop_assert_eq!(guests.get(id), snapshot.guest.as_ref());
            all += snapshot.bytes;
            of_guests += if snapshot.guest.is_some() { snapshot.bytes } else { 0 };
        }
        prop_assert_eq!((kept, all, of_guests), ((contents.len(), lists.len()), *bytes, *guest_bytes));
        Ok(())
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
                        let transaction = Transaction::new(TxId(1), &mut store);
                        if generation.is_multiple_of(3) {
                            store.snapshots.note_guest(transaction.snapshot, ConnId(1), transaction.id);
                        }
                        open.push((transaction, then));
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
                check(&store)?;
            }
            for (transaction, _) in open {
                transaction.abort(&mut store);
            }
            let left = (store.snapshots.kept(), store.snapshots.bytes(), store.snapshots.guest_bytes());
            prop_assert_eq!(left, (0, 0, 0));
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
        for round in 0..if cfg!(miri) { 20 } else { 1000 } {
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
    fn a_look_back_costs_the_same_however_many_snapshots_came_later() {
        /// Comparisons to read a node as it was, with so many later snapshots, each with a change of its own.
        fn comparisons(later: u64) -> usize {
            let mut store = Store::new(DomId::DOM0);
            let private = Permissions::private(DomId::DOM0);
            ["/a/b/c", "/a/x"].iter().for_each(|path| store.create(path.as_bytes(), b"", &private, 1));
            let old = Transaction::new(TxId(1), &mut store);
            let mut open = Vec::new();
            for round in 0..later {
                open.push(Transaction::new(TxId(2), &mut store));
                // The node itself changes now and then, another one always, and so do lists on the way.
                let generation = 10 * round + 10;
                let id = store.find(if round % 7 == 0 { b"/a/b/c" } else { b"/a/x" }).unwrap();
                store.set_value(id, b"x"[..].into(), generation);
                store.create(format!("/a/new{round}").as_bytes(), b"", &private, generation + 1);
            }
            COMPARED.set(0);
            let then = View::then(&store, &old);
            assert_eq!(then.content(then.find(b"/a/b/c").unwrap()).value.len(), 0);
            assert!(then.find(b"/a/new0").is_none());
            let compared = COMPARED.get();
            open.into_iter().chain([old]).for_each(|transaction| transaction.abort(&mut store));
            assert_eq!((store.snapshots.kept(), store.snapshots.bytes()), (0, 0));
            compared
        }
        let (few, many) = (comparisons(10), comparisons(if cfg!(miri) { 300 } else { 10_000 }));
        // Three lookups, each the way down into a tree of all that is kept.
        assert!(few > 0 && many < few + 300, "{few} comparisons with 10 later snapshots, {many} with 10 000");
    }

    #[test]
    fn what_no_snapshot_sees_any_more_is_not_kept_for_the_older_ones() {
        let mut store = Store::new(DomId::DOM0);
        let nodes = store.nodes.len();
        let old = Transaction::new(TxId(1), &mut store);
        for round in 0..100u64 {
            // It comes, somebody sees it, and it goes before that one ends.
            store.create(b"/new", b"value", &Permissions::private(DomId::DOM0), 10 * round + 10);
            let young = Transaction::new(TxId(2), &mut store);
            store.set_value(store.find(b"/new").unwrap(), b"x"[..].into(), 10 * round + 11);
            let root = store.remove(b"/new", 10 * round + 12).unwrap();
            store.bury(root);
            assert_eq!(store.nodes.len(), nodes + 1, "round {round}");
            young.abort(&mut store);
            // The root's list of children, as it was.
            assert_eq!((store.nodes.len(), store.snapshots.kept()), (nodes, 1), "round {round}");
        }
        old.abort(&mut store);
        assert_eq!((store.snapshots.kept(), store.snapshots.bytes()), (0, 0));
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
