//! How many nodes each domain owns, and how many bytes they count for.

use imbl::{GenericOrdMap, shared_ptr::RcK};

use crate::id::DomId;

/// What a domain's nodes amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nodes that the domain owns.
    pub nodes: u32,
    /// Bytes of those nodes: their sizes and the lengths of their paths.
    pub bytes: u64,
}

/// Usage by domain, in a persistent map: a copy costs the same whether ten or ten thousand domains own nodes, and a
/// change copies a few entries. No request pays for the number of domains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    usage: GenericOrdMap<DomId, Usage, RcK>,
    /// Domains charged since [`Accounts::take_touched`], a domain once or more often.
    touched: Vec<DomId>,
}

impl Accounts {
    /// What a domain's nodes amount to.
    pub(crate) fn usage(&self, domid: DomId) -> Usage {
        self.usage.get(&domid).copied().unwrap_or_default()
    }

    /// Adds to a domain's usage, or takes from it; a domain without nodes has no entry.
    pub(crate) fn charge(&mut self, domid: DomId, nodes: i64, bytes: i64) {
        if nodes == 0 && bytes == 0 {
            return;
        }
        if self.touched.last() != Some(&domid) {
            self.touched.push(domid);
        }
        let new = |usage: Usage| Usage {
            nodes: u32::try_from(i64::from(usage.nodes) + nodes).unwrap_or(0),
            bytes: usage.bytes.saturating_add_signed(bytes),
        };
        match self.usage.get_mut(&domid) {
            Some(usage) => *usage = new(*usage),
            None => {
                self.usage.insert(domid, new(Usage::default()));
            }
        }
        if self.usage.get(&domid).is_some_and(|usage| *usage == Usage::default()) {
            self.usage.remove(&domid);
        }
    }

    /// The domains charged since the last call, each once.
    pub(crate) fn take_touched(&mut self) -> Vec<DomId> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// A domain charged since the last call, until none is left; a domain may come more often than once.
    pub(crate) fn next_touched(&mut self) -> Option<DomId> {
        self.touched.pop()
    }

    /// Every domain that owns nodes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DomId, Usage)> {
        self.usage.iter().map(|(domid, usage)| (*domid, *usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_was() {
        let mut accounts = Accounts::default();
        for domid in 0..1000 {
            accounts.charge(DomId(domid), 1, 100);
        }
        let copy = accounts.clone();
        accounts.charge(DomId(7), 2, -40);
        assert_eq!(copy.usage(DomId(7)), Usage { nodes: 1, bytes: 100 });
        assert_eq!(accounts.usage(DomId(7)), Usage { nodes: 3, bytes: 60 });
    }

    #[test]
    fn a_domain_without_nodes_leaves_no_entry() {
        let mut accounts = Accounts::default();
        accounts.charge(DomId(3), 2, 50);
        accounts.charge(DomId(3), -2, -50);
        assert_eq!(accounts.iter().count(), 0);
        assert_eq!(accounts.take_touched(), [DomId(3)]);
        assert_eq!(accounts.next_touched(), None);
    }
}
