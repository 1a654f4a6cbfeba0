//! Accounts in an image.

use imbl::ordmap::DiffItem;

use super::{Accounts, Balance};
use crate::{
    id::DomId,
    image::{ImageError, Reader, Stored, Writer},
};

impl Stored for Balance {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { nodes, bytes } = self;
        nodes.save(out);
        bytes.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { nodes: input.get()?, bytes: input.get()? })
    }
}

impl Accounts {
    /// Writes in what they differ from `base`.
    pub(crate) fn save(&self, base: &Self, out: &mut Writer<'_>) {
        let Self { usage, touched } = self;
        let changes: Vec<(DomId, Balance)> = base
            .usage
            .diff(usage)
            .map(|item| match item {
                DiffItem::Add(domid, balance) | DiffItem::Update { new: (domid, balance), .. } => (*domid, *balance),
                DiffItem::Remove(domid, _) => (*domid, Balance::default()),
            })
            .collect();
        out.count(changes.len());
        for (domid, balance) in changes {
            out.record();
            domid.save(out);
            balance.save(out);
        }
        out.record();
        touched.save(out);
    }

    /// Reads accounts that were written as a difference from `base`.
    pub(crate) fn restore(input: &mut Reader<'_>, base: &Self) -> Result<Self, ImageError> {
        let mut usage = base.usage.clone();
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let (domid, balance) = (input.get()?, input.get()?);
            if balance == Balance::default() {
                usage.remove(&domid);
            } else {
                usage.insert(domid, balance);
            }
        }
        input.record()?;
        Ok(Self { usage, touched: input.get()? })
    }
}
