//! Processes of their own, for tests that count or change what belongs to a process.

use std::process::Command;

/// Says which test the process is for.
const VARIABLE: &str = "LIBXS_COMPAT_TEST_ALONE";

/// Whether this process is the one of its own for the test `name`; if not, starts that and waits for its success.
pub(crate) fn is_alone(name: &str) -> bool {
    if std::env::var(VARIABLE).is_ok_and(|wanted| wanted == name) {
        return true;
    }
    let program = std::env::current_exe().expect("a test knows its own file");
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, name)
        .output()
        .expect("a test starts itself");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}
