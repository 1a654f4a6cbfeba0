//! What a domain may use up.

use crate::id::DomId;

/// Declares the quotas once: name, default, what it counts.
macro_rules! quotas {
    ($($variant:ident, $name:literal, $default:literal, $doc:literal;)*) => {
        /// A limit on what an unprivileged domain may use. A quota of N allows exactly N; 0 is no limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Quota {
            $(#[doc = $doc] $variant,)*
        }

        impl Quota {
            /// Every quota, in the order of listings.
            pub const ALL: [Quota; 9] = [$(Quota::$variant),*];

            /// The name on the wire and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Quota::$variant => $name,)* }
            }

            /// What it counts.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Quota::$variant => $doc,)* }
            }

            /// The hard limit of a fresh start.
            #[must_use]
            pub const fn default_limit(self) -> u32 {
                match self { $(Quota::$variant => $default,)* }
            }
        }
    };
}

quotas! {
    Nodes, "nodes", 1000, "Nodes owned by the domain";
    Watches, "watches", 128, "Watches registered by the domain";
    Transactions, "transactions", 10, "Transactions open at once";
    Outstanding, "outstanding", 20, "Requests whose replies and events are not delivered";
    TransactionNodes, "transaction-nodes", 1024, "Nodes touched by one transaction";
    Memory, "memory", 2_621_440, "Bytes held for the domain";
    NodeSize, "node-size", 2048, "Bytes of one node";
    PathMax, "path-max", 2048, "Bytes of a path behind the domain's home";
    NodePermissions, "node-permissions", 5, "Permission entries of one node";
}

/// Number of quotas.
pub const QUOTAS: usize = Quota::ALL.len();

impl Quota {
    /// The quota of that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|quota| quota.name().as_bytes() == name)
    }

    /// Place in a table of quotas.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A value that GET_QUOTA and SET_QUOTA name: a hard limit, or the soft one of memory, over which a domain is only
/// written into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The limit that is enforced.
    Hard(Quota),
    /// `soft-memory`.
    SoftMemory,
}

impl Limit {
    /// Every limit, in the order of GET_QUOTA's names.
    pub fn all() -> impl Iterator<Item = Self> {
        Quota::ALL.into_iter().map(Self::Hard).chain([Self::SoftMemory])
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hard(quota) => quota.name(),
            Self::SoftMemory => "soft-memory",
        }
    }

    /// The limit of that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::all().find(|limit| limit.name().as_bytes() == name)
    }

    /// Whether the limit may have this value: 0 is none, the largest number stands for an error elsewhere, and no path
    /// can be longer than the protocol allows.
    #[must_use]
    pub const fn may_be(self, value: u32) -> bool {
        match self {
            Self::Hard(Quota::PathMax) => value as usize <= xenstore_wire::REL_PATH_MAX,
            _ => value != u32::MAX,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Hard(quota) => quota.index(),
            Self::SoftMemory => QUOTAS,
        }
    }
}

/// The limits of every domain that has none of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits([u32; QUOTAS + 1]);

impl Default for Limits {
    fn default() -> Self {
        let mut limits = [2_097_152; QUOTAS + 1];
        for quota in Quota::ALL {
            limits[quota.index()] = quota.default_limit();
        }
        Self(limits)
    }
}

impl Limits {
    /// The value of a limit; 0 is none.
    #[must_use]
    pub fn get(&self, limit: Limit) -> u32 {
        self.0[limit.index()]
    }

    /// Sets a limit; 0 takes it away.
    pub fn set(&mut self, limit: Limit, value: u32) {
        self.0[limit.index()] = value;
    }
}

/// The limits of one domain: its own where they were set, else those of all, as they are at the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnLimits([Option<u32>; QUOTAS + 1]);

impl OwnLimits {
    /// The limit in force.
    pub(crate) fn get(&self, limit: Limit, all: &Limits) -> u32 {
        self.0[limit.index()].unwrap_or_else(|| all.get(limit))
    }

    /// The limits that the domain has of its own.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Limit, u32)> {
        Limit::all().filter_map(|limit| Some((limit, self.0[limit.index()]?)))
    }

    /// Gives the domain a limit of its own.
    pub(crate) fn set(&mut self, limit: Limit, value: u32) {
        self.0[limit.index()] = Some(value);
    }
}

/// Whether `used` is within `limit`, where 0 is no limit.
pub(crate) fn within(limit: u32, used: u64) -> bool {
    limit == 0 || used <= u64::from(limit)
}

/// A use of a quota that was refused, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHit {
    /// The domain.
    pub domid: DomId,
    /// What it used up.
    pub quota: Quota,
    /// The limit in force.
    pub limit: u32,
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_limits() {
        for limit in Limit::all() {
            assert_eq!(Limit::from_name(limit.name().as_bytes()), Some(limit));
        }
        assert_eq!(Limit::from_name(b"soft-nodes"), None);
    }

    #[test]
    fn a_domain_follows_the_common_limits_until_it_has_its_own() {
        let (mut all, mut own) = (Limits::default(), OwnLimits::default());
        let nodes = Limit::Hard(Quota::Nodes);
        assert_eq!(own.get(nodes, &all), 1000);
        all.set(nodes, 50);
        assert_eq!(own.get(nodes, &all), 50);
        own.set(nodes, 7);
        all.set(nodes, 60);
        assert_eq!(own.get(nodes, &all), 7);
    }

    #[test]
    fn a_quota_of_n_is_n() {
        assert!(within(20, 20));
        assert!(!within(20, 21));
        assert!(within(0, u64::MAX));
    }
}
