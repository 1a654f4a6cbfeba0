//! The daemon around the engine: command line, files, signals, log, and the loop that moves bytes.
//!
//! What a xenstore is lives in `xenstore-core`; this crate only carries bytes to it and does what it asks for.

mod candidate;
pub mod cli;
pub mod cli_help;
mod client;
mod clock;
pub mod daemonise;
#[cfg(fuzzing)]
pub mod damage;
mod effects;
mod event_loop;
mod former;
mod guests;
mod journal;
mod keeper;
mod keeping;
mod listener;
mod live_update;
pub mod logging;
pub mod notify;
mod oxenstored_conf;
pub mod pid_file;
mod predecessor;
pub mod rate_limit;
mod ring_limit;
pub mod rlimits;
mod run;
pub mod run_dir;
pub mod signals;
pub mod syslog;
mod take_over;
mod ticker;
pub mod trace;
mod trace_switch;
mod trace_text;
mod turn_times;
#[cfg(fuzzing)]
pub mod turns;
mod unfinished;

pub use run::run;
