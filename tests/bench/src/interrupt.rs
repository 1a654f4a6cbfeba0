//! An interrupted benchmark leaves nothing behind: its directory is removed, and the kernel ends the daemons with it.

use std::fs;
use std::io;
use std::path::Path;
use std::process;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// From now on SIGINT, SIGTERM and SIGHUP remove `root` and end this program with 128 and the signal's number.
///
/// # Errors
/// When no handler can be installed.
pub(crate) fn remove_on_signal(root: &Path) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let root = root.to_owned();
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        let _removed = fs::remove_dir_all(&root);
        #[expect(clippy::exit, reason = "the main thread may be waiting for a daemon that is not going to answer")]
        process::exit(128 + signal);
    });
    Ok(())
}
