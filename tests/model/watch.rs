//! Who hears of a change, by plain loops over all watches.

use crate::{
    choice, path,
    permission::{Caller, READ},
    store::Tree,
};

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
