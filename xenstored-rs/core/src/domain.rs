//! Domains: which exist, which are introduced, and what each may use.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    id::{ConnId, DomId},
    quota::{Limit, Limits, OwnLimits, QUOTAS, Quota, within},
};

/// Feature bits that a domain may be offered (`XENSTORE_SERVER_FEATURE_*` of `xs_wire.h`).
pub mod feature {
    /// The ring can be started afresh.
    pub const RECONNECTION: u32 = 1;
    /// The ring tells of errors.
    pub const ERROR: u32 = 2;
    /// WATCH takes a depth.
    pub const WATCH_DEPTH: u32 = 4;
    /// A permission entry may name every domain.
    pub const ANY_DOMAIN: u32 = 8;
    /// What this engine offers.
    pub const OFFERED: u32 = RECONNECTION | ERROR | WATCH_DEPTH | ANY_DOMAIN;
}

/// Which domains count as existing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existence {
    /// Every id that can name a domain: no hypervisor is there to ask.
    #[default]
    Assumed,
    /// Those that [`crate::DomainEvent::Appeared`] told of.
    Told,
    /// As told; a domain that nothing was told of is asked for with [`crate::Question::Exist`].
    Asked,
}

/// What is known of one domain.
#[derive(Debug)]
pub(crate) struct Domain {
    /// The domain is there, as far as it was told.
    pub(crate) exists: bool,
    /// Its ring is in use.
    pub(crate) introduced: bool,
    pub(crate) connection: Option<ConnId>,
    /// Feature bits that it is offered.
    pub(crate) features: u32,
    /// The domain whose rights it has beside its own.
    pub(crate) target: Option<DomId>,
    /// Its shutdown was reported and it has not resumed since.
    pub(crate) shutdown_reported: bool,
    pub(crate) limits: OwnLimits,
    /// It was reported to hold more memory than its soft limit.
    pub(crate) over_soft_memory: bool,
    /// Most ever seen of what each quota counts.
    pub(crate) peak: [u64; QUOTAS],
}

impl Domain {
    fn new() -> Self {
        Self {
            exists: false,
            introduced: false,
            connection: None,
            features: feature::OFFERED,
            target: None,
            shutdown_reported: false,
            limits: OwnLimits::default(),
            over_soft_memory: false,
            peak: [0; QUOTAS],
        }
    }
}

/// All domains that anything is known of.
#[derive(Debug)]
pub(crate) struct Domains {
    known: BTreeMap<DomId, Domain>,
    existence: Existence,
    /// The domain of the store itself, which is always there.
    store_domid: DomId,
    /// Domains that were asked for and do not exist, for as long as the request that asked is served.
    pub(crate) absent: Vec<DomId>,
    /// Domains whose rings the shell is about to map.
    pub(crate) introducing: BTreeSet<DomId>,
    /// Limits of domains without limits of their own.
    pub(crate) limits: Limits,
    /// Most ever seen at any unprivileged domain of what each quota counts.
    pub(crate) peak: [u64; QUOTAS],
}

impl Domains {
    pub(crate) fn new(existence: Existence, store_domid: DomId, limits: Limits) -> Self {
        Self {
            known: BTreeMap::new(),
            existence,
            store_domid,
            absent: Vec::new(),
            introducing: BTreeSet::new(),
            limits,
            peak: [0; QUOTAS],
        }
    }

    /// What is known of a domain, if anything.
    pub(crate) fn get(&self, domid: DomId) -> Option<&Domain> {
        self.known.get(&domid)
    }

    /// As [`Domains::get`], to be changed.
    pub(crate) fn get_mut(&mut self, domid: DomId) -> Option<&mut Domain> {
        self.known.get_mut(&domid)
    }

    /// What is known of a domain, kept from now on even where that is nothing.
    pub(crate) fn entry(&mut self, domid: DomId) -> &mut Domain {
        self.known.entry(domid).or_insert_with(Domain::new)
    }

    /// Forgets all about a domain: another with its id starts afresh. One that is still there is only no longer
    /// introduced.
    pub(crate) fn forget(&mut self, domid: DomId, still_there: bool) -> Option<Domain> {
        let forgotten = self.known.remove(&domid)?;
        if still_there && forgotten.exists {
            self.entry(domid).exists = true;
        }
        Some(forgotten)
    }

    /// Whether there is such a domain.
    pub(crate) fn exists(&self, domid: DomId) -> bool {
        domid == self.store_domid
            || match self.existence {
                Existence::Assumed => domid.is_ordinary(),
                Existence::Told | Existence::Asked => {
                    self.get(domid).is_some_and(|domain| domain.exists || domain.introduced)
                }
            }
    }

    /// Whether it is to be asked for whether there is such a domain.
    pub(crate) fn is_unsure(&self, domid: DomId) -> bool {
        self.existence == Existence::Asked
            && domid.is_ordinary()
            && !self.exists(domid)
            && !self.absent.contains(&domid)
    }

    /// Whether the domain is introduced; the store's own always is.
    pub(crate) fn is_introduced(&self, domid: DomId) -> bool {
        domid == self.store_domid || self.get(domid).is_some_and(|domain| domain.introduced)
    }

    /// The domain whose rights this one has beside its own, while that one is introduced.
    pub(crate) fn target(&self, domid: DomId) -> Option<DomId> {
        self.get(domid)?.target.filter(|&target| self.is_introduced(target))
    }

    /// Feature bits offered to a domain.
    pub(crate) fn features(&self, domid: DomId) -> u32 {
        self.get(domid).map_or(feature::OFFERED, |domain| domain.features)
    }

    /// The hard limit of a domain; 0 is none.
    pub(crate) fn limit(&self, domid: DomId, quota: Quota) -> u32 {
        let limit = Limit::Hard(quota);
        self.get(domid).map_or_else(|| self.limits.get(limit), |domain| domain.limits.get(limit, &self.limits))
    }

    /// Notes what memory a domain holds; where that crosses its soft limit, tells the limit and whether it is over it.
    pub(crate) fn crosses_soft_memory(&mut self, domid: DomId, bytes: u64) -> Option<(u32, bool)> {
        let domain = self.known.get_mut(&domid)?;
        let limit = domain.limits.get(Limit::SoftMemory, &self.limits);
        let over = !within(limit, bytes);
        let crosses = over != domain.over_soft_memory;
        domain.over_soft_memory = over;
        crosses.then_some((limit, over))
    }

    /// Notes how much of a quota a domain uses, for the highest values seen.
    pub(crate) fn note(&mut self, domid: DomId, quota: Quota, used: u64) {
        let at = quota.index();
        if let Some(domain) = self.known.get_mut(&domid) {
            domain.peak[at] = domain.peak[at].max(used);
        }
        self.peak[at] = self.peak[at].max(used);
    }

    /// Every domain that anything is known of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DomId, &Domain)> {
        self.known.iter().map(|(domid, domain)| (*domid, domain))
    }

    /// As [`Domains::iter`], to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (DomId, &mut Domain)> {
        self.known.iter_mut().map(|(domid, domain)| (*domid, domain))
    }
}

mod image;
