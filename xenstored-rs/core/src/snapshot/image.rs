//! Open snapshots in an image.

use std::collections::BTreeMap;

use super::{Snapshot, SnapshotId, Snapshots};
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

impl Snapshot {
    fn save(&self, nodes: &Nodes, out: &mut Writer<'_>) {
        let Self { generation, contents, lists, removed } = self;
        let contents: Vec<_> = contents.iter().filter(|(_, content)| self.sees(content.generation)).collect();
        let lists: Vec<_> = lists.iter().filter(|(_, (generation, _))| self.sees(*generation)).collect();
        generation.save(out);
        out.count(contents.len());
        for (id, content) in contents {
            out.record();
            id.save(out);
            content.save(out);
        }
        out.record();
        out.count(lists.len());
        for (id, (generation, children)) in lists {
            out.record();
            id.save(out);
            generation.save(out);
            children.save_kept(&nodes.get(*id).children, out);
        }
        out.record();
        out.count(removed.len());
        for root in removed {
            out.record();
            root.save(out);
        }
    }

    fn restore(input: &mut Reader<'_>, nodes: &Nodes) -> Result<Self, ImageError> {
        let generation = input.get()?;
        let (mut contents, mut lists, mut removed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let id = nodes.known(input)?;
            let content: Content = input.get()?;
            contents.insert(id, content);
        }
        input.record()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let id = nodes.known(input)?;
            let generation = input.get()?;
            let children = Children::restore_kept(input, nodes, &nodes.get(id).children)?;
            lists.insert(id, (generation, children));
        }
        input.record()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            removed.push(nodes.known(input)?);
        }
        Ok(Self { generation, contents, lists, removed })
    }
}

impl Snapshots {
    /// Writes all open snapshots.
    pub(crate) fn save(&self, nodes: &Nodes, out: &mut Writer<'_>) {
        let Self { open, last } = self;
        out.section(Tag::Snapshots);
        last.save(out);
        out.count(open.len());
        for (id, snapshot) in open {
            out.record();
            id.save(out);
            snapshot.save(nodes, out);
        }
    }

    /// Reads all open snapshots.
    pub(crate) fn restore(input: &mut Reader<'_>, nodes: &Nodes) -> Result<Self, ImageError> {
        input.section(Tag::Snapshots)?;
        let last = input.get()?;
        let mut open = BTreeMap::new();
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let id = input.get()?;
            open.insert(id, Snapshot::restore(input, nodes)?);
        }
        Ok(Self { open, last })
    }

    /// Reads the number of a snapshot that is open.
    pub(crate) fn known(&self, input: &mut Reader<'_>) -> Result<SnapshotId, ImageError> {
        let id = input.get()?;
        if self.open.contains_key(&id) { Ok(id) } else { Err(input.wrong("the number of a snapshot")) }
    }
}
