//! The keeper: a second process that holds copies of the daemon's descriptors, so that they outlive it.
//!
//! The keeper reads nothing from guests or clients and knows nothing of the store. The daemon tells it what to hold; a
//! daemon that starts after the death of another asks for all of it. It needs no service manager, costs one message a
//! connection, and outlives both a crash and a stop followed by a start.
//!
//! | message | from | descriptor | meaning |
//! |---|---|---|---|
//! | `Keep` | daemon | yes | hold this under the key |
//! | `Drop` | daemon | no | let go of what the key names |
//! | `Stopping` | daemon | no | the end that follows is wanted: start no other daemon, wait for one |
//! | `Dismissed` | daemon | no | let go of everything and end |
//! | `Held` | keeper | yes | what a key names; sent to a daemon that has just connected |
//! | `All` | keeper | no | that was everything |
//!
//! Both ends are of one machine and one build or its neighbours, so numbers have the machine's byte order.

mod link;
mod message;
mod process;
mod served;

pub(crate) use link::{Kept, Link, LinkError, fetch, spawn};
pub(crate) use message::Key;
pub(crate) use process::{ARGUMENT, main};

use std::path::{Path, PathBuf};

/// Name of the keeper's socket in the run directory.
const SOCKET_NAME: &str = "keeper";

/// Where a daemon of this run directory finds its keeper.
pub(crate) fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join(SOCKET_NAME)
}
