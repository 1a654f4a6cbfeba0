//! Entry point of the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    xenstored_rs::run(std::env::args_os())
}
