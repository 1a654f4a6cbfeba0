//! What a transaction may rely on at a path.

/// What was relied on, each a bit. It is checked against the store as it is at the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relied(u8);

impl Relied {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self(0);
    /// The node is there, or is not.
    pub(crate) const EXISTENCE: Self = Self(1);
    /// Its value and permissions.
    pub(crate) const CONTENT: Self = Self(1 | 2);
    /// Its permissions.
    pub(crate) const PERMISSIONS: Self = Self(1 | 4);
    /// The names of its children.
    pub(crate) const LIST: Self = Self(1 | 8);
    /// All of it and all below.
    pub(crate) const SUBTREE: Self = Self(1 | 16);

    /// All that there is.
    const ALL: u8 = 31;

    /// As a number of eight bits.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// From such a number.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Some(Self(bits)).filter(|_| bits <= Self::ALL)
    }

    /// Whether all of `other` is relied on.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without what only `other` says; existence stays.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !(other.0 & !Self::EXISTENCE.0))
    }

    /// Whether another node at the same path would not do.
    pub(crate) const fn needs_the_node(self) -> bool {
        self.has(Self::CONTENT) || self.has(Self::LIST) || self.has(Self::SUBTREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existence_goes_with_everything() {
        let both = Relied::CONTENT.with(Relied::PERMISSIONS);
        assert!(both.has(Relied::EXISTENCE) && both.has(Relied::CONTENT) && both.has(Relied::PERMISSIONS));
        assert_eq!(both.without(Relied::CONTENT), Relied::PERMISSIONS);
        assert_eq!(Relied::CONTENT.without(Relied::CONTENT), Relied::EXISTENCE);
        assert!(!Relied::PERMISSIONS.needs_the_node() && Relied::LIST.needs_the_node());
    }
}
