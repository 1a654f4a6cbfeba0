//! The memory that a simulated Xen host shares between its broker, its guests and the store daemon.
//!
//! All of the host that a daemon may look at stands in one memory file: the pages of the rings, what the hypervisor
//! knows of each domain, and both ends of every event channel. Everything in it is an atomic, so an event travels
//! from a guest to a daemon and back without a word to the broker, and a daemon that executes another program finds
//! the host as it left it.
//!
//! - [`Memory`]: the mapped file
//! - [`Switchboard`]: domains, event channels and open event files
//! - [`Page`]: a ring page, as bytes that somebody else may write at any time
//!
//! Whoever delivers an event to a daemon writes its port, a native `u32`, to the open event file; the functions here
//! only say when that is due, because the broker and the daemon hold different descriptors of that file.

mod channel;
mod domain;
mod futex;
mod local_port;
mod memory;
mod page;
mod switchboard;

pub use channel::{CHANNELS, Channel};
pub use domain::{DomainFlags, DomainRecord, DomainView, PORTS_PER_DOMAIN};
pub use local_port::{FIRST_LOCAL, LOCALS, LocalPort, Owner};
pub use memory::{Memory, SLOTS, slot_offset};
pub use page::{PAGE_SIZE, Page};
pub use switchboard::{Errno, HANDLES, Switchboard};

/// First domain id that no domain can have (`DOMID_FIRST_RESERVED`).
pub const DOMID_FIRST_RESERVED: u16 = 0x7FF0;

/// The virtual interrupt that says a domain has changed its state (`VIRQ_DOM_EXC`).
pub const VIRQ_DOM_EXC: u32 = 3;

/// The grant reference that every domain gives its store ring (`GNTTAB_RESERVED_XENSTORE`).
pub const GRANT_XENSTORE: u32 = 1;
