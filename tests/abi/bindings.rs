//! Bindings of Python: one over libxenstore, one without it.

use crate::compiler::root;
use crate::library::Library;
use crate::stage::stage;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use xenstored_tests::Client;
use xenstored_tests::Store;
use xenstored_tests::scene::Scene;
use xenstored_tests::tools::XEN_BIN;

/// Debian's own, whatever else is in the path.
const PYTHON: &str = "/usr/bin/python3";

fn ours(name: &str) -> PathBuf {
    root().join("tests/abi/python").join(name)
}

/// Where Xen's own binding is.
fn xen_s() -> PathBuf {
    Path::new(XEN_BIN).parent().expect("…/xen-4.17/bin").join("lib/python")
}

fn python(scene: &Scene, path: &[PathBuf]) -> Command {
    let path = std::env::join_paths(path).expect("plain paths");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", PYTHON]).env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("XENSTORED_PATH", scene.host.socket());
    command
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// What became of each test of pyxs over our daemon.
fn results_of_pyxs() -> BTreeMap<String, String> {
    let sources = root().join("target/sources/pyxs");
    assert!(sources.join("complete").exists(), "the sources of pyxs are not there: run scripts/sources");
    let scene = stage(Store::Ours);
    // They expect what every toolstack writes first.
    Client::connect(&scene.host.socket()).expect("the daemon listens").write("/local/domain/0/name", b"Domain-0");
    let mut command = python(&scene, &[sources.clone(), ours("")]);
    command.args(["-m", "pytest", "-p", "a_host", "-p", "no:cacheprovider", "-q", "-rA", "tests"]).current_dir(sources);
    let output = command.output().expect("python runs");
    let text = text(&output);
    let results: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(word, _)| ["PASSED", "FAILED", "ERROR", "XFAIL", "XPASS"].contains(word))
        .map(|(word, rest)| (rest.split(" - ").next().unwrap_or(rest).to_owned(), word.to_owned()))
        .collect();
    assert!(results.len() > 60, "{text}");
    results
}

#[test]
fn pyxs_s_own_tests_pass() {
    let results = results_of_pyxs();
    let not_passed: Vec<(&str, &str)> =
        results.iter().filter(|(_, word)| *word != "PASSED").map(|(test, word)| (&test[..], &word[..])).collect();
    let in_client = |test: &str| format!("tests/test_client.py::{test}");
    let expected: Vec<(String, &str)> = [
        // The device hands no events to several readers; these expect to fail over it.
        ("test_monitor[XenBusConnection]", "XFAIL"),
        ("test_monitor_different_tokens[XenBusConnection]", "XFAIL"),
        ("test_monitor_leftover_events[XenBusConnection]", "XFAIL"),
        ("test_multiple_monitors[XenBusConnection]", "XFAIL"),
        // They pass, and then complain that they left their own transaction open.
        ("test_nested_transaction[UnixSocketConnection]", "ERROR"),
        ("test_nested_transaction[XenBusConnection]", "ERROR"),
        ("test_transaction[UnixSocketConnection]", "ERROR"),
        ("test_transaction[XenBusConnection]", "ERROR"),
    ]
    .into_iter()
    .map(|(test, word)| (in_client(test), word))
    .collect();
    let expected: Vec<(&str, &str)> = expected.iter().map(|(test, word)| (&test[..], *word)).collect();
    assert_eq!(not_passed, expected);
    assert_eq!(results.len(), 69);
}

#[test]
fn xen_s_binding_sees_the_same_through_both_libraries() {
    for store in [Store::Ours, Store::C] {
        let [theirs, ours] = Library::BOTH.map(|library| {
            let scene = stage(store);
            let mut command = python(&scene, &[xen_s()]);
            library.load_into(&mut command);
            let output = command.arg(ours("lowlevel.py")).output().expect("python runs");
            let text = text(&output);
            assert!(output.status.success(), "{library:?} over {store:?}:\n{text}");
            text
        });
        assert_eq!(theirs, ours, "over {store:?}: left Debian's library, right ours");
        assert!(ours.contains("\nmany 5000 True\n"), "{ours}");
    }
}
