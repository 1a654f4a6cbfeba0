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
    usage: GenericOrdMap<DomId, Balance, RcK>,
    /// Domains charged since [`Accounts::forget_touched`], a domain once or more often.
    touched: Vec<DomId>,
}

/// A usage while a change is under way: it may be below zero in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balance {
    nodes: i64,
    bytes: i64,
}

impl Balance {
    fn usage(self) -> Usage {
        Usage { nodes: u32::try_from(self.nodes).unwrap_or(0), bytes: u64::try_from(self.bytes).unwrap_or(0) }
    }
}

impl Accounts {
    /// What a domain's nodes amount to.
    pub(crate) fn usage(&self, domid: DomId) -> Usage {
        self.usage.get(&domid).copied().unwrap_or_default().usage()
    }

    /// Adds to a domain's usage, or takes from it; a domain without nodes has no entry.
    pub(crate) fn charge(&mut self, domid: DomId, nodes: i64, bytes: i64) {
        if nodes == 0 && bytes == 0 {
            return;
        }
        if self.touched.last() != Some(&domid) {
            self.touched.push(domid);
        }
        let Some(balance) = self.usage.get_mut(&domid) else {
            self.usage.insert(domid, Balance { nodes, bytes });
            return;
        };
        balance.nodes += nodes;
        balance.bytes += bytes;
        if *balance == Balance::default() {
            self.usage.remove(&domid);
        }
    }

    /// The domains charged since [`Accounts::forget_touched`], each once.
    pub(crate) fn touched(&self) -> Vec<DomId> {
        let mut touched = self.touched.clone();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Begins to note afresh which domains are charged.
    pub(crate) fn forget_touched(&mut self) {
        self.touched.clear();
    }

    /// A domain charged since the last call, until none is left; a domain may come more often than once.
    pub(crate) fn next_touched(&mut self) -> Option<DomId> {
        self.touched.pop()
    }

    /// Every domain that owns nodes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DomId, Usage)> {
        self.usage.iter().map(|(domid, balance)| (*domid, balance.usage()))
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_was() {
        let mut accounts = Accounts::default();
        for domid in 0..if cfg!(miri) { 100 } else { 1000 } {
            accounts.charge(DomId(domid), 1, 100);
        }
        let copy = accounts.clone();
        accounts.charge(DomId(7), 2, -40);
        assert_eq!(copy.usage(DomId(7)), Usage { nodes: 1, bytes: 100 });
        assert_eq!(accounts.usage(DomId(7)), Usage { nodes: 3, bytes: 60 });
    }

    #[test]
    fn a_balance_may_be_below_zero_in_between() {
        let mut accounts = Accounts::default();
        accounts.charge(DomId(3), -1, -50);
        assert_eq!(accounts.usage(DomId(3)), Usage::default());
        accounts.charge(DomId(3), 3, 70);
        assert_eq!(accounts.usage(DomId(3)), Usage { nodes: 2, bytes: 20 });
    }

    #[test]
    fn a_domain_without_nodes_leaves_no_entry() {
        let mut accounts = Accounts::default();
        accounts.charge(DomId(3), 2, 50);
        accounts.charge(DomId(3), -2, -50);
        assert_eq!(accounts.iter().count(), 0);
        assert_eq!(accounts.touched(), [DomId(3)]);
        accounts.forget_touched();
        assert_eq!(accounts.next_touched(), None);
    }
}
