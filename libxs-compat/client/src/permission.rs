//! Permissions of nodes.

use crate::error::Error;
use std::fmt;
use xenstore_wire::payload;

/// What a domain may do with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing.
    None,
    /// Read its value, children and permissions.
    Read,
    /// Write its value, make and remove children.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// The letter of the protocol.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::None => 'n',
            Self::Read => 'r',
            Self::Write => 'w',
            Self::Both => 'b',
        }
    }
}

/// One entry of a node's permissions (`docs/misc/xenstore.txt`, "Permissions").
///
/// In front of a list it names the owner, who may do all, and what domains without an entry may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permission {
    /// The domain.
    pub domain: u16,
    /// What it may do.
    pub access: Access,
}

impl Permission {
    /// The entry for `domain`.
    #[must_use]
    pub fn new(domain: u16, access: Access) -> Self {
        Self { domain, access }
    }

    /// Reads an entry as the protocol writes it: a letter and a decimal number.
    ///
    /// # Errors
    /// [`Error::Malformed`] for anything else.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let malformed = Error::Malformed("a permission");
        let Some((letter, domain)) = text.split_first() else { return Err(malformed) };
        let access = match letter {
            b'n' => Access::None,
            b'r' => Access::Read,
            b'w' => Access::Write,
            b'b' => Access::Both,
            _ => return Err(malformed),
        };
        payload::number(domain).map(|domain| Self { domain, access }).map_err(|_| malformed)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.access.letter(), self.domain)
    }
}

/// The entries of a reply to `GET_PERMS`.
pub(crate) fn parse_list(list: &[u8]) -> Result<Vec<Permission>, Error> {
    payload::strings(list).map(Permission::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none("n0", Permission::new(0, Access::None))]
    #[case::read("r1", Permission::new(1, Access::Read))]
    #[case::write("w32757", Permission::new(32757, Access::Write))]
    #[case::both("b65535", Permission::new(65535, Access::Both))]
    fn entries_survive_their_text(#[case] text: &str, #[case] entry: Permission) {
        assert_eq!(Permission::parse(text.as_bytes()), Ok(entry));
        assert_eq!(entry.to_string(), text);
    }

    #[rstest]
    fn other_texts_are_no_entries(#[values("", "n", "x1", "r-1", "r65536", "r1 ", "r0x1", "1")] text: &str) {
        assert_eq!(Permission::parse(text.as_bytes()), Err(Error::Malformed("a permission")));
    }
}
