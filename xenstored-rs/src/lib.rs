//! The daemon.

pub mod cli;
pub mod cli_help;
pub mod daemonise;
pub mod logging;
pub mod notify;
pub mod pid_file;
pub mod rate_limit;
pub mod rlimits;
pub mod run_dir;
pub mod signals;
pub mod syslog;
pub mod trace;
mod trace_switch;
mod trace_text;
