//! A Xen host without Xen, on which unmodified xenstore daemons run with guests.
//!
//! A [`Host`] is the broker: it holds domains, their ring pages and event channels in shared memory, and gives store
//! daemons event files. A daemon reaches it through a library that is preloaded into it ([`Host::command`]) and that
//! answers its calls of the Xen libraries. [`Guest`] is a domain's kernel: it reads and writes the bytes of its ring,
//! the wrong ones too, and sends and takes events; [`GuestClient`] speaks the wire protocol on top. Once offered
//! ([`Host::offer`]), a unix socket carries a guest's ring to any program.
//!
//! `xen-sim` on the command line does all that for one daemon; see README.md.

mod bridge;
mod broker;
pub mod control;
mod domains;
mod guest;
mod guest_client;
mod host;
mod launch;
mod ring;
mod toolstack;

pub use domains::{Domain, DomainOptions, ShutdownReason};
pub use guest::Guest;
pub use guest_client::{GuestClient, Message, RingEnd};
pub use host::Host;
pub use launch::preload_library;
pub use ring::{RING_SIZE, Word};
