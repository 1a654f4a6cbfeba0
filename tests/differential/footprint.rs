//! What a request looks at and what it changes, by paths: enough to tell whether others interfered with a transaction.
//!
//! It errs on the safe side: where it says that nobody interfered, a transaction's answers and its commit must be the
//! same on every daemon.

use std::collections::BTreeSet;
use xenstore_wire::{Op, payload};

/// The paths that exist outside any transaction.
#[derive(Debug, Default)]
pub(crate) struct Shadow(BTreeSet<Vec<u8>>);

/// Paths that a request deals with: nodes by themselves, and whole subtrees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    nodes: BTreeSet<Vec<u8>>,
    subtrees: BTreeSet<Vec<u8>>,
}

/// Whether `path` is `top` or below it.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    top == b"/" || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The node above.
fn parent(path: &[u8]) -> Option<&[u8]> {
    match path.iter().rposition(|&byte| byte == b'/')? {
        0 if path.len() == 1 => None,
        0 => Some(b"/"),
        at => Some(&path[..at]),
    }
}

/// The absolute form of the path in front of a payload; special nodes keep their name.
pub(crate) fn path_of(payload: &[u8]) -> Option<Vec<u8>> {
    let path = payload::strings(payload).next()?;
    match path.first()? {
        b'/' | b'@' => Some(path.into()),
        _ => Some([b"/local/domain/0/", path].concat()),
    }
}

impl Footprint {
    pub(crate) fn add(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.subtrees.extend(other.subtrees);
    }

    /// Whether the two have a node in common.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let within = |nodes: &BTreeSet<Vec<u8>>, tops: &BTreeSet<Vec<u8>>| {
            nodes.iter().any(|node| tops.iter().any(|top| is_below(node, top)))
        };
        !self.nodes.is_disjoint(&other.nodes)
            || within(&self.nodes, &other.subtrees)
            || within(&other.nodes, &self.subtrees)
            || within(&self.subtrees, &other.subtrees)
            || within(&other.subtrees, &self.subtrees)
    }
}

impl Shadow {
    /// Replaces all by what a listing found.
    pub(crate) fn set(&mut self, paths: impl Iterator<Item = Vec<u8>>) {
        self.0 = paths.collect();
    }

    /// Every node that a request could look at or change, whether it succeeds or not.
    pub(crate) fn footprint(&self, op: Op, payload: &[u8]) -> Footprint {
        let mut footprint = Footprint::default();
        let Some(path) = path_of(payload) else { return footprint };
        let top = match op {
            Op::Read | Op::Directory | Op::DirectoryPart | Op::GetPerms | Op::SetPerms | Op::Write | Op::Mkdir => {
                path.as_slice()
            }
            Op::Rm => {
                footprint.subtrees.insert(path.clone());
                parent(&path).unwrap_or(&path)
            }
            _ => return footprint,
        };
        footprint.nodes.insert(top.into());
        // A node that is missing concerns what is above it: there it is made, or there it shows whether one may know.
        let mut at = top;
        while !self.0.contains(at) {
            let Some(above) = parent(at) else { break };
            footprint.nodes.insert(above.into());
            at = above;
        }
        footprint
    }

    /// Follows a request that succeeded outside any transaction.
    pub(crate) fn follow(&mut self, op: Op, payload: &[u8]) {
        let Some(path) = path_of(payload) else { return };
        match op {
            Op::Write | Op::Mkdir => {
                let mut at = Some(path.as_slice());
                while let Some(path) = at {
                    self.0.insert(path.into());
                    at = parent(path);
                }
            }
            Op::Rm => self.0.retain(|node| !is_below(node, &path)),
            _ => {}
        }
    }
}

/// Whether a request of this type changes the store when it succeeds.
pub(crate) fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Mkdir | Op::Rm | Op::SetPerms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow() -> Shadow {
        let mut shadow = Shadow::default();
        shadow.follow(Op::Write, b"/t/a/b\0v");
        shadow
    }

    #[test]
    fn overwriting_a_node_leaves_its_siblings_alone() {
        let shadow = shadow();
        let write = shadow.footprint(Op::Write, b"/t/a/b\0v");
        assert!(!write.meets(&shadow.footprint(Op::Read, b"/t/a\0")));
        assert!(write.meets(&shadow.footprint(Op::Read, b"/t/a/b\0")));
        assert!(write.meets(&shadow.footprint(Op::Rm, b"/t\0")));
    }

    #[test]
    fn creating_a_node_concerns_its_parent() {
        let shadow = shadow();
        let create = shadow.footprint(Op::Write, b"/t/x/y\0v");
        assert!(create.meets(&shadow.footprint(Op::Directory, b"/t\0")));
        assert!(create.meets(&shadow.footprint(Op::Mkdir, b"/t/z\0")));
        assert!(!create.meets(&shadow.footprint(Op::Mkdir, b"/t/a/z\0")));
        assert!(!create.meets(&shadow.footprint(Op::Directory, b"/\0")));
    }
}
