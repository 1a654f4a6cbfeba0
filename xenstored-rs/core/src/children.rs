//! The children of a node, in the order of their names' bytes.

use std::{cell::OnceCell, cmp::Ordering, ops::Bound};

use imbl::{GenericOrdMap, shared_ptr::RcK};

use crate::{
    node::{NodeId, Nodes},
    small_bytes::SmallBytes,
};

/// From so many children on they stand in a map, whose copies share what they have in common.
const WIDE: usize = 33;

/// At so few children a wide directory becomes a plain one again.
const NARROW: usize = 16;

/// Child nodes by name.
#[derive(Clone, Debug)]
pub(crate) enum Children {
    /// No children.
    None,
    /// Most directories of a xenstore hold one node, and then need no memory for it.
    One(NodeId),
    /// Several.
    Several(Box<Several>),
}

/// Two or more children, and the list of their names.
#[derive(Clone, Debug)]
pub(crate) struct Several {
    entries: Entries,
    /// The names with a NUL each: made when first asked for and kept until they change.
    list: OnceCell<Box<[u8]>>,
    list_len: usize,
}

/// Where several children stand.
#[derive(Clone, Debug)]
enum Entries {
    /// Sorted by name.
    Few(Vec<Entry>),
    /// Sorted by name, and copied in pieces.
    Many(GenericOrdMap<SmallBytes, NodeId, RcK>),
}

/// A child, with the beginning of its name: a search looks at the nodes themselves only where that does not decide.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    id: NodeId,
}

impl Entry {
    fn new(nodes: &Nodes, id: NodeId) -> Self {
        Self { key: key(nodes.get(id).name.as_slice()), id }
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

/// Place of the name among sorted children, or the place where it belongs.
fn find(nodes: &Nodes, children: &[Entry], name: &[u8]) -> Result<usize, usize> {
    let key = key(name);
    children.binary_search_by(|entry| match entry.key.cmp(&key) {
        // With a zero in the key, all of the name is in it.
        Ordering::Equal if name.len() >= 8 => nodes.get(entry.id).name.as_slice().cmp(name),
        order => order,
    })
}

impl Children {
    /// The child of that name.
    pub(crate) fn get(&self, nodes: &Nodes, name: &[u8]) -> Option<NodeId> {
        match self {
            Self::None => None,
            Self::One(child) => (nodes.get(*child).name.as_slice() == name).then_some(*child),
            Self::Several(several) => match &several.entries {
                Entries::Few(children) => find(nodes, children, name).ok().map(|at| children[at].id),
                Entries::Many(children) => children.get(name).copied(),
            },
        }
    }

    /// Puts a child in whose name none of the others has.
    pub(crate) fn put(&mut self, nodes: &Nodes, child: NodeId) {
        let name = &nodes.get(child).name;
        match self {
            Self::None => *self = Self::One(child),
            Self::One(only) => {
                let mut entries = vec![Entry::new(nodes, *only)];
                let at = find(nodes, &entries, name.as_slice()).unwrap_or_else(|at| at);
                entries.insert(at, Entry::new(nodes, child));
                let list_len = name.len() + nodes.get(*only).name.len() + 2;
                *self = Self::Several(Box::new(Several {
                    entries: Entries::Few(entries),
                    list: OnceCell::new(),
                    list_len,
                }));
            }
            Self::Several(several) => {
                several.list = OnceCell::new();
                several.list_len += name.len() + 1;
                several.entries.put(nodes, child, name);
            }
        }
    }

    /// Takes the child of that name out.
    pub(crate) fn take(&mut self, nodes: &Nodes, name: &[u8]) -> Option<NodeId> {
        let taken = self.get(nodes, name)?;
        match self {
            Self::None => {}
            Self::One(_) => *self = Self::None,
            Self::Several(several) => {
                several.list = OnceCell::new();
                several.list_len -= name.len() + 1;
                if let Some(only) = several.entries.take(nodes, name) {
                    *self = Self::One(only);
                }
            }
        }
        Some(taken)
    }

    /// The children in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = NodeId> {
        let (one, few, many) = match self {
            Self::None => (None, &[][..], None),
            Self::One(child) => (Some(*child), &[][..], None),
            Self::Several(several) => match &several.entries {
                Entries::Few(children) => (None, children.as_slice(), None),
                Entries::Many(children) => (None, &[][..], Some(children.values().copied())),
            },
        };
        one.into_iter().chain(few.iter().map(|entry| entry.id)).chain(many.into_iter().flatten())
    }

    /// The children whose names come after `name`, in order; all of them after the empty name.
    pub(crate) fn after<'a>(&'a self, nodes: &Nodes, name: &[u8]) -> Box<dyn Iterator<Item = NodeId> + 'a> {
        match self {
            Self::None => Box::new(std::iter::empty()),
            Self::One(child) => Box::new((nodes.get(*child).name.as_slice() > name).then_some(*child).into_iter()),
            Self::Several(several) => match &several.entries {
                Entries::Few(children) => {
                    let at = find(nodes, children, name).map_or_else(|at| at, |at| at + 1);
                    Box::new(children[at..].iter().map(|entry| entry.id))
                }
                Entries::Many(children) => {
                    let behind = (Bound::Excluded(name), Bound::Unbounded);
                    Box::new(children.range::<_, [u8]>(behind).map(|(_, child)| *child))
                }
            },
        }
    }

    /// Number of children.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Several(several) => match &several.entries {
                Entries::Few(children) => children.len(),
                Entries::Many(children) => children.len(),
            },
        }
    }

    /// About how many bytes a copy takes of its own: by what is in it alone.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Several(several) => {
                // Copies of a map share most of it with each other.
                let entries = if self.len() < WIDE { self.len() * size_of::<Entry>() } else { 1024 };
                size_of::<Several>() + entries + several.list_len
            }
        }
    }

    /// Bytes of the list of names.
    pub(crate) fn list_len(&self, nodes: &Nodes) -> usize {
        match self {
            Self::None => 0,
            Self::One(child) => nodes.get(*child).name.len() + 1,
            Self::Several(several) => several.list_len,
        }
    }

    /// Appends a part of the list of names: each with a NUL, from byte `offset` on, as many whole ones as fit into
    /// `room` bytes. True where that reaches the list's end.
    pub(crate) fn put_list(&self, nodes: &Nodes, offset: usize, room: usize, out: &mut Vec<u8>) -> bool {
        let mut single = Vec::new();
        let list: &[u8] = match self {
            Self::None => &[],
            Self::One(child) => {
                put_listed(nodes, *child, &mut single);
                &single
            }
            Self::Several(several) => several.list.get_or_init(|| {
                let mut list = Vec::with_capacity(several.list_len);
                self.iter().for_each(|child| put_listed(nodes, child, &mut list));
                list.into()
            }),
        };
        let rest = list.get(offset..).unwrap_or_default();
        let whole = if rest.len() <= room {
            rest.len()
        } else {
            rest[..room].iter().rposition(|&byte| byte == 0).map_or(0, |nul| nul + 1)
        };
        out.extend_from_slice(&rest[..whole]);
        whole == rest.len()
    }
}

fn put_listed(nodes: &Nodes, child: NodeId, list: &mut Vec<u8>) {
    list.extend_from_slice(nodes.get(child).name.as_slice());
    list.push(0);
}

impl Entries {
    fn put(&mut self, nodes: &Nodes, child: NodeId, name: &SmallBytes) {
        match self {
            Self::Few(children) if children.len() + 1 < WIDE => {
                let at = find(nodes, children, name.as_slice()).unwrap_or_else(|at| at);
                if children.len() == children.capacity() {
                    // Half as much again, not twice: small directories are by far the most.
                    children.reserve_exact(children.len() / 2 + 1);
                }
                children.insert(at, Entry::new(nodes, child));
            }
            Self::Few(children) => {
                let entry = |id: NodeId| (nodes.get(id).name.clone(), id);
                *self = Self::Many(children.iter().map(|child| child.id).chain([child]).map(entry).collect());
            }
            Self::Many(children) => {
                children.insert(name.clone(), child);
            }
        }
    }

    /// Takes a child out; gives the last one back where only one is left.
    fn take(&mut self, nodes: &Nodes, name: &[u8]) -> Option<NodeId> {
        match self {
            Self::Few(children) => {
                if let Ok(at) = find(nodes, children, name) {
                    children.remove(at);
                }
                if let [only] = children.as_slice() { Some(only.id) } else { None }
            }
            Self::Many(children) => {
                children.remove(name);
                if children.len() <= NARROW {
                    *self = Self::Few(children.values().map(|&child| Entry::new(nodes, child)).collect());
                }
                None
            }
        }
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::DomId,
        node::{Content, State},
        permission::Permissions,
    };
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    fn add(nodes: &mut Nodes, name: &str) -> NodeId {
        let content = Content { value: b""[..].into(), permissions: Permissions::private(DomId::DOM0), generation: 1 };
        nodes.add(name.as_bytes(), content, State::Live)
    }

    fn list(children: &Children, nodes: &Nodes) -> Vec<u8> {
        let mut list = Vec::new();
        assert!(children.put_list(nodes, 0, usize::MAX, &mut list));
        list
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, u8)>> {
        // Enough for more children than a vector holds, however slow the interpreter is.
        proptest::collection::vec((any::<bool>(), 0u8..60), 1..if cfg!(miri) { 150 } else { 300 })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

        #[test]
        fn children_behave_as_a_sorted_map(changes in changes()) {
            let mut nodes = Nodes::default();
            let mut real = Children::None;
            let mut model: BTreeMap<Vec<u8>, NodeId> = BTreeMap::new();
            let mut copies = Vec::new();
            for (step, (put, number)) in changes.into_iter().enumerate() {
                let name = format!("child-{number}{}", if number % 7 == 0 { "-with-a-long-name" } else { "" });
                if put && !model.contains_key(name.as_bytes()) {
                    let child = add(&mut nodes, &name);
                    real.put(&nodes, child);
                    model.insert(name.into_bytes(), child);
                } else if !put {
                    prop_assert_eq!(real.take(&nodes, name.as_bytes()), model.remove(name.as_bytes()));
                }
                if step.is_multiple_of(16) {
                    list(&real, &nodes);
                    copies.push((real.clone(), model.clone()));
                }
            }
            copies.push((real, model));
            for (real, model) in copies {
                prop_assert_eq!(real.iter().collect::<Vec<_>>(), model.values().copied().collect::<Vec<_>>());
                let names: Vec<u8> = model.keys().flat_map(|name| [name.as_slice(), b"\0"].concat()).collect();
                prop_assert_eq!(real.list_len(&nodes), names.len());
                prop_assert_eq!(list(&real, &nodes), names);
                prop_assert_eq!(real.len(), model.len());
                for (name, &child) in &model {
                    prop_assert_eq!(real.get(&nodes, name), Some(child));
                }
                prop_assert_eq!(real.get(&nodes, b"none"), None);
            }
        }
    }

    #[test]
    fn parts_of_the_list_hold_whole_names() {
        let mut nodes = Nodes::default();
        let mut children = Children::None;
        for name in ["aa", "bb", "cc"] {
            let child = add(&mut nodes, name);
            children.put(&nodes, child);
        }
        let part = |offset: usize, room: usize| {
            let mut out = Vec::new();
            let end = children.put_list(&nodes, offset, room, &mut out);
            (out, end)
        };
        assert_eq!(part(0, 9), (b"aa\0bb\0cc\0".to_vec(), true));
        assert_eq!(part(0, 8), (b"aa\0bb\0".to_vec(), false));
        assert_eq!(part(6, 8), (b"cc\0".to_vec(), true));
        assert_eq!(part(0, 2), (Vec::new(), false));
        assert_eq!(part(9, 8), (Vec::new(), true));
        assert_eq!(part(4000, 8), (Vec::new(), true));
    }
}
