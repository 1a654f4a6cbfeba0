//! A server that dies at any moment goes on as if it had not, and does not die of a full file system.
//!
//! The process under test must have one thread and be killed, so this program is both the tests and, when it is started
//! with the name of a role, the process under test.

#![expect(clippy::print_stdout, reason = "it stands in for a test harness")]

mod client;
mod full;
mod kills;
mod server;
mod steps;
mod streams;

use std::{panic::catch_unwind, process::ExitCode};

const TESTS: [(&str, fn()); 4] = [
    ("a_server_that_is_killed_loses_nothing_and_repeats_nothing", kills::test),
    ("at_every_instruction_the_journal_knows_what_the_sockets_know", steps::test),
    ("a_full_file_system_is_an_error_and_no_signal", full::test_file_system),
    ("a_limit_on_files_is_an_error_and_no_signal", full::test_limit),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().and_then(|first| first.strip_prefix("role:")) {
        match role {
            "server" => server::serve(&arguments[1..]),
            "full" => return full::play(&arguments[1..]),
            "steps" => steps::script(&arguments[1]),
            _ => panic!("no role {role}"),
        }
        return ExitCode::SUCCESS;
    }
    let ignored_only = arguments.iter().any(|argument| argument == "--ignored");
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen = TESTS.iter().filter(|(name, _)| {
        !ignored_only && (filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())))
    });
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen {
        let ok = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let out = TESTS.len() - passed - failed;
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {out} filtered out\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
