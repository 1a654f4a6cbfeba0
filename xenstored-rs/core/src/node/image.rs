//! Nodes in an image: by number, each with the numbers of its children.

use super::{Content, Generation, Node, NodeId, Nodes, State};
use crate::{
    children::Children,
    image::{ImageError, Reader, Stored, Tag, Writer},
    slots::Slots,
};

/// Stands in place of a node whose number is free.
const FREE: u8 = 0;

/// What stands in front of a node.
const STATES: [(u8, State); 3] = [(1, State::Live), (2, State::Private), (3, State::Removed)];

impl Stored for NodeId {
    fn save(&self, out: &mut Writer<'_>) {
        let Self(number) = self;
        number.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.get().map(Self)
    }
}

impl Stored for Content {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { value, permissions, generation } = self;
        out.bytes(value.as_slice());
        out.permissions(permissions);
        generation.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { value: input.bytes()?.into(), permissions: input.permissions()?, generation: input.get()? })
    }
}

impl Node {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { name, content, children, list_generation, state } = self;
        let mark = STATES.into_iter().find(|(_, of)| of == state).map_or(FREE, |(mark, _)| mark);
        out.byte(mark);
        out.bytes(name.as_slice());
        content.save(out);
        list_generation.save(out);
        children.save(out);
    }

    /// Reads a node after its mark. Its children may come later, so their numbers are put into `links`.
    fn restore(input: &mut Reader<'_>, mark: u8, links: &mut Links) -> Result<Self, ImageError> {
        let state = STATES.into_iter().find(|(of, _)| *of == mark).map(|(_, state)| state);
        let state = state.ok_or_else(|| input.wrong("the state of a node"))?;
        let name = input.bytes()?.into();
        let content = input.get()?;
        let list_generation: Generation = input.get()?;
        links.restore(input)?;
        Ok(Self { name, content, children: Children::None, list_generation, state })
    }
}

/// Children of nodes that are not put into place yet.
#[derive(Debug, Default)]
struct Links {
    children: Vec<NodeId>,
    /// For each node in turn, how many of `children` are its own.
    counts: Vec<usize>,
}

impl Links {
    fn restore(&mut self, input: &mut Reader<'_>) -> Result<(), ImageError> {
        let count = input.count()?;
        self.counts.push(count);
        for _ in 0..count {
            self.children.push(input.get()?);
        }
        Ok(())
    }
}

impl Nodes {
    /// Writes all nodes.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        let Self(slots) = self;
        let entries = slots.entries();
        out.section(Tag::Nodes);
        out.count(entries.len());
        for entry in entries {
            out.record();
            match entry {
                Some(node) => node.save(out),
                None => out.byte(FREE),
            }
        }
    }

    /// Reads all nodes.
    pub(crate) fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.section(Tag::Nodes)?;
        let count: usize = input.get()?;
        let mut entries = Vec::new();
        let mut links = Links::default();
        for _ in 0..count {
            input.record()?;
            entries.push(match input.byte()? {
                FREE => None,
                mark => Some(Node::restore(input, mark, &mut links)?),
            });
        }
        let mut nodes = Self(Slots::new(entries));
        nodes.link(input, links)?;
        Ok(nodes)
    }

    /// Puts children into place. Each is that of one node at most: so what hangs below the root is a tree.
    fn link(&mut self, input: &Reader<'_>, links: Links) -> Result<(), ImageError> {
        let Links { children, counts } = links;
        let mut placed = vec![false; self.0.entries().len()];
        let mut rest = children.as_slice();
        let numbers: Vec<u32> = self.numbers().collect();
        for (number, count) in numbers.into_iter().zip(counts) {
            let (own, after) = rest.split_at(count);
            rest = after;
            for child in own {
                let known = placed.get_mut(child.0 as usize).is_some_and(|placed| !std::mem::replace(placed, true));
                if !known {
                    return Err(input.wrong("a child"));
                }
            }
            let children = Children::of(self, own).ok_or_else(|| input.wrong("a child list"))?;
            self.get_mut(NodeId(number)).children = children;
        }
        Ok(())
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|(number, _)| u32::try_from(number).ok())
    }

    /// Whether there is a node of that number.
    pub(crate) fn has(&self, id: NodeId) -> bool {
        self.0.get(id.0 as usize).is_some()
    }

    /// Reads the number of a node that there is.
    pub(crate) fn known(&self, input: &mut Reader<'_>) -> Result<NodeId, ImageError> {
        let id = input.get()?;
        if self.has(id) { Ok(id) } else { Err(input.wrong("the number of a node")) }
    }
}
