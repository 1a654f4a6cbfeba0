//! The choices that the protocol documents leave open, one named function or constant each.
//!
//! The model is meant to be read, so a rule that could as well be another one is not buried in a handler: it stands
//! here with its reason, and a dispute with the engine is settled here or in the engine.

use xenstore_wire::{PAYLOAD_MAX, XsError};

/// Domain ids from here on are the hypervisor's own (`DOMID_FIRST_RESERVED`); no such domain ever exists.
pub(crate) const FIRST_RESERVED: u16 = 0x7FF0;

/// The caller itself (`DOMID_SELF`).
pub(crate) const DOMID_SELF: u16 = 0x7FF0;

/// Every domain, in permission entries behind the first (`DOMID_ANY`).
pub(crate) const DOMID_ANY: u16 = 0x7FF5;

/// Feature bits that the store offers: ring reconnection, error indicator, watch depth, all-domains permission.
pub(crate) const FEATURES: u32 = 1 | 2 | 4 | 8;

/// Feature bit of watches with a depth.
pub(crate) const FEATURE_WATCH_DEPTH: u32 = 4;

/// Feature bit of the all-domains permission entry.
pub(crate) const FEATURE_DOMID_ANY: u32 = 8;

/// Deepest watch depth: the saved state has 16 bits and keeps the highest number for "unlimited".
pub(crate) const DEEPEST_WATCH: u32 = 65534;

/// `SET_PERMS` with the all-domains entry from a domain that is not offered the feature: refused rather than stored
/// as a dead entry, so that the caller learns of it.
pub(crate) const ANY_WITHOUT_FEATURE: XsError = XsError::Inval;

/// All domains together own nothing: as the first entry the number is one of a domain that does not exist.
pub(crate) const ANY_MAY_OWN: bool = false;

/// A watch on a special name takes no depth but 1: any other asks for events that cannot come.
pub(crate) fn special_depth_is_allowed(depth: u32) -> bool {
    depth == 1
}

/// A watch on `@introduceDomain/<domid>` hears of that domain, as one on `@releaseDomain/<domid>` does.
pub(crate) const INTRODUCE_HAS_DOMAIN_WATCHES: bool = true;

/// `RELEASE` and `RESUME` of a number that no domain can have is a slip of the caller.
pub(crate) const RESERVED_DOMID: XsError = XsError::Inval;

/// `INTRODUCE` of a domain that the host does not know.
pub(crate) const INTRODUCE_UNKNOWN: XsError = XsError::NoEnt;

/// `SET_PERMS` and `GET_PERMS` of an `@` name other than the two special nodes.
pub(crate) const UNKNOWN_SPECIAL: XsError = XsError::NoEnt;

/// The store's own domain counts as introduced even where it has no ring (sockets only).
pub(crate) const DOM0_IS_INTRODUCED: bool = true;

/// `SET_TARGET` of a domain that has no ring: one that exists, or one that counts as introduced all the same.
pub(crate) const TARGET_WITHOUT_RING: XsError = XsError::Inval;

/// Within a transaction, RM of nothing and MKDIR of what is there leave nothing to commit, so a transaction of those
/// and reads alone is read-only.
pub(crate) const IDLE_WRITES_MAKE_A_WRITER: bool = false;

/// A failed request poisons its transaction when a quota stopped it half-way through a change; what was refused
/// before anything was looked at or for want of a right does not.
pub(crate) fn poisons(error: XsError) -> bool {
    matches!(error, XsError::NoSpc | XsError::NoMem | XsError::Io)
}

/// What a removed node's watchers may see is judged by the node and its parent as they were before the removal, in a
/// commit as outside of one.
pub(crate) const REMOVAL_JUDGES_OLD_PARENT: bool = true;

/// Privileged callers need no permission, so their overwriting relies on none: only on the node being there.
pub(crate) fn relies_on_permissions(privileged: bool) -> bool {
    !privileged
}

/// At a commit a conflict is found before a lack of node quota: what the client reads again may be smaller.
pub(crate) const CONFLICT_BEFORE_QUOTA: bool = true;

/// A node that went with one above it and is written again in the same transaction has its event where it was
/// written, not where it went.
pub(crate) const REWRITTEN_MOVES_BACK: bool = true;

/// A domain's targets end with it, before the events of its end: who had rights through it hears no more of it.
pub(crate) const TARGETS_END_FIRST: bool = true;

/// What a transaction takes of its domain's memory for each node that it touched. It holds no values but those
/// that it wrote, and has to remember the node's name.
pub(crate) fn touched_bytes(path: &[u8]) -> u64 {
    path.len() as u64
}

/// The first event of a watch comes whatever the receiver's memory quota says: it answers the request.
pub(crate) const FIRST_EVENT_IS_NEVER_LOST: bool = true;

/// A part of a child list takes as many whole names as keep the payload below the limit; the end mark may fill it.
pub(crate) fn part_is_full(payload: usize) -> bool {
    payload >= PAYLOAD_MAX
}
