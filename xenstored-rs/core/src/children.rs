//! The children of a node, in the order of their names' bytes.

use std::{cell::OnceCell, cmp::Ordering, rc::Rc};

use imbl::{GenericOrdMap, shared_ptr::RcK};

use crate::{
    node::{Generation, Node},
    small_bytes::SmallBytes,
};

/// From so many children on they stand in a map that copies a few of them at a time.
const WIDE: usize = 33;

/// At so few children a wide directory becomes a plain one again.
const NARROW: usize = 16;

/// At least one child, the list of their names, and that list's last change.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    generation: Generation,
    entries: Entries,
    /// The names with a NUL each: made when first asked for and kept until they change.
    list: OnceCell<Rc<[u8]>>,
    list_len: u32,
}

/// Where the children stand.
#[derive(Clone, Debug)]
enum Entries {
    /// Most directories of a xenstore hold one node, and then need no memory for the rest.
    One(Rc<Node>),
    /// Sorted by name.
    Few(Vec<Entry>),
    /// Sorted by name, and copied in pieces.
    Many(Box<GenericOrdMap<SmallBytes, Rc<Node>, RcK>>),
}

/// A child, with the beginning of its name beside the pointer: a search looks at the nodes themselves only where that
/// does not decide.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    node: Rc<Node>,
}

impl Entry {
    fn new(node: Rc<Node>) -> Self {
        Self { key: key(node.name.as_slice()), node }
    }
}

/// The first eight bytes of a name as a number that compares as they do; a shorter name ends in zeros, which no name
/// holds.
fn key(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = name.len().min(8);
    bytes[..len].copy_from_slice(&name[..len]);
    u64::from_be_bytes(bytes)
}

impl Children {
    /// A single child.
    pub(crate) fn only(child: Rc<Node>, generation: Generation) -> Self {
        let list_len = listed(&child);
        Self { generation, entries: Entries::One(child), list: OnceCell::new(), list_len }
    }

    /// The child of that name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Rc<Node>> {
        match &self.entries {
            Entries::One(child) => (child.name.as_slice() == name).then_some(child),
            Entries::Few(children) => find(children, name).ok().map(|at| &children[at].node),
            Entries::Many(children) => children.get(name),
        }
    }

    /// The child of that name, to be changed or replaced by one of the same name.
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Rc<Node>> {
        match &mut self.entries {
            Entries::One(child) => (child.name.as_slice() == name).then_some(child),
            Entries::Few(children) => find(children, name).ok().map(|at| &mut children[at].node),
            Entries::Many(children) => children.get_mut(name),
        }
    }

    /// Puts a child in; the list changes unless one of that name was there.
    pub(crate) fn put(&mut self, child: Rc<Node>, generation: Generation) {
        if let Some(there) = self.get_mut(child.name.as_slice()) {
            *there = child;
            return;
        }
        self.changed(generation);
        self.list_len += listed(&child);
        match &mut self.entries {
            Entries::One(only) => {
                let only = Rc::clone(only);
                let (first, second) = if only.name < child.name { (only, child) } else { (child, only) };
                self.entries = Entries::Few(vec![Entry::new(first), Entry::new(second)]);
            }
            Entries::Few(children) if children.len() + 1 < WIDE => {
                let at = find(children, child.name.as_slice()).unwrap_or_else(|at| at);
                if children.len() == children.capacity() {
                    // Half as much again, not twice: small directories are by far the most.
                    children.reserve_exact(children.len() / 2);
                }
                children.insert(at, Entry::new(child));
            }
            Entries::Few(children) => {
                let mut map: GenericOrdMap<_, _, RcK> =
                    children.drain(..).map(|Entry { node, .. }| (node.name.clone(), node)).collect();
                map.insert(child.name.clone(), child);
                self.entries = Entries::Many(Box::new(map));
            }
            Entries::Many(children) => {
                children.insert(child.name.clone(), child);
            }
        }
    }

    /// Takes the child of that name out. With the last one gone nothing but the drop of `self` may follow.
    pub(crate) fn take(&mut self, name: &[u8], generation: Generation) -> Option<Rc<Node>> {
        let taken = match &mut self.entries {
            Entries::One(child) if child.name.as_slice() == name => {
                let child = Rc::clone(child);
                self.entries = Entries::Few(Vec::new());
                Some(child)
            }
            Entries::One(_) => None,
            Entries::Few(children) => find(children, name).ok().map(|at| children.remove(at).node),
            Entries::Many(children) => {
                let taken = children.remove(name);
                if children.len() <= NARROW {
                    self.entries = Entries::Few(children.values().cloned().map(Entry::new).collect());
                }
                taken
            }
        }?;
        self.changed(generation);
        self.list_len -= listed(&taken);
        Some(taken)
    }

    /// Number of children.
    pub(crate) fn len(&self) -> usize {
        match &self.entries {
            Entries::One(_) => 1,
            Entries::Few(children) => children.len(),
            Entries::Many(children) => children.len(),
        }
    }

    /// The children in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<Node>> {
        let (one, few, many) = match &self.entries {
            Entries::One(child) => (Some(child), &[][..], None),
            Entries::Few(children) => (None, children.as_slice(), None),
            Entries::Many(children) => (None, &[][..], Some(children.values())),
        };
        one.into_iter().chain(few.iter().map(|entry| &entry.node)).chain(many.into_iter().flatten())
    }

    /// The children themselves, in no order that matters.
    pub(crate) fn into_nodes(self) -> impl Iterator<Item = Rc<Node>> {
        let (one, few, many) = match self.entries {
            Entries::One(child) => (Some(child), Vec::new(), None),
            Entries::Few(children) => (None, children, None),
            Entries::Many(children) => (None, Vec::new(), Some(children.into_iter().map(|(_, child)| child))),
        };
        one.into_iter().chain(few.into_iter().map(|entry| entry.node)).chain(many.into_iter().flatten())
    }

    /// The names in order, each with a NUL.
    pub(crate) fn list(&self) -> &[u8] {
        self.list.get_or_init(|| {
            let mut list = Vec::with_capacity(self.list_len());
            for child in self.iter() {
                list.extend_from_slice(child.name.as_slice());
                list.push(0);
            }
            list.into()
        })
    }

    /// Bytes of the list.
    pub(crate) fn list_len(&self) -> usize {
        self.list_len as usize
    }

    /// Last change of the list.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    fn changed(&mut self, generation: Generation) {
        self.generation = generation;
        self.list = OnceCell::new();
    }
}

/// Bytes that a child takes in the list.
fn listed(child: &Node) -> u32 {
    u32::try_from(child.name.len() + 1).unwrap_or(u32::MAX)
}

/// Place of the name among sorted children, or the place where it belongs.
fn find(children: &[Entry], name: &[u8]) -> Result<usize, usize> {
    let key = key(name);
    children.binary_search_by(|entry| match entry.key.cmp(&key) {
        // With a zero in the key, all of the name is in it.
        Ordering::Equal if name.len() >= 8 => entry.node.name.as_slice().cmp(name),
        order => order,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::DomId, permission::Permissions};
    use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    fn child(name: &str, value: u64) -> Rc<Node> {
        Rc::new(Node::new(name.as_bytes(), &value.to_ne_bytes(), Permissions::private(DomId::DOM0), value))
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, u8)>> {
        proptest::collection::vec((any::<bool>(), 0u8..60), 1..300)
    }

    proptest! {
        #[test]
        fn children_behave_as_a_sorted_map(changes in changes()) {
            let mut real: Option<Children> = None;
            let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut snapshots = Vec::new();
            for (step, (put, number)) in changes.into_iter().enumerate() {
                let name = format!("child-{number}{}", if number % 7 == 0 { "-with-a-long-name" } else { "" });
                let step = step as u64 + 1;
                let was = real.as_ref().map_or(0, Children::generation);
                if put {
                    match &mut real {
                        Some(children) => children.put(child(&name, step), step),
                        None => real = Some(Children::only(child(&name, step), step)),
                    }
                    let new = model.insert(name.clone().into_bytes(), step).is_none();
                    prop_assert_eq!(real.as_ref().unwrap().generation(), if new { step } else { was });
                } else if let Some(children) = &mut real {
                    let taken = children.take(name.as_bytes(), step).map(|node| node.generation);
                    prop_assert_eq!(taken, model.remove(name.as_bytes()));
                    prop_assert_eq!(children.generation(), if taken.is_some() { step } else { was });
                    if children.len() == 0 {
                        real = None;
                    }
                }
                if step.is_multiple_of(16) {
                    snapshots.push((real.clone(), model.clone()));
                }
            }
            snapshots.push((real, model));
            for (real, model) in snapshots {
                let got: Vec<_> = real.iter().flat_map(Children::iter)
                    .map(|node| (node.name.as_slice().to_vec(), node.generation)).collect();
                prop_assert_eq!(got, model.clone().into_iter().collect::<Vec<_>>());
                let Some(real) = real else { continue };
                let list: Vec<u8> = model.keys().flat_map(|name| [name.as_slice(), b"\0"].concat()).collect();
                prop_assert_eq!(real.list(), list.as_slice());
                prop_assert_eq!(real.list_len(), list.len());
                prop_assert_eq!(real.len(), model.len());
                for (name, &value) in &model {
                    prop_assert_eq!(real.get(name).unwrap().generation, value);
                }
            }
        }
    }

    #[test]
    fn children_are_small() {
        assert!(size_of::<Children>() <= 56, "{}", size_of::<Children>());
    }

    #[test]
    fn the_list_is_made_once() {
        let mut children = Children::only(child("b", 1), 1);
        children.put(child("a", 2), 2);
        let first = children.list().as_ptr();
        children.put(child("a", 3), 3);
        assert_eq!(children.list().as_ptr(), first, "another value of a child is no other list");
        assert_eq!(children.clone().list().as_ptr(), first, "a copy shares it");
        assert_eq!(children.list(), b"a\0b\0");
    }
}
