//! The children of a node, in the order of their names' bytes.
//!
//! A snapshot shares the children of a node as a whole. Replacing one of them then does not copy the others, which
//! would touch every one of them: the change is laid over the shared ones, and goes into them once nobody shares them.

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

/// Most changes that are laid over shared children before they are copied after all.
const LAID_OVER: usize = 8;

/// At least one child, the list of their names, and that list's last change.
#[derive(Debug)]
pub(crate) struct Children {
    generation: Generation,
    entries: Entries,
    /// The names with a NUL each: made when first asked for and kept until they change.
    list: OnceCell<Rc<Box<[u8]>>>,
    list_len: u32,
}

/// Where the children stand.
#[derive(Debug)]
enum Entries {
    /// Most directories of a xenstore hold one node, and then need no memory for the rest.
    One(Rc<Node>),
    /// Sorted by name.
    #[expect(clippy::box_collection, reason = "the many directories with one child stay small")]
    Few(Box<Vec<Entry>>),
    /// Sorted by name, and copied in pieces.
    Many(Box<GenericOrdMap<SmallBytes, Rc<Node>, RcK>>),
    /// Those of others, but for the ones that are replaced.
    Over(Box<Over>),
}

/// Changes laid over children that others share.
#[derive(Debug)]
struct Over {
    /// `Few` or `Many`.
    shared: Rc<Children>,
    /// Replacements, by names that are among the shared.
    replaced: Vec<Entry>,
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

    fn is(&self, key: u64, name: &[u8]) -> bool {
        self.key == key && (name.len() < 8 || self.node.name.as_slice() == name)
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

    /// The same children for one who will change them, while others keep them as they are.
    pub(crate) fn to_change(shared: &Rc<Self>) -> Self {
        let entries = match &shared.entries {
            Entries::One(child) => Entries::One(Rc::clone(child)),
            Entries::Few(_) | Entries::Many(_) => {
                Entries::Over(Box::new(Over { shared: Rc::clone(shared), replaced: Vec::new() }))
            }
            Entries::Over(over) => {
                Entries::Over(Box::new(Over { shared: Rc::clone(&over.shared), replaced: over.replaced.clone() }))
            }
        };
        Self { generation: shared.generation, entries, list: shared.list.clone(), list_len: shared.list_len }
    }

    /// The child of that name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Rc<Node>> {
        match &self.entries {
            Entries::One(child) => (child.name.as_slice() == name).then_some(child),
            Entries::Few(children) => find(children, name).ok().map(|at| &children[at].node),
            Entries::Many(children) => children.get(name),
            Entries::Over(over) => {
                over.replaced(name).map_or_else(|| over.shared.get(name), |at| Some(&over.replaced[at].node))
            }
        }
    }

    /// The child of that name, to be changed or replaced by one of the same name.
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Rc<Node>> {
        if let Entries::Over(over) = &mut self.entries
            && (over.replaced.len() >= LAID_OVER || Rc::strong_count(&over.shared) == 1)
            && over.replaced(name).is_none()
        {
            self.settle();
        }
        match &mut self.entries {
            Entries::One(child) => (child.name.as_slice() == name).then_some(child),
            Entries::Few(children) => find(children, name).ok().map(|at| &mut children[at].node),
            Entries::Many(children) => children.get_mut(name),
            Entries::Over(over) => {
                let at = match over.replaced(name) {
                    Some(at) => at,
                    None => {
                        over.replaced.push(Entry::new(Rc::clone(over.shared.get(name)?)));
                        over.replaced.len() - 1
                    }
                };
                Some(&mut over.replaced[at].node)
            }
        }
    }

    /// Makes the children one's own: takes the shared ones over where nobody else has them any more, else copies them.
    fn settle(&mut self) {
        let Entries::Over(over) = &mut self.entries else { return };
        let replaced = std::mem::take(&mut over.replaced);
        let own = match Rc::get_mut(&mut over.shared) {
            Some(shared) => std::mem::replace(&mut shared.entries, Entries::Few(Box::default())),
            None => match &over.shared.entries {
                Entries::One(child) => Entries::One(Rc::clone(child)),
                Entries::Few(children) => Entries::Few(children.clone()),
                Entries::Many(children) => Entries::Many(children.clone()),
                // Only plain children are ever laid over.
                Entries::Over(_) => return,
            },
        };
        self.entries = own;
        for Entry { node, .. } in replaced {
            if let Some(there) = self.get_mut(node.name.as_slice()) {
                *there = node;
            }
        }
    }

    /// Puts a child in; the list changes unless one of that name was there.
    pub(crate) fn put(&mut self, child: Rc<Node>, generation: Generation) {
        if let Some(there) = self.get_mut(child.name.as_slice()) {
            *there = child;
            return;
        }
        self.settle();
        self.changed(generation);
        self.list_len += listed(&child);
        match &mut self.entries {
            Entries::One(only) => {
                let only = Rc::clone(only);
                let (first, second) = if only.name < child.name { (only, child) } else { (child, only) };
                self.entries = Entries::Few(Box::new(vec![Entry::new(first), Entry::new(second)]));
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
            Entries::Over(_) => {}
        }
    }

    /// Takes the child of that name out. With the last one gone nothing but the drop of `self` may follow.
    pub(crate) fn take(&mut self, name: &[u8], generation: Generation) -> Option<Rc<Node>> {
        self.get(name)?;
        self.settle();
        let taken = match &mut self.entries {
            Entries::One(child) => {
                let child = Rc::clone(child);
                self.entries = Entries::Few(Box::default());
                Some(child)
            }
            Entries::Few(children) => find(children, name).ok().map(|at| children.remove(at).node),
            Entries::Many(children) => {
                let taken = children.remove(name);
                if children.len() <= NARROW {
                    self.entries = Entries::Few(Box::new(children.values().cloned().map(Entry::new).collect()));
                }
                taken
            }
            Entries::Over(_) => None,
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
            Entries::Over(over) => over.shared.len(),
        }
    }

    /// The children in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<Node>> {
        let (entries, over) = match &self.entries {
            Entries::Over(over) => (&over.shared.entries, Some(over)),
            entries => (entries, None),
        };
        let (one, few, many) = match entries {
            Entries::One(child) => (Some(child), &[][..], None),
            Entries::Few(children) => (None, children.as_slice(), None),
            Entries::Many(children) => (None, &[][..], Some(children.values())),
            Entries::Over(_) => (None, &[][..], None),
        };
        let all = one.into_iter().chain(few.iter().map(|entry| &entry.node)).chain(many.into_iter().flatten());
        all.map(move |child| {
            let at = over.and_then(|over| Some((over, over.replaced(child.name.as_slice())?)));
            at.map_or(child, |(over, at)| &over.replaced[at].node)
        })
    }

    /// Drops the children and puts what lay below those that nobody else shares onto `doomed`.
    ///
    /// A map is dropped as it is, since taking its entries out one by one would copy what others share of it: the stack
    /// is then as deep as there are wide directories below each other, and a path holds few thousand names.
    pub(crate) fn take_apart(self, doomed: &mut Vec<Rc<Self>>) {
        let mut drop_child = |child: Rc<Node>| doomed.extend(Rc::into_inner(child).and_then(Node::into_children));
        match self.entries {
            Entries::One(child) => drop_child(child),
            Entries::Few(children) => children.into_iter().for_each(|entry| drop_child(entry.node)),
            Entries::Many(_) => {}
            Entries::Over(over) => {
                let Over { shared, replaced } = *over;
                replaced.into_iter().for_each(|entry| drop_child(entry.node));
                doomed.push(shared);
            }
        }
    }

    /// The names in order, each with a NUL.
    pub(crate) fn list(&self) -> &[u8] {
        if let Entries::Over(over) = &self.entries {
            return over.shared.list();
        }
        self.list.get_or_init(|| {
            let mut list = Vec::with_capacity(self.list_len());
            for child in self.iter() {
                list.extend_from_slice(child.name.as_slice());
                list.push(0);
            }
            Rc::new(list.into())
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

impl Over {
    /// Place of a name among the replaced children.
    fn replaced(&self, name: &[u8]) -> Option<usize> {
        let key = key(name);
        self.replaced.iter().position(|entry| entry.is(key, name))
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

    /// The children, to be changed while a snapshot may have them.
    fn own(children: &mut Rc<Children>) -> &mut Children {
        if Rc::get_mut(children).is_none() {
            *children = Rc::new(Children::to_change(children));
        }
        Rc::get_mut(children).unwrap()
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, u8)>> {
        proptest::collection::vec((any::<bool>(), 0u8..60), 1..300)
    }

    proptest! {
        #[test]
        fn children_behave_as_a_sorted_map(changes in changes()) {
            let mut real: Option<Rc<Children>> = None;
            let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut snapshots = Vec::new();
            for (step, (put, number)) in changes.into_iter().enumerate() {
                let name = format!("child-{number}{}", if number % 7 == 0 { "-with-a-long-name" } else { "" });
                let step = step as u64 + 1;
                let was = real.as_ref().map_or(0, |children| children.generation());
                if put {
                    match &mut real {
                        Some(children) => own(children).put(child(&name, step), step),
                        None => real = Some(Rc::new(Children::only(child(&name, step), step))),
                    }
                    let new = model.insert(name.clone().into_bytes(), step).is_none();
                    prop_assert_eq!(real.as_ref().unwrap().generation(), if new { step } else { was });
                } else if let Some(children) = &mut real {
                    let taken = own(children).take(name.as_bytes(), step).map(|node| node.generation);
                    prop_assert_eq!(taken, model.remove(name.as_bytes()));
                    prop_assert_eq!(children.generation(), if taken.is_some() { step } else { was });
                    if children.len() == 0 {
                        real = None;
                    }
                }
                if step.is_multiple_of(16) {
                    if step.is_multiple_of(64) {
                        snapshots.clear();
                    }
                    snapshots.push((real.clone(), model.clone()));
                }
            }
            snapshots.push((real, model));
            for (real, model) in snapshots {
                let got: Vec<_> = real.iter().flat_map(|children| children.iter())
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
        assert_eq!(size_of::<Children>(), 40);
    }

    #[test]
    fn the_list_is_made_once() {
        let mut children = Children::only(child("b", 1), 1);
        children.put(child("a", 2), 2);
        let first = children.list().as_ptr();
        children.put(child("a", 3), 3);
        assert_eq!(children.list().as_ptr(), first, "another value of a child is no other list");
        let children = Rc::new(children);
        assert_eq!(Children::to_change(&children).list().as_ptr(), first, "a copy shares it");
        assert_eq!(children.list(), b"a\0b\0");
    }

    #[test]
    fn replacing_a_child_does_not_touch_its_siblings() {
        let mut children = Children::only(child("00", 1), 1);
        for number in 1..30 {
            children.put(child(&format!("{number:02}"), 1), 1);
        }
        let snapshot = Rc::new(children);
        let mut changed = Children::to_change(&snapshot);
        changed.put(child("07", 2), 2);
        assert_eq!(Rc::strong_count(snapshot.get(b"08").unwrap()), 1);
        assert_eq!(changed.get(b"07").unwrap().generation, 2);
        assert_eq!(snapshot.get(b"07").unwrap().generation, 1);
        drop(snapshot);
        changed.put(child("09", 3), 3);
        assert!(matches!(&changed.entries, Entries::Few(few) if few.len() == 30), "taken over once nobody shares them");
    }
}
