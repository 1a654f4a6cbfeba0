//! Who may read and write a node.

use std::rc::Rc;

use xenstore_wire::{XsError, payload};

use crate::id::DomId;

/// What a domain may do with a node: the letters `n`, `r`, `w` and `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// `n`: nothing.
    None,
    /// `r`: read.
    Read,
    /// `w`: write.
    Write,
    /// `b`: read and write.
    Both,
}

impl Access {
    /// The letter on the wire.
    #[must_use]
    pub fn letter(self) -> u8 {
        match self {
            Self::None => b'n',
            Self::Read => b'r',
            Self::Write => b'w',
            Self::Both => b'b',
        }
    }

    /// The access that a letter means.
    #[must_use]
    pub fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'n' => Some(Self::None),
            b'r' => Some(Self::Read),
            b'w' => Some(Self::Write),
            b'b' => Some(Self::Both),
            _ => None,
        }
    }

    /// Whether this allows what `wanted` asks for.
    #[must_use]
    pub fn allows(self, wanted: Self) -> bool {
        self == Self::Both || wanted == Self::None || self == wanted
    }
}

/// One entry of a node's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Permission {
    /// The domain it speaks of.
    pub domid: DomId,
    /// What that domain may do; in the first entry, what every domain may do that is not named.
    pub access: Access,
    /// Set where the domain did not exist when the entry was made: shown, but never matching.
    pub ignored: bool,
}

impl Permission {
    /// Reads an entry: a letter and a decimal domain id.
    ///
    /// # Errors
    /// `EINVAL` for an unknown letter or an id that is not decimal or over 65535.
    pub fn parse(text: &[u8]) -> Result<Self, XsError> {
        let (&letter, digits) = text.split_first().ok_or(XsError::Inval)?;
        let access = Access::from_letter(letter).ok_or(XsError::Inval)?;
        Ok(Self { domid: DomId(payload::number(digits)?), access, ignored: false })
    }
}

/// A node's permissions: the owner's entry and those of others. Shared between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Permissions {
    entries: Rc<Entries>,
}

/// The owner stands apart: most nodes have no other entry.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Entries {
    owner: Permission,
    others: Box<[Permission]>,
}

impl Permissions {
    /// Permissions with an owner and further entries.
    #[must_use]
    pub fn new(owner: Permission, others: Vec<Permission>) -> Self {
        Self { entries: Rc::new(Entries { owner, others: others.into_boxed_slice() }) }
    }

    /// `n<domid>`: the owner may do everything, others nothing.
    #[must_use]
    pub fn private(domid: DomId) -> Self {
        Self::new(Permission { domid, access: Access::None, ignored: false }, Vec::new())
    }

    /// The domain that owns the node and may do everything with it.
    #[must_use]
    pub fn owner(&self) -> DomId {
        self.entries.owner.domid
    }

    /// The owner's entry.
    #[must_use]
    pub fn owner_entry(&self) -> Permission {
        self.entries.owner
    }

    /// All entries, the owner's first.
    pub fn iter(&self) -> impl Iterator<Item = &Permission> {
        std::iter::once(&self.entries.owner).chain(self.entries.others.iter())
    }

    /// Number of entries, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always an owner")]
    pub fn len(&self) -> usize {
        1 + self.entries.others.len()
    }

    /// The same entries with another owner.
    #[must_use]
    pub fn with_owner(&self, domid: DomId) -> Self {
        if self.owner() == domid {
            return self.clone();
        }
        let owner = Permission { domid, ignored: false, ..self.entries.owner };
        Self { entries: Rc::new(Entries { owner, others: self.entries.others.clone() }) }
    }

    /// These without every entry behind the first that names one of `gone`, or `None` when nothing names any.
    #[must_use]
    pub fn without(&self, gone: impl Fn(DomId) -> bool) -> Option<Self> {
        if !self.entries.others.iter().any(|entry| gone(entry.domid)) {
            return None;
        }
        let others = self.entries.others.iter().copied().filter(|entry| !gone(entry.domid)).collect();
        Some(Self::new(self.entries.owner, others))
    }

    /// What a domain, or a device model acting for `target` too, may do: the first entry that matches decides, else
    /// the owner's letter.
    #[must_use]
    pub fn access(&self, domid: DomId, target: Option<DomId>) -> Access {
        let is_caller = |id: DomId| id == domid || Some(id) == target;
        if is_caller(self.owner()) {
            return Access::Both;
        }
        self.entries
            .others
            .iter()
            .find(|entry| !entry.ignored && (is_caller(entry.domid) || entry.domid == DomId::ANY))
            .map_or(self.entries.owner.access, |entry| entry.access)
    }

    /// Appends the wire form: each entry with a NUL behind it.
    pub fn put(&self, out: &mut Vec<u8>) {
        for entry in self.iter() {
            out.push(entry.access.letter());
            crate::decimal::put(out, u64::from(entry.domid.0));
            out.push(0);
        }
    }
}

/// Keeps equal permissions in one place: nodes by the hundred thousand carry the same few lists.
#[derive(Debug)]
pub(crate) struct PermissionCache {
    slots: Box<[Option<Permissions>]>,
}

impl PermissionCache {
    /// Slots of the cache; a list falls out when another with the same slot comes.
    const SLOTS: usize = 256;

    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self { slots: vec![None; Self::SLOTS].into_boxed_slice() }
    }

    /// The shared form of `permissions`.
    pub(crate) fn shared(&mut self, permissions: Permissions) -> Permissions {
        let sum = permissions.iter().fold(0usize, |sum, entry| {
            sum.wrapping_mul(31) + usize::from(entry.domid.0) + usize::from(entry.access.letter())
        });
        let slot = &mut self.slots[sum % Self::SLOTS];
        match slot {
            Some(kept) if *kept == permissions => kept.clone(),
            _ => slot.insert(permissions).clone(),
        }
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn list(text: &str) -> Permissions {
        let mut entries = text.split(',').map(|entry| Permission::parse(entry.as_bytes()).unwrap());
        let owner = entries.next().unwrap();
        Permissions::new(owner, entries.collect())
    }

    #[rstest]
    #[case::owner("n3", 3, Access::Both)]
    #[case::default_letter("r3", 9, Access::Read)]
    #[case::named("n3,w9", 9, Access::Write)]
    #[case::first_match_wins("n3,r9,b9", 9, Access::Read)]
    #[case::named_less_than_default("b3,n9", 9, Access::None)]
    #[case::any_domain("n3,r32757", 9, Access::Read)]
    #[case::any_hides_what_follows("n3,r32757,b9", 9, Access::Read)]
    fn the_first_match_decides(#[case] text: &str, #[case] domid: u16, #[case] want: Access) {
        assert_eq!(list(text).access(DomId(domid), None), want);
    }

    #[test]
    fn a_target_lends_its_rights() {
        assert_eq!(list("n5").access(DomId(6), Some(DomId(5))), Access::Both);
        assert_eq!(list("n0,r5").access(DomId(6), Some(DomId(5))), Access::Read);
    }

    #[test]
    fn ignored_entries_never_match() {
        let entry = Permission { domid: DomId(9), access: Access::Both, ignored: true };
        let permissions = Permissions::new(Permission::parse(b"n0").unwrap(), vec![entry]);
        assert_eq!(permissions.access(DomId(9), None), Access::None);
        let mut out = Vec::new();
        permissions.put(&mut out);
        assert_eq!(out, b"n0\0b9\0");
    }

    #[rstest]
    #[case::letter(b"x0")]
    #[case::no_number(b"r")]
    #[case::text(b"rabc")]
    #[case::minus(b"r-1")]
    #[case::too_large(b"r65536")]
    #[case::hex(b"r0x10")]
    #[case::empty(b"")]
    fn malformed_entries_are_refused(#[case] text: &[u8]) {
        assert_eq!(Permission::parse(text), Err(XsError::Inval));
    }

    #[test]
    fn equal_lists_share_memory() {
        let mut cache = PermissionCache::new();
        let (one, two) = (cache.shared(list("n0,r5")), cache.shared(list("n0,r5")));
        assert!(Rc::ptr_eq(&one.entries, &two.entries));
        assert!(!Rc::ptr_eq(&cache.shared(list("n0,r6")).entries, &one.entries));
    }

    #[test]
    fn the_dead_lose_their_entries_but_owners_stay() {
        let left = list("n5,r5,r6").without(|domid| domid == DomId(5)).unwrap();
        assert_eq!(left, list("n5,r6"));
        assert_eq!(list("n5,r6").without(|domid| domid == DomId(5)), None);
    }
}
