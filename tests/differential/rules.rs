//! What our daemon may answer differently from C xenstored 4.17. Everything else must be equal, byte for byte.
//!
//! Each rule stands in `docs/divergence.md` under the same name, with its reason.

use xenstore_wire::{Op, REL_PATH_MAX, payload};
use xenstored_tests::Reply;

/// An allowed difference: its heading in `docs/divergence.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(pub(crate) &'static str);

/// Children are listed by name, not as they were made; generations count other things.
pub(crate) const SORTED_CHILDREN: Rule = Rule("Children are listed in byte order");
/// Features and quotas on the wire are newer than 4.17.
pub(crate) const NEWER_REQUESTS: Rule = Rule("Request types 23 to 26 are answered");
/// A watch may carry a depth.
pub(crate) const WATCH_DEPTH: Rule = Rule("WATCH takes a depth");
/// Numbers are decimal digits in range, nothing else.
pub(crate) const STRICT_NUMBERS: Rule = Rule("Numbers are strictly decimal");
/// A malformed payload is EINVAL, not whatever failed last.
pub(crate) const OWN_ERRORS: Rule = Rule("An error is the request's own");
/// The longest path of a privileged caller is what fits a message.
pub(crate) const LONG_PATHS: Rule = Rule("Absolute paths may be as long as a message");
/// The special nodes' permissions are readable.
pub(crate) const SPECIAL_PERMISSIONS: Rule = Rule("GET_PERMS takes special nodes");
/// SET_TARGET takes two strings.
pub(crate) const EXTRA_STRINGS: Rule = Rule("SET_TARGET takes exactly two strings");
/// A malformed path is told of before what else is wrong.
pub(crate) const MALFORMED_PATH: Rule = Rule("A malformed path is EINVAL whatever else is wrong");
/// Two watches with one token that match one change give two events.
pub(crate) const EQUAL_EVENTS: Rule = Rule("Equal events fall together only while the receiver does not read");
/// Transactions that others interfere with.
pub(crate) const CONFLICTS: Rule = Rule("Transactions see one moment and conflict only over what they used");

/// Every rule.
pub(crate) const ALL: &[Rule] = &[
    SORTED_CHILDREN,
    NEWER_REQUESTS,
    WATCH_DEPTH,
    STRICT_NUMBERS,
    OWN_ERRORS,
    LONG_PATHS,
    SPECIAL_PERMISSIONS,
    EXTRA_STRINGS,
    MALFORMED_PATH,
    EQUAL_EVENTS,
    CONFLICTS,
];

/// How two answers to one request relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Equal.
    Same,
    /// Different by a rule; both stores are still alike.
    Allowed(Rule),
    /// Different by a rule, and one of the stores has changed where the other has not.
    Split(Rule),
    /// Different, and no rule says why.
    Wrong,
}

/// Whether C may be sent a request. Where it forgets to set an error (a payload that is not the one string it has to
/// be, a special node that is none), it answers with the last call's, or aborts when there was none: ours must refuse
/// such a request by itself.
pub(crate) fn c_survives(op: u32, payload: &[u8]) -> bool {
    let one_string = payload::one_string(payload).is_ok();
    let path = payload::strings(payload).next().unwrap_or_default();
    let is_there = path.first() != Some(&b'@') || matches!(path, b"@introduceDomain" | b"@releaseDomain");
    match Op::from_number(op) {
        Some(Op::GetPerms) => one_string && is_there,
        Some(Op::SetPerms) => is_there,
        Some(Op::Read | Op::Directory | Op::Mkdir | Op::Rm | Op::GetDomainPath | Op::IsDomainIntroduced) => one_string,
        _ => true,
    }
}

/// Compares the answers of our daemon and of C to a request.
pub(crate) fn judge(op: u32, payload: &[u8], ours: &Reply, theirs: &Reply) -> Verdict {
    if (ours.header.op, &ours.payload) == (theirs.header.op, &theirs.payload) {
        return Verdict::Same;
    }
    let Some(op) = Op::from_number(op) else { return Verdict::Wrong };
    match (ours.result(), theirs.result()) {
        (Ok(ours), Ok(theirs)) => match op {
            Op::TransactionStart if is_id(ours) && is_id(theirs) => Verdict::Same,
            Op::Directory if same_names(ours, theirs) => Verdict::Allowed(SORTED_CHILDREN),
            Op::DirectoryPart if same_part(payload, ours, theirs) => Verdict::Allowed(SORTED_CHILDREN),
            _ => Verdict::Wrong,
        },
        (Ok(_), Err(theirs)) => match op {
            Op::GetFeature | Op::SetFeature | Op::GetQuota | Op::SetQuota if theirs == "ENOSYS" => {
                Verdict::Allowed(NEWER_REQUESTS)
            }
            Op::GetPerms if theirs == "EINVAL" && payload.starts_with(b"@") => Verdict::Allowed(SPECIAL_PERMISSIONS),
            Op::Watch if theirs == "EINVAL" && payload::strings(payload).count() == 3 => Verdict::Split(WATCH_DEPTH),
            _ if theirs == "EINVAL" && path_is_long(payload) => Verdict::Split(LONG_PATHS),
            _ => Verdict::Wrong,
        },
        (Err(ours), Ok(_)) if ours == "EINVAL" && has_odd_number(op, payload) => match op {
            Op::SetPerms | Op::Introduce => Verdict::Split(STRICT_NUMBERS),
            _ => Verdict::Allowed(STRICT_NUMBERS),
        },
        (Err(ours), Err(theirs)) => match (ours.as_str(), theirs.as_str()) {
            ("EINVAL", "ENOSYS") if op.number() >= Op::GetFeature.number() => Verdict::Allowed(NEWER_REQUESTS),
            ("ENOENT", "ENOSYS") if op.number() >= Op::GetFeature.number() => Verdict::Allowed(NEWER_REQUESTS),
            ("EINVAL", _) if has_odd_number(op, payload) => Verdict::Allowed(STRICT_NUMBERS),
            ("EINVAL", "ENOENT") if op == Op::SetTarget && payload::exactly::<2>(payload).is_err() => {
                Verdict::Allowed(EXTRA_STRINGS)
            }
            ("EINVAL", "ENOENT") if matches!(op, Op::SetPerms | Op::Unwatch) && path_is_malformed(payload) => {
                Verdict::Allowed(MALFORMED_PATH)
            }
            (_, "EINVAL") if path_is_long(payload) => Verdict::Allowed(LONG_PATHS),
            _ => Verdict::Wrong,
        },
        _ => Verdict::Wrong,
    }
}

fn is_id(payload: &[u8]) -> bool {
    payload::one_string(payload).and_then(payload::number::<u32>).is_ok_and(|id| id != 0)
}

fn same_names(ours: &[u8], theirs: &[u8]) -> bool {
    let sorted = |list| {
        let mut names: Vec<&[u8]> = payload::strings(list).collect();
        names.sort_unstable();
        names
    };
    sorted(ours) == sorted(theirs)
}

/// Slices that start with a name's beginning hold the same names; others depend on the order and are not compared.
fn same_part(request: &[u8], ours: &[u8], theirs: &[u8]) -> bool {
    let from_start = payload::strings(request).nth(1).is_none_or(|offset| matches!(offset, b"0" | b"4096"));
    match (payload::string_and_rest(ours), payload::string_and_rest(theirs)) {
        (Ok((_, ours)), Ok((_, theirs))) => !from_start || same_names(ours, theirs),
        _ => false,
    }
}

/// Whether the path in front of a payload is no path of an ordinary node.
fn path_is_malformed(payload: &[u8]) -> bool {
    let path = payload::strings(payload).next().unwrap_or_default();
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-/_@".contains(byte);
    path.is_empty()
        || (path.len() > 1 && path.ends_with(b"/"))
        || path.windows(2).any(|pair| pair == b"//")
        || !path.iter().all(allowed)
}

/// Whether a path is beyond the quota `path-max`, which C 4.17 applies to everybody.
fn path_is_long(payload: &[u8]) -> bool {
    payload::strings(payload).next().is_some_and(|path| path.len() > REL_PATH_MAX)
}

/// Whether a string of the payload that stands where a number belongs is no plain decimal number in range.
fn has_odd_number(op: Op, payload: &[u8]) -> bool {
    let odd = |string: &[u8]| payload::number::<u16>(string).is_err();
    let mut strings = payload::strings(payload);
    match op {
        Op::GetDomainPath
        | Op::IsDomainIntroduced
        | Op::Release
        | Op::Resume
        | Op::SetTarget
        | Op::Introduce
        | Op::GetFeature
        | Op::GetQuota => strings.any(odd),
        Op::SetPerms => strings.skip(1).any(|permission| permission.get(1..).is_none_or(odd)),
        Op::DirectoryPart => strings.nth(1).is_some_and(odd),
        _ => false,
    }
}

#[test]
fn every_rule_has_its_place_in_the_document() {
    let document = include_str!("../../docs/divergence.md");
    for Rule(name) in ALL {
        assert!(document.lines().any(|line| line == format!("## {name}")), "{name}");
    }
}
