//! One node of the tree.

use std::rc::Rc;

use crate::{children::Children, permission::Permissions, small_bytes::SmallBytes};

/// Bytes that a node counts for beside its permissions, value and child names (`docs/misc/xenstore.txt`, quotas).
const HEADER_SIZE: usize = 16;

/// Bytes that each permission entry counts for.
const PERMISSION_SIZE: usize = 8;

/// Number of a change, unique in the life of the store: two states of a node with the same generation are the same.
pub(crate) type Generation = u64;

/// A node: immutable while a snapshot shares it, changed in place otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: SmallBytes,
    pub(crate) value: SmallBytes,
    pub(crate) permissions: Permissions,
    /// Last change of value or permissions. Changes of the child list have a number of their own.
    pub(crate) generation: Generation,
    children: Option<Rc<Children>>,
}

impl Node {
    /// A node without children.
    pub(crate) fn new(name: &[u8], value: &[u8], permissions: Permissions, generation: Generation) -> Self {
        Self { name: name.into(), value: value.into(), permissions, generation, children: None }
    }

    /// The child of that name.
    pub(crate) fn child(&self, name: &[u8]) -> Option<&Rc<Self>> {
        self.children.as_ref()?.get(name)
    }

    /// The child of that name, to be changed or replaced.
    pub(crate) fn child_mut(&mut self, name: &[u8]) -> Option<&mut Rc<Self>> {
        own(self.children.as_mut()?).get_mut(name)
    }

    /// Puts a child in, in place of one with the same name; the child list then has `generation` if it is longer now.
    pub(crate) fn put_child(&mut self, child: Rc<Self>, generation: Generation) {
        match &mut self.children {
            Some(children) => own(children).put(child, generation),
            None => self.children = Some(Rc::new(Children::only(child, generation))),
        }
    }

    /// Takes a child out; the child list then has `generation`.
    pub(crate) fn take_child(&mut self, name: &[u8], generation: Generation) -> Option<Rc<Self>> {
        let children = own(self.children.as_mut()?);
        let taken = children.take(name, generation);
        if children.len() == 0 {
            self.children = None;
        }
        taken
    }

    /// The children in the order of their names' bytes.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Rc<Self>> {
        self.children.iter().flat_map(|children| children.iter())
    }

    /// Number of children.
    pub(crate) fn child_count(&self) -> usize {
        self.children.as_ref().map_or(0, |children| children.len())
    }

    /// The names of the children, each with a NUL: what DIRECTORY answers.
    pub(crate) fn child_list(&self) -> &[u8] {
        self.children.as_ref().map_or(&[], |children| children.list())
    }

    /// Last change of the child list; an empty list is always 0.
    pub(crate) fn list_generation(&self) -> Generation {
        self.children.as_ref().map_or(0, |children| children.generation())
    }

    /// Bytes of the child list.
    pub(crate) fn child_list_len(&self) -> usize {
        self.children.as_ref().map_or(0, |children| children.list_len())
    }

    /// What lay below a node that is gone.
    pub(crate) fn into_children(mut self) -> Option<Rc<Children>> {
        self.children.take()
    }

    /// Bytes that the node counts for in the `node-size` quota.
    pub(crate) fn size(&self) -> usize {
        Self::size_of(self.permissions.len(), self.value.len(), self.child_list_len())
    }

    /// Bytes that a node of such parts counts for.
    pub(crate) fn size_of(permissions: usize, value: usize, child_list: usize) -> usize {
        HEADER_SIZE + PERMISSION_SIZE * permissions + value + child_list
    }
}

impl Drop for Node {
    /// Frees what lies below without recursion, whatever its depth.
    fn drop(&mut self) {
        let Some(children) = self.children.take() else { return };
        let mut doomed = vec![children];
        while let Some(children) = doomed.pop() {
            if let Some(children) = Rc::into_inner(children) {
                children.take_apart(&mut doomed);
            }
        }
    }
}

/// The children of a node, to be changed: not shared with any copy of the node.
fn own(children: &mut Rc<Children>) -> &mut Children {
    if Rc::get_mut(children).is_none() {
        *children = Rc::new(Children::to_change(children));
    }
    Rc::get_mut(children).expect("nobody shares what was just made")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::DomId;

    #[test]
    fn a_node_is_small() {
        assert_eq!(size_of::<Node>(), 56, "hundreds of thousands of these are the daemon's memory");
    }

    #[test]
    fn a_chain_of_any_depth_is_freed() {
        let mut chain = Rc::new(Node::new(b"leaf", b"", Permissions::private(DomId::DOM0), 1));
        for depth in 0..200_000 {
            let mut above = Node::new(b"n", b"", Permissions::private(DomId::DOM0), depth);
            above.put_child(chain, depth);
            chain = Rc::new(above);
        }
        drop(chain);
    }
}
