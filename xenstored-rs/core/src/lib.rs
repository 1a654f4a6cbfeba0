#![forbid(unsafe_code)]
//! The xenstore engine.
//!
//! What a xenstore is, without how it is reached: bytes and events go in, bytes and effects come out. There is no
//! descriptor, no clock and no system call in here; the shell (`xenstored-rs`) has those.

mod accounts;
mod children;
mod decimal;
mod id;
mod node;
mod path;
mod permission;
mod small_bytes;
mod store;

pub use accounts::Usage;
pub use id::{ConnId, DomId, Time, TxId};
pub use permission::{Access, Permission, Permissions};
