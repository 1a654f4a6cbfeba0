//! The daemon.

pub mod cli;
pub mod cli_help;
pub mod daemonise;
pub mod notify;
pub mod pid_file;
pub mod rate_limit;
pub mod rlimits;
pub mod run_dir;
pub mod signals;
pub mod trace;
mod trace_switch;
