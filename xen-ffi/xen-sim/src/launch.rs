//! How a daemon is started on a host.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Gives the directory its place under the name that oxenstored has built in, where nobody else sees it, and becomes
/// the daemon. `$1` is the run directory, `$2` the library to preload, then comes the daemon.
const PRIVATE_RUN: &str = r#"
set -e
mount -t tmpfs -o mode=755 run /run
mkdir /run/xenstored /run/xen
mount --bind "$1" /run/xenstored
export LD_PRELOAD="$2"
shift 2
exec "$@"
"#;

/// The library that is preloaded into daemons: `$XEN_SIM_PRELOAD`, or else the one of the build that the running
/// program belongs to.
///
/// # Errors
/// `NotFound` when there is none.
pub fn preload_library() -> io::Result<PathBuf> {
    const NAME: &str = "libxen_sim_preload.so";
    if let Some(path) = std::env::var_os("XEN_SIM_PRELOAD") {
        return Ok(path.into());
    }
    let program = std::env::current_exe()?;
    // Programs are in the build's directory or one below it, what they depend on in `deps`.
    let places = program.ancestors().skip(1).take(2);
    let mut candidates = places.flat_map(|dir| [dir.join("deps").join(NAME), dir.join(NAME)]);
    candidates.find(|path| path.exists()).ok_or_else(|| {
        let message = format!("{NAME} is not beside {}; XEN_SIM_PRELOAD can name it", program.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

pub(crate) fn command(dir: &Path, program: &Path) -> io::Result<Command> {
    let library = preload_library()?;
    let run = dir.join("run");
    let mut command = if program.file_name().is_some_and(|name| name == "oxenstored") {
        if dir.starts_with("/run") || dir.starts_with("/var/run") {
            let message = "oxenstored gets a /run of its own, so the host's directory cannot be below /run";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", PRIVATE_RUN, "sh"]);
        command.arg(&run).arg(&library).arg(program);
        command
    } else {
        let mut preload = OsString::from(&library);
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", preload);
        command
    };
    command
        .env("XEN_SIM_SOCKET", dir.join("host.sock"))
        .env("XENSTORED_RUNDIR", &run)
        .env("XENSTORED_PATH", run.join("socket"))
        .env_remove("NOTIFY_SOCKET");
    Ok(command)
}
