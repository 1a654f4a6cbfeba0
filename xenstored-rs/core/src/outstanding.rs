//! Requests of a guest that are not all delivered.

use std::collections::BTreeMap;

/// Requests with the number of messages of each that are missing: their replies, and the events that they caused anywhere.
///
/// Most are delivered before the next one comes, so that the newest stands apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outstanding {
    /// The newest, and what is missing of it; it is delivered where that is nothing.
    newest: (u64, u32),
    /// Those before it, of which none is delivered.
    older: BTreeMap<u64, u32>,
}

impl Outstanding {
    /// How many requests there are.
    pub(crate) fn len(&self) -> usize {
        self.older.len() + usize::from(self.newest.1 > 0)
    }

    /// Whether everything is delivered.
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.1 == 0 && self.older.is_empty()
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Counts messages of a request that are missing now too.
    pub(crate) fn add(&mut self, request: u64, missing: u32) {
        if request < self.newest.0 {
            let before = self.older.entry(request).or_insert(0);
            *before = before.saturating_add(missing);
            return;
        }
        if request > self.newest.0 {
            let (before, missing) = std::mem::replace(&mut self.newest, (request, 0));
            if missing > 0 {
                self.older.insert(before, missing);
            }
        }
        self.newest.1 = self.newest.1.saturating_add(missing);
    }

    /// Counts a message of a request that is delivered; one that is not known counts for nothing.
    pub(crate) fn delivered(&mut self, request: u64) {
        if request == self.newest.0 {
            self.newest.1 = self.newest.1.saturating_sub(1);
        } else if let Some(missing) = self.older.get_mut(&request) {
            *missing -= 1;
            if *missing == 0 {
                self.older.remove(&request);
            }
        }
    }

    /// The requests in their order, each with what is missing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let older = self.older.iter().map(|(request, missing)| (*request, *missing));
        older.chain(Some(self.newest).filter(|(_, missing)| *missing > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

        #[test]
        fn it_counts_as_a_map_does(steps in prop::collection::vec((any::<bool>(), 1..6_u64), 0..40)) {
            let (mut outstanding, mut map) = (Outstanding::default(), BTreeMap::<u64, u32>::new());
            for (adds, request) in steps {
                if adds {
                    outstanding.add(request, 1);
                    *map.entry(request).or_default() += 1;
                } else {
                    outstanding.delivered(request);
                    if let Some(missing) = map.get_mut(&request) {
                        *missing -= 1;
                    }
                }
                map.retain(|_, missing| *missing > 0);
                prop_assert_eq!(outstanding.iter().collect::<Vec<_>>(), map.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!((outstanding.len(), outstanding.is_empty()), (map.len(), map.is_empty()));
            }
        }
    }
}
