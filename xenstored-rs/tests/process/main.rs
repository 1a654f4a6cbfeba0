//! What belongs to whole processes: daemonising, the lock of the pid file, the environment, crashes, limits.
//!
//! Forking wants a process with one thread, which the usual test harness does not give. So this program is both the
//! tests and, when it is started with the name of a role, the process under test.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it stands in for a test harness and for a program")]

mod role;
mod tests;

use std::panic::catch_unwind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().and_then(|first| first.strip_prefix("role:")) {
        return role::play(role, &arguments[1..]);
    }
    let ignored_only = arguments.iter().any(|argument| argument == "--ignored");
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen = tests::ALL.iter().filter(|(name, _)| {
        let matches = |filter: &&String| if exact { name == filter } else { name.contains(filter.as_str()) };
        !ignored_only && (filters.is_empty() || filters.iter().any(matches))
    });
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen {
        let verdict = if catch_unwind(test).is_ok() {
            passed += 1;
            "ok"
        } else {
            failed += 1;
            "FAILED"
        };
        println!("test {name} ... {verdict}");
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out\n",
        tests::ALL.len() - passed - failed
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
