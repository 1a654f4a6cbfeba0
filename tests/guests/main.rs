//! Guests of a simulated host, over their rings.
//!
//! Each test has a host, a daemon and guests of its own ([`scene::Scene`]). What a kernel does wrong is done to the
//! bytes of the ring page; everything else goes through the same client as over the daemon's socket. `tests/xen` runs
//! the same files on a real host.
//!
//! `XENSTORED_TEST_DAEMON` is the daemon: `ours`, `c` or `ocaml`. What the peers fail, and why, is in `peers/`;
//! `make peers` holds them to it.

#[path = "../conformance/case.rs"]
mod case;
mod conformance;
mod crowd;
mod lifecycle;
mod permissions;
#[path = "../conformance/player.rs"]
mod player;
mod quotas;
mod rings;
mod start;
mod transactions;
mod watches;

use xenstored_tests::{host, scene};
