//! A store on its way from one daemon to another.
//!
//! [`State`] is what a daemon hands over: nodes, watches, connections with what is under way on them, quotas. It is read
//! from the migration stream that C daemons write (`docs/designs/xenstore-migration.md`, versions 1 and 2) or from the
//! text that oxenstored writes, and written as a stream again. It says no more than those formats do: open transactions
//! and generations of nodes are not in it.

mod error;
mod fields;
mod load;
mod reader;
mod record;
mod state;
mod text;
mod unload;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{Fault, StreamError};
pub use load::{LoadError, Loaded};
pub use reader::read_stream;
pub use state::{Named, Peer, SavedConnection, SavedDomain, SavedNode, SavedWatch, State};
pub use text::{TextError, read_text};
pub use writer::{Unwritable, write_stream};
