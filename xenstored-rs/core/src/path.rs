//! Paths: syntax, relative names, lengths.
//!
//! A node's path is absolute and canonical inside the engine: it starts with `/`, has no empty component and no
//! slash at its end, and holds only the bytes that `docs/misc/xenstore.txt` ("Paths") allows.

use std::borrow::Cow;

use xenstore_wire::XsError;

use crate::{decimal, id::DomId};

/// Class of a byte that no path may have.
const FORBIDDEN: u8 = 1;

/// Class of `/`.
const SLASH: u8 = 2;

/// Class of every byte: letters, digits, `-`, `_` and `@` make names and have class 0, `/` separates them.
const CLASSES: [u8; 256] = {
    let mut classes = [FORBIDDEN; 256];
    let names = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_@";
    let mut at = 0;
    while at < names.len() {
        classes[names[at] as usize] = 0;
        at += 1;
    }
    classes[b'/' as usize] = SLASH;
    classes
};

/// What all homes begin with.
const HOMES: &[u8] = b"/local/domain/";

/// Most digits of a domain id.
const DOMID_DIGITS: usize = 5;

/// Prefix that a relative path of a domain stands behind.
#[must_use]
pub(crate) fn home(domid: DomId) -> Vec<u8> {
    home_with_room(domid, 0)
}

/// As [`home`], with room for so many bytes behind it.
fn home_with_room(domid: DomId, room: usize) -> Vec<u8> {
    let mut home = Vec::with_capacity(HOMES.len() + DOMID_DIGITS + room);
    home.extend_from_slice(HOMES);
    decimal::put(&mut home, domid.0.into());
    home
}

/// A well-formed canonical path of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a>(Cow<'a, [u8]>);

impl<'a> Path<'a> {
    /// Reads a path as the caller names it; one without a leading slash stands in `caller`'s home.
    ///
    /// # Errors
    /// `EINVAL` for an ill-formed path and for a special name (`@…`).
    pub(crate) fn parse(raw: &'a [u8], caller: DomId) -> Result<Self, XsError> {
        match raw.first() {
            Some(b'/') => {
                if raw.len() > 1 {
                    check_names(&raw[1..])?;
                }
                Ok(Self(Cow::Borrowed(raw)))
            }
            Some(b'@') | None => Err(XsError::Inval),
            Some(_) => {
                check_names(raw)?;
                let mut whole = home_with_room(caller, 1 + raw.len());
                whole.push(b'/');
                whole.extend_from_slice(raw);
                Ok(Self(Cow::Owned(whole)))
            }
        }
    }

    /// The whole path.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Names of a canonical path, from the root down.
pub(crate) fn names(path: &[u8]) -> Names<'_> {
    Names { rest: path.get(1..).unwrap_or_default() }
}

/// Iterator over the names of a path.
#[derive(Clone, Debug)]
pub(crate) struct Names<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'/');
        let (name, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(name)
    }
}

/// The path above a canonical path; the root's is the root.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) if slash > 0 => &path[..slash],
        _ => b"/",
    }
}

/// The last name of a canonical path; empty for the root.
pub(crate) fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Appends a name to a canonical path that is being built.
pub(crate) fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Bytes of a path that its quota counts: those behind `/local/domain/<domid>/`, else all of it, so that a path does
/// not become unreachable where its domain gets a longer id.
pub(crate) fn counted_len(path: &[u8]) -> usize {
    let Some(rest) = path.strip_prefix(HOMES) else { return path.len() };
    match rest.iter().position(|byte| !byte.is_ascii_digit()) {
        Some(digits @ 1..=DOMID_DIGITS) if rest[digits] == b'/' => rest.len() - digits - 1,
        _ => path.len(),
    }
}

/// Checks names separated by single slashes. Nothing branches on the way: most paths are right.
fn check_names(names: &[u8]) -> Result<(), XsError> {
    let (mut wrong, mut last) = (0, SLASH);
    for &byte in names {
        let class = CLASSES[usize::from(byte)];
        wrong |= (class & FORBIDDEN) | (class & last);
        last = class;
    }
    if wrong | (last & SLASH) == 0 { Ok(()) } else { Err(XsError::Inval) }
}

/// The path of a watch: a node's, or a special name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchPath<'a> {
    /// A node, whether it exists or not.
    Node(Path<'a>),
    /// `@…`: an event that is no node. `@introduceDomain` and `@releaseDomain`, alone or with `/<domid>`, fire.
    Special(&'a [u8]),
}

impl<'a> WatchPath<'a> {
    /// Reads the path of a watch.
    ///
    /// # Errors
    /// `EINVAL` where it is ill-formed.
    pub(crate) fn parse(raw: &'a [u8], caller: DomId) -> Result<Self, XsError> {
        if raw.first() == Some(&b'@') {
            check_names(raw)?;
            return Ok(Self::Special(raw));
        }
        Path::parse(raw, caller).map(Self::Node)
    }

    /// The canonical name, unique among all watch paths.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Node(path) => path.as_bytes(),
            Self::Special(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::root(b"/")]
    #[case::one(b"/a")]
    #[case::deep(b"/a/b/c")]
    #[case::at_sign_inside(b"/a@b")]
    #[case::all_bytes(b"/AZaz09-_@")]
    fn absolute_paths_stay_as_they_are(#[case] raw: &[u8]) {
        assert_eq!(Path::parse(raw, DomId(7)).unwrap().as_bytes(), raw);
    }

    #[rstest]
    #[case::empty(b"")]
    #[case::double_slash(b"//")]
    #[case::leading_double(b"//a")]
    #[case::inner_double(b"/a//b")]
    #[case::trailing(b"/a/")]
    #[case::home_trailing(b"/local/domain/")]
    #[case::blank(b"/a b")]
    #[case::dot(b"/a.b")]
    #[case::colon(b"/a:b")]
    #[case::not_ascii(b"/a\xff")]
    #[case::nul(b"/a\0")]
    #[case::special(b"@introduceDomain")]
    #[case::relative_trailing(b"a/")]
    fn ill_formed_paths_are_refused(#[case] raw: &[u8]) {
        assert_eq!(Path::parse(raw, DomId(7)), Err(XsError::Inval));
    }

    #[test]
    fn relative_paths_stand_in_the_callers_home() {
        assert_eq!(Path::parse(b"device/vif", DomId(7)).unwrap().as_bytes(), b"/local/domain/7/device/vif");
    }

    #[test]
    fn names_go_from_the_root_down() {
        assert_eq!(names(b"/a/bc/d").collect::<Vec<_>>(), [&b"a"[..], b"bc", b"d"]);
        assert_eq!(names(b"/").count(), 0);
    }

    #[test]
    fn parents_end_at_the_root() {
        assert_eq!(parent(b"/a/b"), b"/a");
        assert_eq!(parent(b"/a"), b"/");
        assert_eq!(parent(b"/"), b"/");
    }

    #[rstest]
    #[case::outside(b"/a/b", 4)]
    #[case::home_itself(b"/local/domain/1", 15)]
    #[case::inside(b"/local/domain/1/abc", 3)]
    #[case::long_id(b"/local/domain/12345/abc", 3)]
    #[case::too_long_id(b"/local/domain/123456/abc", 24)]
    #[case::no_number(b"/local/domain/x/abc", 19)]
    fn lengths_count_what_follows_the_home(#[case] path: &[u8], #[case] want: usize) {
        assert_eq!(counted_len(path), want);
    }

    #[test]
    fn special_names_are_watchable() {
        assert_eq!(WatchPath::parse(b"@any/5", DomId::DOM0), Ok(WatchPath::Special(b"@any/5")));
        assert_eq!(WatchPath::parse(b"@any/", DomId::DOM0), Err(XsError::Inval));
    }
}
