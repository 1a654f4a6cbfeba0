//! Tests on a real Xen. They run in domain 0 of a machine that `make xen` starts, one after the other.
//!
//! Most are files of `tests/guests` and `tests/restart`, which know nothing of what kind of host they run on. Beside
//! them: the kernel of domain 0 ([`own_kernel`]), Debian's toolstack ([`toolstack`]), and guests that are Linux
//! ([`linux`]).

#[path = "../../conformance/case.rs"]
mod case;
#[path = "../../guests/conformance.rs"]
mod conformance;
#[path = "../../guests/crowd.rs"]
mod crowd;
mod dom0;
mod first_start;
#[path = "../../guests/lifecycle.rs"]
mod lifecycle;
mod linux;
mod own_kernel;
#[path = "../../guests/permissions.rs"]
mod permissions;
#[path = "../../conformance/player.rs"]
mod player;
#[path = "../../guests/quotas.rs"]
mod quotas;
#[path = "../../restart/guests.rs"]
mod restart;
#[path = "../../guests/rings.rs"]
mod rings;
#[path = "../../src/scene.rs"]
#[allow(dead_code, unreachable_pub, clippy::must_use_candidate, reason = "written for a library and its users")]
mod scene;
#[path = "../../restart/take_over.rs"]
mod take_over;
mod toolstack;
#[path = "../../guests/transactions.rs"]
mod transactions;
#[path = "../../guests/watches.rs"]
mod watches;
mod xenbus;

// What the files of other tests find at their root.
use xenstored_tests::{Client, Setting, Store, process, wait};

/// What the tests know of a host, here the real one.
mod host {
    pub(crate) use xen_rig::{Guest, GuestClient, Host};
    pub(crate) use xen_sim::Message;
}
