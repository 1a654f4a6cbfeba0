//! Open transactions in an image.

use std::collections::{BTreeMap, BTreeSet};

use super::{OwnContent, OwnList, Touched, Transaction, Written};
use crate::{
    accounts::Accounts,
    children::Children,
    image::{ImageError, Reader, Stored, Writer},
    node::{NodeId, Nodes},
    reliance::Relied,
    small_bytes::SmallBytes,
    store::Store,
};

impl Stored for Written {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { value, permissions, removed, order } = self;
        [value, permissions, removed].into_iter().for_each(|flag| flag.save(out));
        order.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { value: input.get()?, permissions: input.get()?, removed: input.get()?, order: input.get()? })
    }
}

impl Touched {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { base, relied, written } = self;
        base.save(out);
        out.byte(relied.bits());
        written.save(out);
    }

    fn restore(input: &mut Reader<'_>, nodes: &Nodes) -> Result<Self, ImageError> {
        let base = if input.get()? { Some(nodes.known(input)?) } else { None };
        let relied = Relied::from_bits(input.byte()?).ok_or_else(|| input.wrong("a reliance"))?;
        Ok(Self { base, relied, written: input.get()? })
    }
}

impl Stored for OwnContent {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { path, content, value, permissions } = self;
        path.save(out);
        content.save(out);
        value.save(out);
        permissions.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { path: input.get()?, content: input.get()?, value: input.get()?, permissions: input.get()? })
    }
}

impl OwnList {
    fn save(&self, now: &Children, out: &mut Writer<'_>) {
        let Self { path, children, generation, added, removed } = self;
        path.save(out);
        children.save_kept(now, out);
        generation.save(out);
        out.count(added.len());
        // Their names are those of the nodes.
        added.values().for_each(|id| id.save(out));
        out.count(removed.len());
        removed.iter().for_each(|name| out.bytes(name.as_slice()));
    }

    fn restore(input: &mut Reader<'_>, nodes: &Nodes, now: &Children) -> Result<Self, ImageError> {
        let path = input.get()?;
        let children = Children::restore_kept(input, nodes, now)?;
        let generation = input.get()?;
        let (mut added, mut removed) = (BTreeMap::new(), BTreeSet::new());
        for _ in 0..input.count()? {
            let id = nodes.known(input)?;
            added.insert(nodes.get(id).name.clone(), id);
        }
        for _ in 0..input.count()? {
            removed.insert(SmallBytes::from(input.bytes()?));
        }
        Ok(Self { path, children, generation, added, removed })
    }
}

impl Transaction {
    /// Writes a transaction on `store`.
    pub(crate) fn save(&self, store: &Store, out: &mut Writer<'_>) {
        let Self {
            id,
            snapshot,
            generation,
            contents,
            lists,
            base_accounts,
            accounts,
            touched,
            written,
            poisoned,
            outdated,
            // The sum of the paths.
            bytes: _,
            // Those of contents and of the nodes that are added.
            values: _,
        } = self;
        id.save(out);
        snapshot.save(out);
        generation.save(out);
        written.save(out);
        poisoned.save(out);
        outdated.save(out);
        base_accounts.save(&store.accounts, out);
        accounts.save(base_accounts, out);
        out.count(contents.len());
        for (id, own) in contents {
            out.record();
            id.save(out);
            own.save(out);
        }
        out.record();
        out.count(lists.len());
        for (id, own) in lists {
            out.record();
            id.save(out);
            own.save(&store.nodes.get(*id).children, out);
        }
        out.record();
        out.count(touched.len());
        for (path, touched) in touched {
            out.record();
            path.save(out);
            touched.save(out);
        }
    }

    /// Reads a transaction on `store`.
    pub(crate) fn restore(input: &mut Reader<'_>, store: &Store) -> Result<Self, ImageError> {
        let nodes = &store.nodes;
        let id = input.get()?;
        let snapshot = store.snapshots.known(input)?;
        let (generation, written, poisoned, outdated) = (input.get()?, input.get()?, input.get()?, input.get()?);
        let base_accounts = Accounts::restore(input, &store.accounts)?;
        let accounts = Accounts::restore(input, &base_accounts)?;
        let count: usize = input.get()?;
        let mut contents: BTreeMap<NodeId, OwnContent> = BTreeMap::new();
        for _ in 0..count {
            input.record()?;
            let id = nodes.known(input)?;
            contents.insert(id, input.get()?);
        }
        input.record()?;
        let count: usize = input.get()?;
        let mut lists = BTreeMap::new();
        for _ in 0..count {
            input.record()?;
            let id = nodes.known(input)?;
            lists.insert(id, OwnList::restore(input, nodes, &nodes.get(id).children)?);
        }
        input.record()?;
        let count: usize = input.get()?;
        let mut touched: BTreeMap<Box<[u8]>, Touched> = BTreeMap::new();
        for _ in 0..count {
            input.record()?;
            let path = input.get()?;
            touched.insert(path, Touched::restore(input, nodes)?);
        }
        let bytes = touched.keys().map(|path| path.len()).sum();
        let mut values = contents.values().map(|own| own.content.value.len()).sum();
        for root in lists.values().flat_map(|own: &OwnList| own.added.values()) {
            store.now().walk(*root, b"/", |_, id| values += nodes.get(id).content.value.len());
        }
        Ok(Self {
            id,
            snapshot,
            generation,
            contents,
            lists,
            base_accounts,
            accounts,
            touched,
            written,
            poisoned,
            outdated,
            bytes,
            values,
        })
    }
}
