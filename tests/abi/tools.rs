//! Debian's own programs on Debian's library and on ours, over the same kind of daemon.

use crate::library::Library;
use crate::stage::stage;
use rstest::rstest;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use xenstore_wire::Op;
use xenstored_tests::scene::Scene;
use xenstored_tests::tools::{Outcome, XEN_BIN};
use xenstored_tests::{Backend, Starter, Store};

/// Runs a program of Debian's to its end, or for a minute.
fn run(library: Library, scene: &Scene, words: &[&str]) -> Outcome {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]).args(words).env("XENSTORED_PATH", scene.host.socket()).env("LC_ALL", "C");
    library.load_into(&mut command);
    command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{words:?}: {e}")).into()
}

/// Each line of a script on both libraries, each time with a new daemon; output, complaints and status must be equal.
fn same(store: Store, script: &[&[&str]]) -> Vec<Outcome> {
    let [theirs, ours] = Library::BOTH.map(|library| {
        let mut scene = stage(store);
        let outcomes: Vec<_> = script.iter().map(|words| run(library, &scene, words)).collect();
        scene.assert_alive();
        outcomes
    });
    for ((words, theirs), ours) in script.iter().zip(&theirs).zip(&ours) {
        assert_eq!(theirs, ours, "{words:?} over {store:?}: left Debian's library, right ours");
    }
    ours
}

#[rstest]
fn the_tools_do_the_same(#[values(Store::Ours, Store::C, Store::Ocaml)] store: Store) {
    let long = "v".repeat(4000);
    let too_long = "v".repeat(4093);
    let many: Vec<String> = (1..=40).map(|domid| format!("r{domid}")).collect();
    let mut chmod = vec!["xenstore-chmod", "/vm/a", "n0"];
    chmod.extend(many.iter().map(String::as_str));
    let control = format!("{XEN_BIN}/xenstore-control");
    // Every kind of byte, as the tools write it.
    let bytes = r#"\000\007\x08\t\n\r\x1f "\\~\x7f\x80\xff"#;
    let write_bytes = ["xenstore-write", "/vm/bytes", bytes];
    let write_long = ["xenstore-write", "/vm/long", &long];
    let write_longer = ["xenstore-write", "/vm/longer", &too_long];
    let controls: [&[&str]; 4] =
        [&[&control, "check"], &[&control, "print", "hello"], &[&control, "bogus"], &[&control]];
    let mut script: Vec<&[&str]> = vec![
        &["xenstore-write", "/vm/a", "1", "/vm/b/c", "two words", "/vm/empty", ""],
        &["xenstore-read", "/vm/a", "/vm/b/c", "/vm/empty"],
        &["xenstore-read", "-p", "/vm/a", "/vm/b/c"],
        &["xenstore-read", "/vm/none"],
        &["xenstore-read", "//"],
        &["xenstore-write", "/vm/escaped", r"\001\x41\t\n\r\\\q\"],
        &write_bytes,
        &["xenstore-read", "/vm/bytes"],
        &["xenstore-read", "-R", "/vm/bytes"],
        &["xenstore-write", "/vm/dash", "-", "/vm/equals", "a=b c"],
        &["xenstore-write", "/vm/odd", "1", "/vm/odder"],
        &["xenstore-write"],
        &["xenstore-read", "/vm/escaped"],
        &["xenstore-read", "-R", "/vm/escaped"],
        &write_long,
        &["xenstore-read", "/vm/long"],
        &write_longer,
        &["xenstore-list", "/vm"],
        &["xenstore-list", "-p", "/vm"],
        &["xenstore-list", "/vm/empty"],
        &["xenstore-list", "/none"],
        &["xenstore-exists", "/vm/a", "/vm/b"],
        &["xenstore-exists", "/vm/a", "/vm/none"],
        &chmod,
        &["xenstore-chmod", "-r", "/vm/b", "b5"],
        &["xenstore-chmod", "-u", "/vm/b/c", "w6"],
        &["xenstore-chmod", "/vm/none", "n0"],
        &["xenstore-chmod", "/vm/a", "x0"],
        &["xenstore-ls", "/vm"],
        &["xenstore-ls", "-p", "/vm"],
        &["xenstore-ls", "-f", "/vm"],
        &["xenstore-ls", "-fp", "/vm"],
        &["xenstore-ls", "/none"],
        &["xenstore-watch", "-n", "1", "/vm"],
        &["xenstore-watch", "-n", "2", "/vm", "/none"],
        &["xenstore-watch", "-n", "1", "//"],
        &["xenstore-rm", "-t", "/vm/b/c"],
        &["xenstore-rm", "/vm"],
        &["xenstore-rm", "/none/deep"],
        &["xenstore-exists", "/vm"],
    ];
    script.extend(controls);
    let outcomes = same(store, &script);
    assert_eq!(outcomes[1].text(), "1\ntwo words\n\n");
    assert_eq!(outcomes[7].text(), format!("{bytes}\n"));
    assert_eq!(outcomes[8].stdout, b"\0\x07\x08\t\n\r\x1f \"\\~\x7f\x80\xff");
    assert_eq!([9, 10, 11].map(|number: usize| outcomes[number].status), [0, 1, 1]);
    // oxenstored takes no such value.
    assert_eq!(outcomes[15].text().len(), if store == Store::Ocaml { 0 } else { 4001 });
}

#[rstest]
fn a_large_directory_is_listed(#[values(Store::Ours, Store::C)] store: Store) {
    let paths: Vec<String> = (0..5000).map(|i| format!("/d/{i:04}")).collect();
    let writes: Vec<Vec<&str>> = paths
        .chunks(500)
        .map(|paths| ["xenstore-write"].into_iter().chain(paths.iter().flat_map(|path| [&path[..], "v"])).collect())
        .collect();
    let mut script: Vec<&[&str]> = writes.iter().map(Vec::as_slice).collect();
    let lists: [&[&str]; 3] = [&["xenstore-list", "/d"], &["xenstore-ls", "/d"], &["xenstore-ls", "-f", "/d"]];
    script.extend(lists);
    let outcomes = same(store, &script);
    for outcome in &outcomes[writes.len()..] {
        assert_eq!((outcome.status, outcome.text().lines().count()), (0, 5000));
    }
}

#[rstest]
fn xen_s_own_test_program_passes(
    #[values(Store::Ours, Store::C, Store::Ocaml)] store: Store,
    #[values(Library::Debian, Library::Ours)] library: Library,
) {
    let mut scene = stage(store);
    let program = format!("{XEN_BIN}/test-xenstore");
    let outcome = run(library, &scene, &[&program, "-i", "50"]);
    assert_eq!(outcome.status, 0, "{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(outcome.text().lines().count(), 12, "{}", outcome.text());
    let outcome = run(library, &scene, &[&program, "-r", "1"]);
    assert_eq!(outcome.status, 0, "{}", String::from_utf8_lossy(&outcome.stderr));
    scene.assert_alive();
}

#[test]
fn walks_go_on_while_nodes_vanish_and_many_walk_at_once() {
    let mut scene = stage(Store::Ours);
    let mut dom0 = scene.dom0();
    let walk = |path: &'static str| {
        let mut command = Command::new("xenstore-ls");
        command.args(["-f", path]).env("XENSTORED_PATH", scene.host.socket()).stdin(Stdio::null());
        Library::Ours.load_into(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("xenstore-ls starts")
    };
    let finish = |walk: Child| -> Outcome { walk.wait_with_output().expect("it can be waited for").into() };
    for round in 0..10 {
        for i in 0..1000 {
            dom0.write(&format!("/d/{i:04}"), b"v");
        }
        let walking = walk("/d");
        for i in 0..999 {
            assert_eq!(dom0.request(Op::Rm, format!("/d/{i:04}\0").as_bytes()), Ok(b"OK\0".to_vec()));
        }
        let outcome = finish(walking);
        assert_eq!(outcome.status, 0, "round {round}: {}", String::from_utf8_lossy(&outcome.stderr));
        assert!(outcome.text().ends_with("/d/0999 = \"v\"\n"), "round {round}: {}", outcome.text());
    }
    for vm in 0..50 {
        (0..300).for_each(|i| dom0.write(&format!("/vm/{vm:02}/{i:03}"), b"v"));
    }
    // As deep as a path can be.
    dom0.write(&"/d".repeat(1000), b"v");
    let walks: Vec<_> = (0..20).map(|_| walk("/vm")).collect();
    let texts: Vec<_> = walks.into_iter().map(|walk| finish(walk).text()).collect();
    assert_eq!(texts[0].lines().count(), 50 * 301);
    assert!(texts.iter().all(|text| *text == texts[0]));
    assert_eq!(finish(walk("/d/d")).text().lines().count(), 998);
    scene.assert_alive();
}

#[test]
fn a_watching_tool_ends_alike_when_the_daemon_dies() {
    let [theirs, ours] = Library::BOTH.map(|library| {
        let mut scene = stage(Store::Ours);
        let mut command = Command::new("xenstore-watch");
        command.args(["-n", "3", "/vm"]).env("XENSTORED_PATH", scene.host.socket()).stdin(Stdio::null());
        library.load_into(&mut command);
        let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("xenstore-watch starts");
        let mut line = [0; 4];
        tool.stdout.as_mut().expect("its output is piped").read_exact(&mut line).expect("the first event");
        scene.kill();
        let outcome: Outcome = tool.wait_with_output().expect("it can be waited for").into();
        (line, outcome)
    });
    assert_eq!(theirs, ours, "left Debian's library, right ours");
}

/// The tools of Debian have no such option; the library has a variable.
#[test]
fn tools_wait_for_a_daemon_that_is_yet_to_start() {
    let dir = tempfile::Builder::new().prefix("xs-").tempdir().expect("a temporary directory");
    let tool = |patience: &str| {
        let mut command = Command::new("timeout");
        command.args(["60", "xenstore-exists", "/"]).env("XENSTORED_PATH", dir.path().join("socket"));
        Library::Ours.load_into(&mut command);
        command.env("XENSTORE_WAIT", patience).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the tool starts")
    };
    let finish = |tool: Child| -> Outcome { tool.wait_with_output().expect("it can be waited for").into() };
    let impatient = finish(tool("0.05"));
    assert_eq!(impatient.status, 1);
    assert!(String::from_utf8_lossy(&impatient.stderr).contains("No such file or directory"));
    let patient = tool("50");
    let daemon = Starter::new(Backend::Ours).start_in(dir);
    assert_eq!(finish(patient).status, 0);
    drop(daemon);
}

/// These open the store and then look for a hypervisor, which is not there: they must get exactly as far.
#[test]
fn programs_without_a_hypervisor_get_as_far() {
    let [console, daemon, lowmem, hptool, init, paging, domain] = [
        "xenconsole",
        "xenconsoled",
        "xen-lowmemd",
        "xen-hptool",
        "xen-init-dom0",
        "xenpaging",
        "init-xenstore-domain",
    ]
    .map(|name| format!("{XEN_BIN}/{name}"));
    let [xl, top] = ["xl", "xentop"].map(|name| format!("{XEN_BIN}/{name}"));
    let script: [&[&str]; 14] = [
        &["xenstore-write", "/local/domain/0/name", "Domain-0"],
        &[&xl, "list"],
        &[&xl, "info"],
        &[&xl, "vcpu-list"],
        &[&xl, "console", "1"],
        &[&top, "-b", "-i", "1"],
        &[&console, "1"],
        &[&daemon, "-i"],
        &[&lowmem],
        &[&hptool, "cpu-offline", "1"],
        &[&init],
        &[&paging, "-d", "1", "-f", "/none"],
        &[&domain, "--kernel", "/none", "--memory", "8"],
        &["xenstore-ls", "-f", "/local"],
    ];
    same(Store::Ours, &script);
}
