//! Watches, found by path.
//!
//! A watch stands at its path in a tree of names, so what a change costs is the depth of its path and the watches that
//! match, however many others there are.

use std::collections::BTreeMap;

use slab::Slab;

use crate::{
    id::ConnId,
    node::NodeId,
    path::{WatchPath, names, push_name},
    view::View,
    watched_paths::WatchedPaths,
};

/// Number of a watch, used again after its end.
pub(crate) type WatchId = usize;

/// A registered watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) conn: ConnId,
    /// Canonical path, or special name.
    pub(crate) path: Box<[u8]>,
    pub(crate) token: Box<[u8]>,
    /// Bytes to cut off an event's path, since the caller named its own path without them.
    pub(crate) hidden: usize,
    /// Levels below the path that fire; none is no limit.
    pub(crate) depth: Option<u16>,
    /// Order of registration: events of one change come in it.
    order: u64,
}

impl Watch {
    /// The path of an event as the watch's owner sees it.
    pub(crate) fn shown<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        path.get(self.hidden..).unwrap_or(path)
    }

    /// Bytes that the watch counts for.
    pub(crate) fn size(&self) -> usize {
        self.path.len() + self.token.len()
    }
}

/// A watch that is to be registered.
#[derive(Debug)]
pub(crate) struct NewWatch<'a> {
    pub(crate) conn: ConnId,
    pub(crate) path: &'a WatchPath<'a>,
    pub(crate) token: &'a [u8],
    pub(crate) hidden: usize,
    pub(crate) depth: Option<u16>,
}

/// A watch that a change fires, in the order in which events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fired {
    order: u64,
    pub(crate) id: WatchId,
}

/// All watches of all connections.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Slab<Watch>,
    /// Connection, path and token to watch: what makes a watch the same.
    keys: BTreeMap<Box<[u8]>, WatchId>,
    nodes: WatchedPaths,
    /// By name, and then in the order of registration.
    specials: BTreeMap<Box<[u8]>, BTreeMap<u64, WatchId>>,
    next_order: u64,
}

/// The key of a watch: keys of one connection stand together.
fn key(conn: ConnId, path: &[u8], token: &[u8]) -> Vec<u8> {
    [&conn.0.to_be_bytes(), path, b"\0", token].concat()
}

impl Watches {
    /// Registers a watch; `None` where its connection has one with this path and token.
    pub(crate) fn register(&mut self, new: &NewWatch<'_>) -> Option<WatchId> {
        let path = new.path.as_bytes();
        if self.is_registered(new.conn, path, new.token) {
            return None;
        }
        let order = self.next_order;
        self.next_order += 1;
        Some(self.add(Watch {
            conn: new.conn,
            path: path.into(),
            token: new.token.into(),
            hidden: new.hidden,
            depth: new.depth,
            order,
        }))
    }

    /// Puts a watch into its place.
    fn add(&mut self, watch: Watch) -> WatchId {
        let Watch { order, conn, path, token, .. } = &watch;
        let (order, key) = (*order, key(*conn, path, token));
        let path = path.clone();
        let id = self.watches.insert(watch);
        if path.first() == Some(&b'@') {
            self.specials.entry(path).or_default().insert(order, id);
        } else {
            self.nodes.add(&path, order, id);
        }
        self.keys.insert(key.into_boxed_slice(), id);
        id
    }

    /// Whether a connection has a watch with that path and token.
    pub(crate) fn is_registered(&self, conn: ConnId, path: &[u8], token: &[u8]) -> bool {
        self.keys.contains_key(key(conn, path, token).as_slice())
    }

    /// Ends a watch and returns it.
    pub(crate) fn unregister(&mut self, conn: ConnId, path: &[u8], token: &[u8]) -> Option<Watch> {
        let id = self.keys.remove(key(conn, path, token).as_slice())?;
        Some(self.forget(id))
    }

    /// Ends every watch of a connection; returns the bytes that they counted for.
    pub(crate) fn unregister_all(&mut self, conn: ConnId) -> usize {
        let mut size = 0;
        let prefix = conn.0.to_be_bytes();
        while let Some((key, &id)) =
            self.keys.range::<[u8], _>((std::ops::Bound::Included(&prefix[..]), std::ops::Bound::Unbounded)).next()
        {
            if !key.starts_with(&prefix) {
                break;
            }
            let key = key.clone();
            self.keys.remove(&key);
            size += self.forget(id).size();
        }
        size
    }

    fn forget(&mut self, id: WatchId) -> Watch {
        let watch = self.watches.remove(id);
        if watch.path.first() == Some(&b'@') {
            if let Some(watches) = self.specials.get_mut(&watch.path) {
                watches.remove(&watch.order);
                if watches.is_empty() {
                    self.specials.remove(&watch.path);
                }
            }
        } else {
            self.nodes.remove(&watch.path, watch.order);
        }
        watch
    }

    /// The watch with that number.
    pub(crate) fn get(&self, id: WatchId) -> Option<&Watch> {
        self.watches.get(id)
    }

    /// The watches of a connection, in the order of registration.
    pub(crate) fn of(&self, conn: ConnId) -> impl Iterator<Item = &Watch> {
        let prefix = conn.0.to_be_bytes();
        let keys = self.keys.range::<[u8], _>((std::ops::Bound::Included(&prefix[..]), std::ops::Bound::Unbounded));
        let mut own: Vec<&Watch> =
            keys.take_while(|(key, _)| key.starts_with(&prefix)).filter_map(|(_, &id)| self.get(id)).collect();
        own.sort_unstable_by_key(|watch| watch.order);
        own.into_iter()
    }

    /// Number of watches.
    pub(crate) fn len(&self) -> usize {
        self.watches.len()
    }

    /// Watches on `path` and above it, as far as their depth reaches.
    pub(crate) fn at_or_above(&self, path: &[u8], fired: &mut Vec<Fired>) {
        fired.clear();
        if self.watches.is_empty() {
            return;
        }
        let mut left = names(path).count();
        let mut at = self.nodes.top();
        let mut rest = names(path);
        loop {
            for (order, id) in at.watches() {
                let reached = self
                    .watches
                    .get(id)
                    .is_some_and(|watch| watch.depth.is_none_or(|depth| usize::from(depth) >= left));
                if reached {
                    fired.push(Fired { order, id });
                }
            }
            let Some(below) = rest.next().and_then(|name| at.step(name)) else { break };
            at = below;
            left -= 1;
        }
        fired.sort_unstable();
    }

    /// Watches on just that path or special name.
    pub(crate) fn exactly(&self, path: &[u8], fired: &mut Vec<Fired>) {
        fired.clear();
        if path.first() == Some(&b'@') {
            let watches = self.specials.get(path).into_iter().flatten();
            fired.extend(watches.map(|(&order, &id)| Fired { order, id }));
        } else if let Some(at) = self.nodes.find(path) {
            fired.extend(at.watches().map(|(order, id)| Fired { order, id }));
        }
    }

    /// Nodes below the one at `path` that are watched, leaves first. Costs the watched paths below it or the nodes in it,
    /// whichever are fewer at each level.
    pub(crate) fn watched_below(&self, view: View<'_>, path: &[u8], root: NodeId) -> Vec<Watched> {
        let mut found = Vec::new();
        let Some(at) = self.nodes.find(path) else { return found };
        let mut stack = vec![(at, Watched { path: path.to_vec(), id: root, above: root })];
        // Parents before children and the last child first: the reverse is leaves first.
        while let Some((at, here)) = stack.pop() {
            let step = |name: &[u8], at, id| {
                let mut path = here.path.clone();
                push_name(&mut path, name);
                (at, Watched { path, id, above: here.id })
            };
            if at.width() <= view.children(here.id).len() {
                stack.extend(at.below().filter_map(|(name, at)| Some(step(name, at, view.child(here.id, name)?))));
            } else {
                stack.extend(view.children(here.id).iter().filter_map(|child| {
                    let name = view.nodes().get(child).name.as_slice();
                    Some(step(name, at.step(name)?, child))
                }));
            }
            if at.watches().next().is_some() && here.id != root {
                found.push(here);
            }
        }
        found.reverse();
        found
    }
}

/// A node that is watched by its own path.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) path: Vec<u8>,
    pub(crate) id: NodeId,
    /// Its parent.
    pub(crate) above: NodeId,
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::DomId, permission::Permissions, store::Store};

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);

    fn watch(watches: &mut Watches, conn: ConnId, path: &str, token: &str, depth: Option<u16>) -> bool {
        let path = WatchPath::parse(path.as_bytes(), DomId::DOM0).unwrap();
        watches.register(&NewWatch { conn, path: &path, token: token.as_bytes(), hidden: 0, depth }).is_some()
    }

    fn tokens(watches: &Watches, fired: &[Fired]) -> Vec<String> {
        fired.iter().map(|fired| String::from_utf8(watches.get(fired.id).unwrap().token.to_vec()).unwrap()).collect()
    }

    fn at_or_above(watches: &Watches, path: &str) -> Vec<String> {
        let mut fired = Vec::new();
        watches.at_or_above(path.as_bytes(), &mut fired);
        tokens(watches, &fired)
    }

    #[test]
    fn a_change_fires_watches_on_it_and_above_in_the_order_of_registration() {
        let mut watches = Watches::default();
        for (path, token) in [("/a/b", "1"), ("/", "2"), ("/a", "3"), ("/a/b/c", "4"), ("/ab", "5"), ("/a/b", "6")] {
            assert!(watch(&mut watches, A, path, token, None));
        }
        assert_eq!(at_or_above(&watches, "/a/b"), ["1", "2", "3", "6"]);
        assert_eq!(at_or_above(&watches, "/"), ["2"]);
    }

    #[test]
    fn depth_counts_levels_below_the_watched_path() {
        let mut watches = Watches::default();
        for depth in 0..3u16 {
            watch(&mut watches, A, "/a", &depth.to_string(), Some(depth));
        }
        assert_eq!(at_or_above(&watches, "/a"), ["0", "1", "2"]);
        assert_eq!(at_or_above(&watches, "/a/b"), ["1", "2"]);
        assert_eq!(at_or_above(&watches, "/a/b/c"), ["2"]);
        assert_eq!(at_or_above(&watches, "/a/b/c/d"), [""; 0]);
    }

    #[test]
    fn path_and_token_make_a_watch_of_a_connection() {
        let mut watches = Watches::default();
        assert!(watch(&mut watches, A, "/a", "t", None));
        assert!(!watch(&mut watches, A, "/a", "t", Some(1)));
        assert!(watch(&mut watches, A, "/a", "u", None));
        assert!(watch(&mut watches, B, "/a", "t", None));
        assert!(watches.unregister(A, b"/a", b"t").is_some());
        assert!(watches.unregister(A, b"/a", b"t").is_none());
        assert_eq!(at_or_above(&watches, "/a"), ["u", "t"]);
    }

    #[test]
    fn a_closed_connection_leaves_nothing() {
        let mut watches = Watches::default();
        for path in ["/a/b/c", "/a", "/", "@releaseDomain", "@x/5"] {
            watch(&mut watches, A, path, "t", None);
            watch(&mut watches, B, path, "t", None);
        }
        watches.unregister_all(A);
        assert_eq!(watches.len(), 5);
        watches.unregister_all(B);
        assert_eq!(watches.len(), 0);
        assert!(watches.nodes.top().width() == 0 && watches.specials.is_empty() && watches.keys.is_empty());
    }

    #[test]
    fn removal_finds_watched_nodes_leaves_first() {
        let mut store = Store::new(DomId::DOM0);
        for path in ["/a/b/c", "/a/b/d", "/a/e", "/a/f/g"] {
            store.create(path.as_bytes(), b"", &Permissions::private(DomId::DOM0), 1);
        }
        let mut watches = Watches::default();
        for path in ["/a", "/a/b", "/a/b/c", "/a/b/d", "/a/e", "/a/none", "/a/b/c/none"] {
            watch(&mut watches, A, path, "t", None);
        }
        let root = store.find(b"/a").unwrap();
        let found = watches.watched_below(store.now(), b"/a", root);
        let paths: Vec<_> = found.iter().map(|watched| std::str::from_utf8(&watched.path).unwrap()).collect();
        assert_eq!(paths, ["/a/b/c", "/a/b/d", "/a/b", "/a/e"]);
    }
}
