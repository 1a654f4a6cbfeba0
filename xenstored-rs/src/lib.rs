//! The daemon.

pub mod cli;
pub mod cli_help;
pub mod rlimits;
pub mod signals;
pub mod trace;
mod trace_switch;
