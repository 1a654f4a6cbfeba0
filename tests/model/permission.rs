//! Who may do what with a node.

use crate::choice::DOMID_ANY;
use xenstore_wire::{XsError, payload};

/// Reading a node.
pub(crate) const READ: u8 = 1;
/// Writing a node, and making and removing nodes below it.
pub(crate) const WRITE: u8 = 2;
/// Changing a node's permissions.
pub(crate) const OWNER: u8 = 4;

/// One entry of a permission list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// `n`, `r`, `w` or `b`.
    pub(crate) letter: u8,
    /// The domain it is about.
    pub(crate) domid: u16,
    /// Set for a domain that did not exist when the list was set: shown, never matched.
    pub(crate) ignored: bool,
}

impl Permission {
    /// An entry that counts.
    pub(crate) fn new(letter: u8, domid: u16) -> Self {
        Self { letter, domid, ignored: false }
    }

    /// Reads an entry off the wire: a letter and a decimal domain id.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub(crate) fn parse(string: &[u8]) -> Result<Self, XsError> {
        match string.split_first() {
            Some((&letter, number)) if b"nrwb".contains(&letter) => Ok(Self::new(letter, payload::number(number)?)),
            _ => Err(XsError::Inval),
        }
    }

    fn access(self) -> u8 {
        match self.letter {
            b'r' => READ,
            b'w' => WRITE,
            b'b' => READ | WRITE,
            _ => 0,
        }
    }
}

/// The list as the wire shows it.
pub(crate) fn show(permissions: &[Permission]) -> Vec<u8> {
    permissions.iter().flat_map(|entry| format!("{}{}\0", char::from(entry.letter), entry.domid).into_bytes()).collect()
}

/// Whose rights count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its domain.
    pub(crate) domid: u16,
    /// May do everything, and no quota holds for it.
    pub(crate) privileged: bool,
    /// The domain whose rights it has besides its own.
    pub(crate) target: Option<u16>,
}

impl Caller {
    fn is(&self, domid: u16) -> bool {
        domid == self.domid || Some(domid) == self.target
    }

    /// All that the caller may do with a node that has these permissions.
    pub(crate) fn access(&self, permissions: &[Permission]) -> u8 {
        let owner = permissions[0];
        if self.privileged || self.is(owner.domid) {
            return READ | WRITE | OWNER;
        }
        let own = permissions[1..]
            .iter()
            .filter(|entry| !entry.ignored)
            .find(|entry| self.is(entry.domid) || entry.domid == DOMID_ANY);
        own.unwrap_or(&owner).access()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn list(entries: &str) -> Vec<Permission> {
        entries.split(' ').map(|entry| Permission::parse(entry.as_bytes()).unwrap()).collect()
    }

    #[rstest]
    #[case::owner("n3 r4", 7)]
    #[case::default_letter("r4 n5", READ)]
    #[case::own_entry_over_default("b4 n3", 0)]
    #[case::first_entry_wins("n4 r3 b3", READ)]
    #[case::all_domains("n4 r32757", READ)]
    #[case::all_domains_hides_a_later_entry("n4 r32757 b3", READ)]
    #[case::own_entry_before_all_domains("n4 n3 b32757", 0)]
    fn access_of_domain_3(#[case] entries: &str, #[case] want: u8) {
        let caller = Caller { domid: 3, privileged: false, target: None };
        assert_eq!(caller.access(&list(entries)), want);
    }

    #[test]
    fn a_target_adds_its_rights() {
        let caller = Caller { domid: 6, privileged: false, target: Some(5) };
        assert_eq!(caller.access(&list("n5")), READ | WRITE | OWNER);
        assert_eq!(caller.access(&list("n4 r5")), READ);
    }

    #[test]
    fn an_ignored_entry_never_matches() {
        let mut entries = list("n4 b3 r3");
        entries[1].ignored = true;
        let caller = Caller { domid: 3, privileged: false, target: None };
        assert_eq!(caller.access(&entries), READ);
        assert_eq!(show(&entries), b"n4\0b3\0r3\0");
    }

    #[test]
    fn only_decimal_domain_ids_are_taken() {
        for bad in ["", "r", "x0", "r-1", "r65536", "r0x10", "rabc", "r 1", "R1"] {
            assert_eq!(Permission::parse(bad.as_bytes()), Err(XsError::Inval), "{bad}");
        }
        assert_eq!(Permission::parse(b"b007"), Ok(Permission::new(b'b', 7)));
    }
}
