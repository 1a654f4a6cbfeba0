//! The functions of `xenstore.h` and `xenstore_lib.h`.
//!
//! Unless a function says otherwise: pointers are NULL and truths false on failure, with `errno` set; a NULL handle or
//! string is `EINVAL`; what the daemon refuses is refused with its errno; results are freed with one `free`. Every
//! handle must have come from `xs_open` or its like and not be closed yet, and every string end with a NUL.

mod control;
mod domain;
mod feature;
mod node;
mod open;
mod path;
mod permission;
mod quota;
mod transaction;
mod watch;

pub use control::{xs_control_command, xs_debug_command};
pub use domain::{
    xs_get_domain_path, xs_introduce_domain, xs_is_domain_introduced, xs_release_domain, xs_resume_domain,
    xs_set_target, xs_suspend_evtchn_port,
};
pub use feature::{xs_get_features_domain, xs_get_features_supported, xs_set_features_domain};
pub use node::{xs_directory, xs_mkdir, xs_read, xs_rm, xs_write};
pub use open::{
    xs_close, xs_daemon_close, xs_daemon_destroy_postfork, xs_daemon_open, xs_daemon_open_readonly, xs_domain_open,
    xs_open, xs_restrict,
};
pub use path::{xs_daemon_rundir, xs_daemon_socket, xs_daemon_socket_ro, xs_path_is_subpath, xs_write_all};
pub use permission::{xs_get_permissions, xs_set_permissions, xs_strings_to_perms};
pub use quota::{
    xs_get_domain_quota, xs_get_global_quota, xs_get_quota_names, xs_set_domain_quota, xs_set_global_quota,
};
pub use transaction::{xs_transaction_end, xs_transaction_start};
pub use watch::{xs_check_watch, xs_fileno, xs_read_watch, xs_unwatch, xs_watch, xs_watch_depth, xs_watch_try_depth};

use crate::block::Block;
use crate::guard::Failure;
use crate::handle::xs_handle;
use xenstore_wire::Op;

/// Makes a request whose answer says no more than that it was carried out.
fn done(handle: &xs_handle, op: Op, transaction: u32, parts: &[&[u8]]) -> Result<bool, Failure> {
    handle.link.request(op, transaction, parts, handle.until(), |_| true).map_err(Failure::from)
}

/// Makes a request whose answer becomes a string for the caller, and tells its length.
fn string(handle: &xs_handle, op: Op, transaction: u32, parts: &[&[u8]]) -> Result<(Block, usize), Failure> {
    let take = |payload: &[u8]| Block::of_bytes(payload).map(|block| (block, payload.len()));
    handle.link.request(op, transaction, parts, handle.until(), take)?
}
