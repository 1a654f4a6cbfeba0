//! How many rings can be mapped.
//!
//! Each ring is a mapping of its own, of which the kernel allows a process `vm.max_map_count`. A process that has used
//! them all up cannot even get memory any more, so the rings leave some to the rest of the daemon. They need no
//! descriptors: all grants are mapped through one, and all event channels come through one.

use std::fs;

use tracing::warn;

/// Where the kernel says how many mappings a process may have.
const MOST_MAPPINGS: &str = "/proc/sys/vm/max_map_count";

/// Where it says which there are, one a line.
const OWN_MAPPINGS: &str = "/proc/self/maps";

/// Of so many mappings one is left for memory, libraries and files.
const SHARE: usize = 4;

/// So many are left at the least.
const LEAST: usize = 256;

/// Rings that may be mapped at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingLimit {
    most: usize,
}

impl RingLimit {
    /// What this host allows; without `/proc` there is nothing to go by, and the kernel has the last word.
    pub(crate) fn of_this_host() -> Self {
        let mappings = fs::read_to_string(MOST_MAPPINGS).ok().and_then(|text| text.trim().parse().ok());
        let own = fs::read_to_string(OWN_MAPPINGS).map_or(0, |text| text.lines().count());
        Self { most: mappings.map_or(usize::MAX, |mappings| left(mappings, own)) }
    }

    /// Whether one more may be mapped beside `mapped`; where not, the log says so.
    pub(crate) fn allows_one_more(self, mapped: usize, domid: u16) -> bool {
        let allowed = mapped < self.most;
        if !allowed {
            let most = self.most;
            warn!(domid, mapped, most, "no more rings can be mapped beside the others; vm.max_map_count limits them");
        }
        allowed
    }
}

/// Mappings that are left for rings.
fn left(mappings: usize, own: usize) -> usize {
    mappings.saturating_sub(own).saturating_sub(LEAST.max(mappings / SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::as_linux_has_it(65_530, 100, 49_048)]
    #[case::few(1000, 50, 694)]
    #[case::fewer_than_the_rest_needs(256, 50, 0)]
    #[case::none(0, 50, 0)]
    fn some_mappings_are_left_to_the_rest(#[case] mappings: usize, #[case] own: usize, #[case] rings: usize) {
        assert_eq!(left(mappings, own), rings);
    }

    #[test]
    fn every_domain_fits_where_linux_is_as_it_comes() {
        assert!(left(65_530, 200) > usize::from(xenstore_core::DomId::FIRST_RESERVED.0));
    }

    #[test]
    fn at_the_limit_there_is_no_more() {
        let limit = RingLimit { most: 2 };
        assert!(limit.allows_one_more(1, 7));
        assert!(!limit.allows_one_more(2, 7));
    }
}
