//! Child lists in an image: numbers of nodes, in the order of names.

use imbl::ordmap::DiffItem;

use super::{Children, Entries, Entry, Several, WIDE};
use crate::{
    image::{ImageError, Reader, Stored, Writer},
    node::{NodeId, Nodes},
};

impl Children {
    /// Writes all of the list.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.iter().for_each(|child| child.save(out));
    }

    /// The list of these nodes; `None` where they are not in order, or one is not there.
    pub(crate) fn of(nodes: &Nodes, ids: &[NodeId]) -> Option<Self> {
        if !ids.iter().all(|&id| nodes.has(id)) {
            return None;
        }
        let name = |id: NodeId| &nodes.get(id).name;
        match ids {
            [] => return Some(Self::None),
            [only] => return Some(Self::One(*only)),
            _ => {}
        }
        if !ids.is_sorted_by(|&one, &next| name(one) < name(next)) {
            return None;
        }
        let entries = if ids.len() < WIDE {
            Entries::Few(ids.iter().map(|&id| Entry::new(nodes, id)).collect())
        } else {
            Entries::Many(ids.iter().map(|&id| (name(id).clone(), id)).collect())
        };
        let list_len = ids.iter().map(|&id| name(id).len() + 1).sum();
        Some(Self::Several(Box::new(Several { entries, list: std::cell::OnceCell::new(), list_len })))
    }

    /// Writes a list that is kept of a node whose list is `now`. Of wide ones only the difference is written, so that they
    /// share what they have in common once they are read.
    pub(crate) fn save_kept(&self, now: &Self, out: &mut Writer<'_>) {
        let difference = self.difference(now);
        difference.is_some().save(out);
        match difference {
            Some((gone, new)) => {
                gone.save(out);
                new.save(out);
            }
            None => self.save(out),
        }
    }

    /// Reads a list that is kept of a node whose list is `now`.
    pub(crate) fn restore_kept(input: &mut Reader<'_>, nodes: &Nodes, now: &Self) -> Result<Self, ImageError> {
        if !input.get()? {
            let ids: Vec<NodeId> = input.get()?;
            return Self::of(nodes, &ids).ok_or_else(|| input.wrong("a child list"));
        }
        let mut kept = now.clone();
        for _ in 0..input.count()? {
            let id = nodes.known(input)?;
            let name = nodes.get(id).name.as_slice();
            if kept.get(nodes, name) != Some(id) {
                return Err(input.wrong("a child"));
            }
            kept.take(nodes, name);
        }
        for _ in 0..input.count()? {
            let id = nodes.known(input)?;
            if kept.get(nodes, nodes.get(id).name.as_slice()).is_some() {
                return Err(input.wrong("a child"));
            }
            kept.put(nodes, id);
        }
        Ok(kept)
    }

    /// What to take out of a wide list, and what to put in, to have this wide one.
    fn difference(&self, now: &Self) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        let (Self::Several(own), Self::Several(now)) = (self, now) else { return None };
        let (Entries::Many(own), Entries::Many(now)) = (&own.entries, &now.entries) else { return None };
        // Narrower ones may stand either way, and equal lists are to have equal images.
        if own.len() < WIDE || now.len() < WIDE {
            return None;
        }
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for item in now.diff(own) {
            match item {
                DiffItem::Add(_, id) => new.push(*id),
                DiffItem::Remove(_, id) => gone.push(*id),
                DiffItem::Update { old: (_, old), new: (_, other) } => {
                    gone.push(*old);
                    new.push(*other);
                }
            }
        }
        Some((gone, new))
    }
}
