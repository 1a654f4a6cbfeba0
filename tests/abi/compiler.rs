//! The C and C++ compilers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian puts the headers of Xen.
pub(crate) const SYSTEM_INCLUDE: &str = "/usr/include";

/// What no file of ours may be warned about.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// The root of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the project")
}

/// The project's headers.
pub(crate) fn include() -> PathBuf {
    root().join("include")
}

/// A C file of these tests.
pub(crate) fn source(name: &str) -> PathBuf {
    root().join("tests/abi/c").join(name)
}

/// A compiler for the language standard, `c99` or `c++11` and so on, that takes no warning.
pub(crate) fn compiler(standard: &str) -> Command {
    let (variable, usual, language) =
        if standard.starts_with("c++") { ("CXX", "c++", "c++") } else { ("CC", "cc", "c") };
    let mut command = Command::new(env::var_os(variable).unwrap_or_else(|| usual.into()));
    command.arg(format!("-std={standard}")).args(STRICT).args(["-x", language]);
    command
}

/// Runs a compiler.
///
/// # Panics
/// When it complains; the message says what about.
pub(crate) fn compile(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A macro whose value is a header's name.
pub(crate) fn define_header(name: &str, header: &Path) -> OsString {
    let mut option = OsString::from(format!("-D{name}=\""));
    option.push(header);
    option.push("\"");
    option
}

/// What the C compiler answers to an option such as `-print-multiarch`.
///
/// # Panics
/// When it does not know.
pub(crate) fn asked(option: &str) -> String {
    let output = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into())).arg(option).output();
    let output = output.unwrap_or_else(|e| panic!("cc {option}: {e}"));
    assert!(output.status.success(), "cc {option}");
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}
