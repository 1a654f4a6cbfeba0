//! The store in an image.

use super::Store;
use crate::{
    accounts::Accounts,
    image::{ImageError, Reader, Stored, Tag, Writer},
    node::Nodes,
    snapshot::Snapshots,
};

impl Store {
    /// Writes nodes, accounts and snapshots.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        // What was freed is of this process.
        let Self { nodes, snapshots, accounts, root, introduce_domain, release_domain, changed, freed: _ } = self;
        nodes.save(out);
        out.section(Tag::Store);
        [root, introduce_domain, release_domain].into_iter().for_each(|id| id.save(out));
        changed.save(out);
        accounts.save(&Accounts::default(), out);
        snapshots.save(nodes, out);
    }

    /// Reads a store.
    pub(crate) fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let nodes = Nodes::restore(input)?;
        input.section(Tag::Store)?;
        let (root, introduce_domain, release_domain) = (nodes.known(input)?, nodes.known(input)?, nodes.known(input)?);
        let changed = input.get()?;
        let accounts = Accounts::restore(input, &Accounts::default())?;
        let snapshots = Snapshots::restore(input, &nodes)?;
        Ok(Self { nodes, snapshots, accounts, root, introduce_domain, release_domain, changed, freed: 0 })
    }
}
