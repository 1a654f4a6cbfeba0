//! Names of nodes and of watches.

use xenstore_wire::XsError;

/// Where a relative path begins.
pub(crate) fn home(domid: u16) -> Vec<u8> {
    format!("/local/domain/{domid}/").into_bytes()
}

/// Whether the name is one of those that no node bears: `@introduceDomain` and the like.
pub(crate) fn is_special(path: &[u8]) -> bool {
    path.first() == Some(&b'@')
}

/// The absolute path that a caller means.
///
/// # Errors
/// `EINVAL` for an ill-formed path, or one of more than `most` bytes behind `/local/domain/<domid>/`.
pub(crate) fn canonical(path: &[u8], domid: u16, most: usize) -> Result<Vec<u8>, XsError> {
    let full = match path.first() {
        None => return Err(XsError::Inval),
        Some(b'/' | b'@') => path.to_vec(),
        Some(_) => [home(domid).as_slice(), path].concat(),
    };
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-/_@".contains(byte);
    let well_formed = full.iter().all(allowed)
        && (full == b"/" || full.last() != Some(&b'/'))
        && !full.windows(2).any(|pair| pair == b"//");
    if well_formed && counted_len(&full) <= most { Ok(full) } else { Err(XsError::Inval) }
}

/// Bytes that the path quota counts: those behind `/local/domain/<domid>/`, else all.
fn counted_len(path: &[u8]) -> usize {
    let behind = path.strip_prefix(b"/local/domain/").and_then(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        ((1..=5).contains(&digits)).then(|| rest[digits..].strip_prefix(b"/")).flatten()
    });
    behind.unwrap_or(path).len()
}

/// The path one level up; the root and the special nodes have none.
pub(crate) fn parent(path: &[u8]) -> Option<&[u8]> {
    if path == b"/" || is_special(path) {
        return None;
    }
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => Some(b"/"),
        Some(slash) => Some(&path[..slash]),
        None => None,
    }
}

/// The last part of a path.
pub(crate) fn leaf(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// How many levels `path` lies below `ancestor`: 0 for the same path, nothing when it does not lie there.
pub(crate) fn levels_below(path: &[u8], ancestor: &[u8]) -> Option<usize> {
    let mut here = path;
    let mut levels = 0;
    while here != ancestor {
        here = parent(here)?;
        levels += 1;
    }
    Some(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_judged_by_their_bytes() {
        for good in ["/", "/a", "/a@b/-_", "a/b", "@x", "@releaseDomain/7"] {
            assert!(canonical(good.as_bytes(), 3, 2048).is_ok(), "{good}");
        }
        for bad in ["", "//", "/a/", "/a//b", "/a b", "/a.b", "a/", "/local/domain/"] {
            assert_eq!(canonical(bad.as_bytes(), 3, 2048), Err(XsError::Inval), "{bad}");
        }
        assert_eq!(canonical(b"data", 3, 4), Ok(b"/local/domain/3/data".to_vec()));
        assert_eq!(canonical(b"data", 12345, 3), Err(XsError::Inval));
    }

    #[test]
    fn only_what_follows_the_home_counts() {
        for (path, len) in [("/local/domain/7/abc", 3), ("/local/domain/7", 15), ("/a", 2), ("/local/domain/x/a", 17)] {
            assert_eq!(counted_len(path.as_bytes()), len, "{path}");
        }
    }

    #[test]
    fn levels_are_counted_from_the_ancestor() {
        assert_eq!(levels_below(b"/a/b/c", b"/a"), Some(2));
        assert_eq!(levels_below(b"/a", b"/"), Some(1));
        assert_eq!(levels_below(b"/", b"/"), Some(0));
        assert_eq!(levels_below(b"/ab", b"/a"), None);
        assert_eq!(levels_below(b"@x", b"/"), None);
    }
}
