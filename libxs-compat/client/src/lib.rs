#![forbid(unsafe_code)]
//! A client of the xenstore, in Rust alone: it needs no C library and builds for musl.
//!
//! ```no_run
//! use xenstore_client::{Client, Nodes};
//!
//! # fn main() -> Result<(), xenstore_client::Error> {
//! let store = Client::open()?;
//! store.write("/tool/example/state", "1")?;
//! for event in store.watch("/tool/example")? {
//!     println!("{} is now {:?}", event?.path_text(), store.read("/tool/example/state")?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`]: one connection, shared by any number of threads through `&self`; cloning it is cheap
//! - [`Options`]: time-outs, waiting for a daemon that is yet to start, reconnecting, other transports
//! - [`Nodes`]: what can be done to nodes, outside a transaction and inside one
//! - [`Transaction`]: given up when dropped; its [`Commit`] may be a conflict. [`Client::transact`] tries again
//! - [`Watch`]: an iterator over [`Event`]s that unregisters itself when dropped
//! - [`Error`]: carries the name of the errno
//!
//! Paths, values and tokens are bytes. [`link`], [`platform`] and [`transport`] are the parts below, for those who
//! build another interface on them, as the C library does.
//!
//! What requests do is described in xen.git `docs/misc/xenstore.txt`.

mod client;
mod descriptors;
pub mod directory;
mod domain;
mod error;
mod inbox;
pub mod link;
mod nodes;
mod options;
mod permission;
pub mod place;
pub mod platform;
mod quota;
mod transaction;
pub mod transport;
mod watch;

pub use client::Client;
pub use domain::Features;
pub use error::{Attempt, Cause, Error};
pub use nodes::{Nodes, Scope};
pub use options::Options;
pub use permission::{Access, Permission};
pub use transaction::{Commit, Transaction};
pub use watch::{Event, Watch, WatchOptions};
pub use xenstore_wire::XsError;
