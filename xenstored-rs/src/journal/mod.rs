//! How the store outlives the daemon: the engine's calls are written down before they are made.

mod compaction;
#[cfg(test)]
mod damage_tests;
mod journaled;
mod left;
mod record;
mod recovery;
#[cfg(any(test, fuzzing))]
pub(crate) mod sample;
mod settings;
mod start;
mod state;
mod verdict;

pub(crate) use compaction::Compaction;
pub(crate) use journaled::{Journaled, READ_SIZE};
pub(crate) use record::{HostPorts, Reach, RingPosition};
pub(crate) use recovery::RecoveryError;
pub(crate) use start::{CheckError, Start, check, dump, is_there, start, start_with};
pub(crate) use state::ShellState;
