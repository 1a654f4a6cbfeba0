//! Who hears of a change, by plain loops over all watches.

use crate::{
    adapter::Conn,
    choice,
    model::Model,
    path,
    permission::{Caller, READ},
    requests::Answer,
    store::Tree,
};
use xenstore_wire::{OK, XsError, payload};

/// One registered watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// Absolute path, or a special name.
    pub(crate) path: Vec<u8>,
    /// The client's own mark.
    pub(crate) token: Vec<u8>,
    /// How many levels below the path it reaches, if not all.
    pub(crate) depth: Option<u32>,
    /// Bytes to cut off the front of an event's path, for a path that was given relative.
    pub(crate) cut: usize,
}

/// A node that changed, with how far up its watchers may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    /// The node.
    pub(crate) path: Vec<u8>,
    /// Only watches on the very path hear of it (a node that went with one above it), not those above.
    pub(crate) exact: bool,
}

impl Fired {
    /// A change that the watches at and above the node hear of.
    pub(crate) fn subtree(path: &[u8]) -> Self {
        Self { path: path.to_vec(), exact: false }
    }

    /// A change that only the watches on the node hear of.
    pub(crate) fn exact(path: &[u8]) -> Self {
        Self { path: path.to_vec(), exact: true }
    }
}

impl Watch {
    /// Whether the watch hears of that change.
    pub(crate) fn matches(&self, fired: &Fired) -> bool {
        match path::levels_below(&fired.path, &self.path) {
            Some(0) => true,
            Some(levels) => !fired.exact && self.depth.is_none_or(|depth| levels <= depth as usize),
            None => false,
        }
    }

    /// The path of an event, as this watch's client names it.
    pub(crate) fn shown(&self, path: &[u8]) -> Vec<u8> {
        path[self.cut..].to_vec()
    }
}

/// Whether a caller may know that a node changed, given the tree before and after.
///
/// It may when it can read the node or the node's parent now, or could read the node before. A node that is gone is
/// judged as it was before. One that was neither there before nor is there now did not change.
pub(crate) fn may_know(caller: &Caller, path: &[u8], before: &Tree, after: &Tree) -> bool {
    let reads =
        |tree: &Tree, path: &[u8]| tree.get(path).is_some_and(|node| caller.access(&node.permissions) & READ != 0);
    let reads_parent = |tree: &Tree| path::parent(path).is_some_and(|parent| reads(tree, parent));
    if after.get(path).is_some() {
        reads(after, path) || reads_parent(after) || reads(before, path)
    } else if before.get(path).is_some() {
        reads(before, path) || (choice::REMOVAL_JUDGES_OLD_PARENT && reads_parent(before))
    } else {
        false
    }
}

impl Model {
    /// `WATCH path token [depth]`; the first event comes at once.
    pub(crate) fn watch(&mut self, conn: Conn, args: &[u8]) -> Answer {
        let strings: Vec<_> = payload::strings(args).collect();
        let (named, token, depth) = match strings.as_slice() {
            [path, token] => (*path, *token, None),
            [path, token, depth] if self.features(conn) & choice::FEATURE_WATCH_DEPTH != 0 => {
                (*path, *token, Some(payload::number(depth)?))
            }
            _ => return Err(XsError::Inval),
        };
        let path = self.any_path(conn, named)?;
        let too_deep = |depth: u32| {
            depth > choice::DEEPEST_WATCH || (path::is_special(&path) && !choice::special_depth_is_allowed(depth))
        };
        if depth.is_some_and(too_deep) {
            return Err(XsError::Inval);
        }
        let limit = self.caller_limit(conn, "watches");
        let memory = self.caller_limit(conn, "memory");
        let used = self.memory(&self.tree, self.caller(conn).domid);
        let watches = &mut self.connections.get_mut(&conn).expect("the caller is connected").watches;
        if watches.iter().any(|watch| watch.path == path && watch.token == token) {
            return Err(XsError::Exist);
        }
        if limit.is_some_and(|limit| watches.len() as u64 + 1 > limit) {
            return Err(XsError::NoSpc);
        }
        if memory.is_some_and(|memory| used + (path.len() + token.len()) as u64 > memory) {
            return Err(XsError::NoMem);
        }
        let cut = path.len() - named.len();
        watches.push(Watch { path, token: token.to_vec(), depth, cut });
        self.tell(conn, named.to_vec(), token.to_vec());
        Ok(OK.to_vec())
    }

    /// `UNWATCH path token`.
    pub(crate) fn unwatch(&mut self, conn: Conn, args: &[u8]) -> Answer {
        let [path, token] = payload::exactly(args)?;
        // However long: a watch from before a quota was lowered can still be dropped.
        let path = path::canonical(path, self.caller(conn).domid, usize::MAX)?;
        let watches = &mut self.connections.get_mut(&conn).expect("the caller is connected").watches;
        let found = watches.iter().position(|watch| watch.path == path && watch.token == token);
        watches.remove(found.ok_or(XsError::NoEnt)?);
        Ok(OK.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::itself("/a", None, "/a", false, true)]
    #[case::below("/a", None, "/a/b/c", false, true)]
    #[case::root_hears_all("/", None, "/a/b", false, true)]
    #[case::above("/a/b", None, "/a", false, false)]
    #[case::beside("/a", None, "/ab", false, false)]
    #[case::exact_itself("/a", None, "/a", true, true)]
    #[case::exact_below("/a", None, "/a/b", true, false)]
    #[case::depth_0("/a", Some(0), "/a/b", false, false)]
    #[case::depth_0_itself("/a", Some(0), "/a", false, true)]
    #[case::depth_1("/a", Some(1), "/a/b", false, true)]
    #[case::depth_1_grandchild("/a", Some(1), "/a/b/c", false, false)]
    #[case::root_depth_1("/", Some(1), "/a", false, true)]
    #[case::root_depth_1_grandchild("/", Some(1), "/a/b", false, false)]
    fn which_changes_a_watch_hears(
        #[case] watch: &str,
        #[case] depth: Option<u32>,
        #[case] changed: &str,
        #[case] exact: bool,
        #[case] want: bool,
    ) {
        let watch = Watch { path: watch.into(), token: b"t".to_vec(), depth, cut: 0 };
        assert_eq!(watch.matches(&Fired { path: changed.into(), exact }), want);
    }
}
