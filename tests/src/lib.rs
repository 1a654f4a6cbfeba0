//! Harness of the integration tests: daemons, clients and tools that a test owns.
//!
//! Every test starts its own daemon in its own temporary run directory and says by [`Backend`] which one, so that the
//! peers go through the same test as ours. Nothing here waits by the clock: a condition is waited for, with a deadline
//! long enough for a busy machine, and the failure says what did not come.
//!
//! - [`Daemon`], [`Backend`], [`Starter`]: one running store daemon
//! - [`Client`], [`Reply`], [`Event`]: one connection, by the bytes of the wire
//! - [`scene`]: a host with guests and a daemon, the one that [`Store::chosen`] says; the [`host`] is simulated
//! - [`Scripted`]: a daemon whose every byte is the test's, for clients
//! - [`tools`]: Debian's own command line tools
//! - [`process`]: what `/proc` says of a daemon
//! - [`wait`]: conditions with deadlines

mod client;
mod daemon;
pub mod host;
pub mod process;
pub mod scene;
mod scripted;
mod store;
pub mod tools;
pub mod wait;

pub use client::{Client, ClientError, Event, Reply, Wire};
pub use daemon::{Backend, Daemon, Starter, our_binary};
pub use scripted::{Line, Scripted};
pub use store::{Setting, Store};
