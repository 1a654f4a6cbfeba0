//! The numbers of the hypervisor: domains, event channel ports, grant references.

use core::fmt;

/// A domain's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomId(pub u16);

impl DomId {
    /// First number that never names a domain (`DOMID_FIRST_RESERVED`).
    pub const FIRST_RESERVED: Self = Self(0x7ff0);
}

impl fmt::Display for DomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<DomId> for u32 {
    fn from(domid: DomId) -> Self {
        domid.0.into()
    }
}

/// An event channel's number within one domain. The hypervisor gives numbers of at most 31 bits, 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub u32);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry of a domain's grant table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantRef(pub u32);

impl GrantRef {
    /// The entry by which every domain grants its xenstore ring (`GNTTAB_RESERVED_XENSTORE`).
    pub const XENSTORE: Self = Self(xen_sys::GNTTAB_RESERVED_XENSTORE);
}

impl fmt::Display for GrantRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
