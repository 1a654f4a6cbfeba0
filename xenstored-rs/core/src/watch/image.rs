//! Watches in an image: in the order of registration. Their numbers reach nobody and are given out anew.

use super::{Watch, Watches};
use crate::{
    id::DomId,
    image::{ImageError, Reader, Stored, Tag, Writer},
    path::WatchPath,
};

impl Stored for Watch {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { conn, path, token, hidden, depth, order } = self;
        conn.save(out);
        path.save(out);
        token.save(out);
        hidden.save(out);
        depth.save(out);
        order.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self {
            conn: input.get()?,
            path: input.get()?,
            token: input.get()?,
            hidden: input.get()?,
            depth: input.get()?,
            order: input.get()?,
        })
    }
}

impl Watches {
    /// Writes all watches.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        // Keys and tree follow from the watches.
        let Self { watches, keys: _, nodes: _, specials: _, next_order } = self;
        out.section(Tag::Watches);
        next_order.save(out);
        let mut watches: Vec<&Watch> = watches.iter().map(|(_, watch)| watch).collect();
        watches.sort_unstable_by_key(|watch| watch.order);
        out.count(watches.len());
        for watch in watches {
            out.record();
            watch.save(out);
        }
    }

    /// Reads all watches; `met` is told of each, and says whether it can be.
    pub(crate) fn restore(input: &mut Reader<'_>, mut met: impl FnMut(&Watch) -> bool) -> Result<Self, ImageError> {
        input.section(Tag::Watches)?;
        let mut watches = Self::default();
        let next_order: u64 = input.get()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let watch: Watch = input.get()?;
            let absolute = matches!(watch.path.first(), Some(b'/' | b'@'));
            let formed = absolute && WatchPath::parse(&watch.path, DomId::DOM0).is_ok();
            let ordered = (watches.next_order..next_order).contains(&watch.order);
            let new = !watches.is_registered(watch.conn, &watch.path, &watch.token);
            if !formed || !ordered || !new || !met(&watch) {
                return Err(input.wrong("a watch"));
            }
            watches.next_order = watch.order + 1;
            watches.add(watch);
        }
        watches.next_order = next_order;
        Ok(watches)
    }
}
