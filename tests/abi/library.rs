//! The libraries.

use crate::compiler::root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A libxenstore.so.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// Debian's libxenstore4 4.17.
    Debian,
    /// Ours.
    Ours,
    /// Ours with the names and lines of its functions, which tools can show and tell apart.
    OursPlain,
    /// Ours with the compiler's checks of addresses.
    OursAddress,
    /// Ours with the compiler's checks for races.
    OursThread,
}

impl Library {
    /// Both, Debian's first.
    pub(crate) const BOTH: [Self; 2] = [Self::Debian, Self::Ours];

    /// The directory that it is in. Ours is built first.
    pub(crate) fn dir(self) -> &'static Path {
        static SHIPPED: OnceLock<PathBuf> = OnceLock::new();
        static PLAIN: OnceLock<PathBuf> = OnceLock::new();
        static ADDRESS: OnceLock<PathBuf> = OnceLock::new();
        static THREAD: OnceLock<PathBuf> = OnceLock::new();
        match self {
            Self::Debian => Path::new("/usr/lib/x86_64-linux-gnu"),
            Self::Ours => SHIPPED.get_or_init(|| build("lib", "c-library", "strip", None)),
            Self::OursPlain => PLAIN.get_or_init(|| build("lib-plain", "dev", "true", None)),
            Self::OursAddress => ADDRESS.get_or_init(|| build("lib-address", "dev", "true", Some("address"))),
            Self::OursThread => THREAD.get_or_init(|| build("lib-thread", "dev", "true", Some("thread"))),
        }
    }

    /// Has a command, and what it starts, load this library, with all its symbols at once.
    pub(crate) fn load_into(self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.dir()).env("LD_BIND_NOW", "1");
    }
}

/// Has `scripts/lib` build our library, into the target directory that this test belongs to.
fn build(name: &str, profile: &str, strip: &str, sanitizer: Option<&str>) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let target = test.ancestors().nth(3).expect("tests live in <target>/<profile>/deps");
    let dir = target.join(name);
    let output = Command::new(root().join("scripts/lib"))
        .env("CARGO_TARGET_DIR", target)
        .env("OUT", &dir)
        .env("PROFILE", profile)
        .env("STRIP", strip)
        .env("SANITIZER", sanitizer.unwrap_or_default())
        .output()
        .expect("scripts/lib runs");
    assert!(output.status.success(), "scripts/lib: {}", String::from_utf8_lossy(&output.stderr));
    dir
}
