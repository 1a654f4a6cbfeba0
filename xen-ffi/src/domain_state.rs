//! The state of domains: which exist, and what has become of them.
//!
//! Two libraries know. libxenmanage (Xen 4.21 and newer) is stable, so it is linked where it is installed at build time;
//! it names the domains that changed. Before it there is only libxenctrl, whose ABI belongs to one version of Xen: it is
//! opened at run time, in the version of the hypervisor that runs, and changes are found by looking at every domain.

use std::collections::BTreeMap;

use crate::{error::Error, id::DomId};

mod control;
mod library;
#[cfg(xenmanage)]
mod manage;

pub use control::Control;
#[cfg(xenmanage)]
pub use manage::Manage;

/// How much of a domain is left. A domain goes through these in order, and may skip some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// It exists, running or not.
    Alive,
    /// It is being torn down. libxenctrl never tells: there it is alive until it is dead.
    Dying,
    /// Nothing of it will run again. Others may still hold some of its memory.
    Dead,
    /// There is no such domain.
    Gone,
}

/// What tells a domain from another that has or had the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueId {
    /// The hypervisor's own: no two domains of one boot share it.
    Hypervisor(u64),
    /// Made from the handle (uuid) that the toolstack gave. A toolstack may change a domain's handle, and does when it
    /// preserves a crashed domain, so another id is a hint that the domain is another, and no proof.
    Handle(u64),
}

impl UniqueId {
    /// The number alone, never 0.
    #[must_use]
    pub fn value(self) -> u64 {
        match self {
            Self::Hypervisor(id) | Self::Handle(id) => id,
        }
    }

    /// A number for a handle: the same for the same handle, wherever it is computed (64-bit FNV-1a).
    fn of_handle(handle: [u8; 16]) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = handle.into_iter().fold(0xcbf2_9ce4_8422_2325, mix);
        Self::Handle(hash.max(1))
    }
}

/// What is known of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainState {
    /// Its number.
    pub domid: DomId,
    /// How much of it is left.
    pub life: Life,
    /// Its operating system has shut down, crashed or suspended itself.
    pub shutdown: bool,
    /// What tells it from others of the same number; `None` if it is gone and that is not known any more.
    pub unique_id: Option<UniqueId>,
}

/// The source of domain states that this host has.
#[derive(Debug)]
pub enum DomainStates {
    /// libxenmanage.
    #[cfg(xenmanage)]
    Manage(Manage),
    /// libxenctrl, opened at run time.
    Control(Control),
}

impl DomainStates {
    /// Opens what this host has: libxenmanage if it is linked and the hypervisor knows its question, else libxenctrl.
    ///
    /// # Errors
    /// That of libxenctrl: without an errno if no library fits the hypervisor, otherwise what opening it left.
    pub fn open() -> Result<Self, Error> {
        #[cfg(xenmanage)]
        if let Some(manage) = Manage::open()? {
            return Ok(Self::Manage(manage));
        }
        Control::open().map(Self::Control)
    }

    /// Asks for one domain. A number that names none is [`Life::Gone`].
    ///
    /// # Errors
    /// `EPERM` or `EACCES` without the right to ask.
    pub fn get(&self, domid: DomId) -> Result<DomainState, Error> {
        match self {
            #[cfg(xenmanage)]
            Self::Manage(manage) => manage.get(domid),
            Self::Control(control) => control.get(domid),
        }
    }

    /// Every domain whose state changed since this was last asked, those that are gone included. The first answer, and
    /// with libxenmanage the first after [`Virq::DOMAIN_STATE`](crate::event_channel::Virq::DOMAIN_STATE) was bound, has
    /// all that exist. In order of their numbers, each once.
    ///
    /// # Errors
    /// `EACCES` with libxenmanage if this domain did not bind that signal; `EPERM` without the right to ask. What was
    /// found before a failure is told by the next answer.
    pub fn changes(&mut self) -> Result<Vec<DomainState>, Error> {
        match self {
            #[cfg(xenmanage)]
            Self::Manage(manage) => manage.changes(),
            Self::Control(control) => control.changes(),
        }
    }

    /// What the last [`DomainStates::changes`] saw of a domain, changed or not; `None` where that looks at changes only
    /// (libxenmanage). Asks nobody.
    #[must_use]
    pub fn seen(&self, domid: DomId) -> Option<DomainState> {
        match self {
            #[cfg(xenmanage)]
            Self::Manage(_) => None,
            Self::Control(control) => Some(control.seen(domid)),
        }
    }
}

/// The state of a domain that is not there.
fn gone(domid: DomId) -> DomainState {
    DomainState { domid, life: Life::Gone, shutdown: false, unique_id: None }
}

/// Makes `known` what is there `now`, and tells the differences in order.
fn differences(known: &mut BTreeMap<DomId, DomainState>, now: BTreeMap<DomId, DomainState>) -> Vec<DomainState> {
    let before = std::mem::replace(known, now);
    let vanished = before
        .values()
        .filter(|state| !known.contains_key(&state.domid))
        .map(|state| DomainState { life: Life::Gone, ..*state });
    let changed = known.values().filter(|state| before.get(&state.domid) != Some(*state)).copied();
    let mut differences: Vec<_> = vanished.chain(changed).collect();
    differences.sort_by_key(|state| state.domid);
    differences
}

#[cfg(test)]
mod tests;
