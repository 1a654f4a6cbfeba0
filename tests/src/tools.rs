//! Debian's own command line tools, run against a daemon of a test.

use crate::Daemon;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

/// Where Debian's Xen 4.17 keeps what its wrappers choose from.
pub const XEN_BIN: &str = "/usr/lib/xen-4.17/bin";

/// Seconds after which a tool that hangs is ended; its exit status is then 124.
const PATIENCE: &str = "60";

/// What a tool left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status; 128 and the signal's number for one that died by a signal, 124 for one that hung.
    pub status: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// What it printed, as text; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let signal = output.status.signal().map(|signal| 128 + signal);
        Self { status: output.status.code().or(signal).unwrap_or(-1), stdout: output.stdout, stderr: output.stderr }
    }
}

/// A command that runs `tool` (its name, or for `xenstore-control` and `test-xenstore` the one behind the wrapper)
/// against `daemon`, ended when it hangs.
pub fn command(daemon: &Daemon, tool: &str, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE]);
    match tool {
        "xenstore-control" | "test-xenstore" => command.arg(format!("{XEN_BIN}/{tool}")),
        _ => command.arg(tool),
    };
    command
        .args(args)
        .env("XENSTORED_PATH", daemon.socket())
        .env_remove("XENSTORED_RUNDIR")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a tool to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(daemon: &Daemon, tool: &str, args: &[impl AsRef<OsStr>]) -> Outcome {
    command(daemon, tool, args).output().unwrap_or_else(|e| panic!("{tool} cannot start: {e}")).into()
}

/// Starts a tool that goes on while the test does other things.
///
/// # Panics
/// When it cannot be started.
pub fn spawn(daemon: &Daemon, tool: &str, args: &[impl AsRef<OsStr>]) -> Child {
    command(daemon, tool, args).spawn().unwrap_or_else(|e| panic!("{tool} cannot start: {e}"))
}

/// Waits for a started tool to end.
///
/// # Panics
/// When its output cannot be read.
#[must_use]
pub fn finish(child: Child) -> Outcome {
    child.wait_with_output().expect("a child's output can be read").into()
}
