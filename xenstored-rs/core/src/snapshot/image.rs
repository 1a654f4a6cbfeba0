//! Open snapshots in an image.

use super::{Held, Kept, Snapshot, SnapshotId, Snapshots, weight_of_content, weight_of_list, weight_of_removed};
use crate::{
    children::Children,
    image::{ImageError, Reader, Stored, Tag, Writer},
    node::{Content, Nodes},
};

impl Stored for SnapshotId {
    fn save(&self, out: &mut Writer<'_>) {
        let Self(number) = self;
        number.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.get().map(Self)
    }
}

/// What is kept, in an order that depends on nothing else.
fn in_order(kept: &Kept) -> Vec<Held> {
    kept.clone().into_sorted_vec()
}

impl Snapshots {
    /// Writes all open snapshots, each with the versions that belong to it.
    pub(crate) fn save(&self, nodes: &Nodes, out: &mut Writer<'_>) {
        // Whose each snapshot is says its transaction.
        let Self { open, contents, lists, last, bytes: _, guests: _, guest_bytes: _ } = self;
        out.section(Tag::Snapshots);
        last.save(out);
        out.count(open.len());
        for (id, snapshot) in open {
            out.record();
            id.save(out);
            let Snapshot { generation, contents: own_contents, lists: own_lists, removed, guest: _, bytes: _ } =
                snapshot;
            generation.save(out);
            out.count(own_contents.len());
            for Held { since, node, .. } in in_order(own_contents) {
                out.record();
                node.save(out);
                contents.at(node, since).expect("what belongs to a snapshot is there").1.save(out);
            }
            out.record();
            out.count(own_lists.len());
            for Held { since, node, .. } in in_order(own_lists) {
                out.record();
                node.save(out);
                since.save(out);
                let children = lists.at(node, since).expect("what belongs to a snapshot is there").1;
                children.save_kept(&nodes.get(node).children, out);
            }
            out.record();
            out.count(removed.len());
            for Held { node: root, .. } in in_order(removed) {
                out.record();
                root.save(out);
            }
        }
    }

    /// Reads all open snapshots.
    pub(crate) fn restore(input: &mut Reader<'_>, nodes: &Nodes) -> Result<Self, ImageError> {
        input.section(Tag::Snapshots)?;
        let mut snapshots = Self { last: input.get()?, ..Self::default() };
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let id = input.get()?;
            let snapshot = snapshots.restore_one(input, nodes)?;
            snapshots.bytes += snapshot.bytes;
            snapshots.open.insert(id, snapshot);
        }
        Ok(snapshots)
    }

    fn restore_one(&mut self, input: &mut Reader<'_>, nodes: &Nodes) -> Result<Snapshot, ImageError> {
        let mut snapshot = Snapshot::new(input.get()?);
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let node = nodes.known(input)?;
            let content: Content = input.get()?;
            let since = content.generation;
            snapshot.contents.push(Held { since, node, bytes: weight_of_content(&content) });
            self.contents.add(node, since, content);
        }
        input.record()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let node = nodes.known(input)?;
            let since = input.get()?;
            let children = Children::restore_kept(input, nodes, &nodes.get(node).children)?;
            snapshot.lists.push(Held { since, node, bytes: weight_of_list(&children) });
            self.lists.add(node, since, children);
        }
        input.record()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let root = nodes.known(input)?;
            let last = nodes.get(root).content.generation;
            let earlier = self.contents.at(root, snapshot.generation).map(|(since, _)| since);
            let since = if snapshot.sees(last) { last } else { earlier.unwrap_or(last) };
            snapshot.removed.push(Held { since, node: root, bytes: weight_of_removed(nodes, root) });
        }
        let kept = [&snapshot.contents, &snapshot.lists, &snapshot.removed];
        snapshot.bytes = kept.into_iter().flatten().map(|held| held.bytes).sum();
        Ok(snapshot)
    }

    /// Reads the number of a snapshot that is open.
    pub(crate) fn known(&self, input: &mut Reader<'_>) -> Result<SnapshotId, ImageError> {
        let id = input.get()?;
        if self.open.contains_key(&id) { Ok(id) } else { Err(input.wrong("the number of a snapshot")) }
    }
}
