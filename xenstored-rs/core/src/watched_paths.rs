//! Watches by path, in a tree of names.
//!
//! Names in a row where no watched path ends and none branches off stand together. So what a watch takes is about the
//! length of its path, not a place for each of the thousand levels that a path may have.

use std::collections::BTreeMap;

use crate::{path::names, watch::WatchId};

/// All watched paths of nodes.
#[derive(Debug, Default)]
pub(crate) struct WatchedPaths {
    root: Place,
}

/// A path at which watched ones end or branch off.
#[derive(Debug, Default)]
struct Place {
    /// By the first name of the way.
    below: BTreeMap<Box<[u8]>, Way>,
    /// In the order of registration.
    watches: BTreeMap<u64, WatchId>,
}

/// The way down to the next place.
#[derive(Debug)]
struct Way {
    /// Its names behind the first, with a `/` between two.
    rest: Box<[u8]>,
    place: Place,
}

/// A path on the way to watched ones, which may be among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// The next place down.
    place: &'a Place,
    /// Names that lead there.
    rest: &'a [u8],
}

/// The first of some names, and the others.
fn first(names: &[u8]) -> (&[u8], &[u8]) {
    match names.iter().position(|&byte| byte == b'/') {
        Some(slash) => (&names[..slash], &names[slash + 1..]),
        None => (names, &[]),
    }
}

/// What is behind the first `len` bytes, which end with a name.
fn behind(names: &[u8], len: usize) -> &[u8] {
    let rest = &names[len..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// Bytes of the names that both begin with.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let ends = |names: &[u8], at: usize| at == names.len() || names[at] == b'/';
    let mut shared = 0;
    for at in 0..=one.len().min(other.len()) {
        if ends(one, at) && ends(other, at) {
            shared = at;
        }
        if one.get(at) != other.get(at) {
            break;
        }
    }
    shared
}

impl Place {
    fn is_empty(&self) -> bool {
        self.below.is_empty() && self.watches.is_empty()
    }

    fn remove(&mut self, path: &[u8], order: u64) {
        if path.is_empty() {
            self.watches.remove(&order);
            return;
        }
        let (name, rest) = first(path);
        let Some(way) = self.below.get_mut(name) else { return };
        if shared(&way.rest, rest) != way.rest.len() {
            return;
        }
        way.place.remove(behind(rest, way.rest.len()), order);
        if way.place.is_empty() {
            self.below.remove(name);
        } else {
            way.join();
        }
    }
}

impl Way {
    /// Puts a place into the way, `len` bytes down.
    fn split(&mut self, len: usize) {
        let (name, rest) = first(behind(&self.rest, len));
        let lower = Self { rest: rest.into(), place: std::mem::take(&mut self.place) };
        self.place.below.insert(name.into(), lower);
        self.rest = self.rest[..len].into();
    }

    /// Takes the place at the end of the way out of it, if nothing ends or branches off there.
    fn join(&mut self) {
        if self.place.watches.is_empty()
            && self.place.below.len() == 1
            && let Some((name, lower)) = self.place.below.pop_first()
        {
            let parts: Vec<&[u8]> =
                [&*self.rest, &*name, &*lower.rest].into_iter().filter(|part| !part.is_empty()).collect();
            self.rest = parts.join(&b'/').into();
            self.place = lower.place;
        }
    }
}

impl WatchedPaths {
    /// Adds a watch on a canonical path.
    pub(crate) fn add(&mut self, path: &[u8], order: u64, id: WatchId) {
        let mut place = &mut self.root;
        let mut names = &path[1..];
        while !names.is_empty() {
            let (name, rest) = first(names);
            let way =
                place.below.entry(name.into()).or_insert_with(|| Way { rest: rest.into(), place: Place::default() });
            let len = shared(&way.rest, rest);
            if len < way.rest.len() {
                way.split(len);
            }
            names = behind(rest, len);
            place = &mut way.place;
        }
        place.watches.insert(order, id);
    }

    /// Takes a watch on a canonical path away.
    pub(crate) fn remove(&mut self, path: &[u8], order: u64) {
        self.root.remove(&path[1..], order);
    }

    /// The root.
    pub(crate) fn top(&self) -> At<'_> {
        At { place: &self.root, rest: &[] }
    }

    /// A canonical path, if anything is watched there or below.
    pub(crate) fn find(&self, path: &[u8]) -> Option<At<'_>> {
        names(path).try_fold(self.top(), At::step)
    }
}

impl<'a> At<'a> {
    /// The child of that name, if anything is watched there or below.
    pub(crate) fn step(self, name: &[u8]) -> Option<Self> {
        if self.rest.is_empty() {
            let way = self.place.below.get(name)?;
            return Some(Self { place: &way.place, rest: &way.rest });
        }
        let (next, rest) = first(self.rest);
        (next == name).then_some(Self { place: self.place, rest })
    }

    /// The watches on this very path, in the order of registration.
    pub(crate) fn watches(self) -> impl Iterator<Item = (u64, WatchId)> + use<'a> {
        let here = self.rest.is_empty().then_some(&self.place.watches);
        here.into_iter().flatten().map(|(&order, &id)| (order, id))
    }

    /// Number of children with anything watched there or below.
    pub(crate) fn width(self) -> usize {
        if self.rest.is_empty() { self.place.below.len() } else { 1 }
    }

    /// Those children, with their names.
    pub(crate) fn below(self) -> impl Iterator<Item = (&'a [u8], Self)> {
        let on = (!self.rest.is_empty()).then(|| {
            let (name, rest) = first(self.rest);
            (name, Self { place: self.place, rest })
        });
        let ways = self.rest.is_empty().then_some(&self.place.below).into_iter().flatten();
        on.into_iter().chain(ways.map(|(name, way)| (&**name, Self { place: &way.place, rest: &way.rest })))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// Paths of a few names that are each other's beginnings.
    fn path() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(vec!["a", "b", "ab", "abc"]), 0..6).prop_map(|names| {
            if names.is_empty() {
                b"/".to_vec()
            } else {
                names.iter().flat_map(|name| ["/", name].concat().into_bytes()).collect()
            }
        })
    }

    /// A path with its watches.
    type Found = (Vec<u8>, Vec<(u64, WatchId)>);

    /// Every path that is reached from the top and has watches.
    fn reached(paths: &WatchedPaths) -> Vec<Found> {
        let (mut found, mut stack) = (Vec::new(), vec![(b"/".to_vec(), paths.top())]);
        while let Some((path, at)) = stack.pop() {
            assert_eq!(at.width(), at.below().count());
            for (name, below) in at.below() {
                let mut path = path.clone();
                crate::path::push_name(&mut path, name);
                stack.push((path, below));
            }
            let watches: Vec<_> = at.watches().collect();
            if !watches.is_empty() {
                found.push((path, watches));
            }
        }
        found.sort();
        found
    }

    fn number(order: u64) -> WatchId {
        usize::try_from(order).unwrap()
    }

    /// Number of places, and bytes of the names between them.
    fn size(place: &Place) -> (usize, usize) {
        place.below.iter().fold((1, 0), |(places, bytes), (name, way)| {
            let (more, below) = size(&way.place);
            (places + more, bytes + below + name.len() + way.rest.len())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

        #[test]
        fn what_is_added_is_found_and_what_is_removed_leaves_nothing(
            steps in proptest::collection::vec((path(), any::<bool>()), 0..if cfg!(miri) { 15 } else { 60 }),
        ) {
            let (mut paths, mut model) = (WatchedPaths::default(), BTreeSet::<(Vec<u8>, u64)>::new());
            for (order, (path, add)) in (0u64..).zip(steps) {
                let there = model.iter().find(|entry| entry.0 == path).cloned();
                match there {
                    Some((path, order)) if !add => {
                        paths.remove(&path, order);
                        model.remove(&(path, order));
                    }
                    None if !add => paths.remove(&path, 7),
                    _ => {
                        paths.add(&path, order, number(order));
                        model.insert((path, order));
                    }
                }
                let mut wanted: BTreeMap<Vec<u8>, Vec<(u64, WatchId)>> = BTreeMap::new();
                for (path, order) in &model {
                    wanted.entry(path.clone()).or_default().push((*order, number(*order)));
                }
                for (path, watches) in &wanted {
                    prop_assert_eq!(&paths.find(path).unwrap().watches().collect::<Vec<_>>(), watches);
                }
                // A place each for the root, for each watched path, and where two of them part.
                let (places, bytes) = size(&paths.root);
                prop_assert!(places <= 1 + 2 * wanted.len(), "{} places for {} paths", places, wanted.len());
                prop_assert!(bytes <= wanted.keys().map(Vec::len).sum::<usize>());
                prop_assert_eq!(reached(&paths), wanted.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_path_of_a_thousand_levels_takes_one_place() {
        let mut paths = WatchedPaths::default();
        let deep = b"/a".repeat(1000);
        paths.add(&deep, 1, 1);
        assert_eq!(size(&paths.root).0, 2);
        assert_eq!(paths.find(&deep).unwrap().watches().count(), 1);
        assert_eq!(paths.find(&deep[..1000]).unwrap().watches().count(), 0);
        paths.add(&[&deep[..1000], b"/b"].concat(), 2, 2);
        assert_eq!(size(&paths.root).0, 4);
        paths.remove(&deep, 1);
        assert_eq!(size(&paths.root).0, 2);
        paths.remove(&[&deep[..1000], b"/b"].concat(), 2);
        assert!(paths.root.is_empty());
    }
}
