//! The simulated host that this process is, and its guests: one for all inputs, since the preloaded library knows one.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::OnceLock;

use xen_sim::Host;

/// Tells the process that it has the library preloaded, and not another that it was started by.
const PRELOADED: &str = "XENSTORED_FUZZ_PRELOADED";

fn dir() -> PathBuf {
    std::env::temp_dir().join(format!("xenstored-fuzz.{}", process::id()))
}

/// Makes sure that this process has the library preloaded that stands where Xen's libraries would; executes itself
/// anew where it has not. To be called first.
///
/// # Panics
/// When the library is missing or the program cannot be executed.
pub fn preload() {
    let pid = process::id().to_string();
    if std::env::var(PRELOADED).is_ok_and(|preloaded| preloaded == pid) {
        return;
    }
    let library = xen_sim::preload_library().expect("the library to preload");
    let error = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(PRELOADED, pid)
        .env("LD_PRELOAD", library)
        .env("XEN_SIM_SOCKET", dir().join("host.sock"))
        .exec();
    panic!("this program cannot execute itself: {error}");
}

/// The host of this process, made when it is first asked for.
///
/// # Panics
/// When it cannot be made.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| Host::start(&dir()).expect("a host in a directory of this process"))
}
