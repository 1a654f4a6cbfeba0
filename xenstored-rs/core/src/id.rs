//! The numbers that name things.

/// A domain id as the wire carries it, 0..=65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomId(pub u16);

impl DomId {
    /// The control domain of an ordinary host.
    pub const DOM0: Self = Self(0);

    /// First id that never names a domain (`DOMID_FIRST_RESERVED`, also `DOMID_SELF`).
    pub const FIRST_RESERVED: Self = Self(0x7ff0);

    /// In a permission: every domain (`DOMID_ANY`).
    pub const ANY: Self = Self(0x7ff5);

    /// Whether a domain can have this id.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        self < Self::FIRST_RESERVED
    }
}

impl core::fmt::Display for DomId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection of the engine, from its opening to its close; numbers of closed connections are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) u32);

impl ConnId {
    /// A small number, unique among open connections.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The connection's number, by which a record of it names it.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The connection of a number that [`ConnId::number`] told.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl core::fmt::Display for ConnId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a transaction, unique on its connection, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxId(pub(crate) u32);

impl core::fmt::Display for TxId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Monotonic time since the daemon's start, as the shell reads it; the engine has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub core::time::Duration);
