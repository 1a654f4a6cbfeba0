//! The daemon's death, forks, storms of events and threads.

use crate::library::Library;
use crate::program::{Built, Run};
use crate::stage::stage;
use rstest::rstest;
use xenstored_tests::Store;

#[rstest]
fn a_child_that_lets_go_leaves_its_parent_alone(
    #[values(Store::Ours, Store::C, Store::Ocaml)] store: Store,
    #[values(Library::Debian, Library::Ours)] library: Library,
) {
    let scene = stage(store);
    let output = Run::new("fork", library).at(scene.host.socket()).args(&["destroy"]).output();
    assert!(output.contains("read over the child's own: 5 bytes \"value\"\nend of the child: 0\n"), "{output}");
    assert!(output.contains("event in the parent: 2: \"/w/x\" \"t\"\nno other: fails: EAGAIN\n"), "{output}");
}

/// With Debian's library such a child waits for ever, or takes its parent's replies.
#[rstest]
fn a_child_that_goes_on_gets_errors_and_its_parent_loses_nothing(#[values(Built::Debian, Built::Static)] built: Built) {
    let scene = stage(Store::Ours);
    let output = Run::new("fork", Library::Ours).built(built).at(scene.host.socket()).args(&["use"]).output();
    for call in ["read", "write", "watch", "event", "waiting"] {
        assert!(output.contains(&format!("{call} in the child: fails: EBADF\n")), "{output}");
    }
    assert!(output.contains("transaction in the child: 0\nclosed in the child\nend of the child: 0\n"), "{output}");
    assert!(output.contains("read in the parent: 5 bytes \"value\"\n"), "{output}");
    assert!(output.contains("event in the parent: 2: \"/w/x\" \"t\"\nno other: fails: EAGAIN\n"), "{output}");
}

/// Debian's library closes its descriptor twice, which may be another's by then, and leaves those alone who poll.
#[rstest]
fn everybody_who_waits_is_told_of_the_death(#[values(Store::Ours, Store::C, Store::Ocaml)] store: Store) {
    let mut scene = stage(store);
    let waiting = Run::new("death", Library::Ours).at(scene.host.socket()).start();
    scene.kill();
    let output = waiting.finish();
    let (_, output) = output.split_once("> end the daemon\n").expect("the cue");
    assert_eq!(
        output,
        "all readers returned\nthe waiter returned\nthe descriptor is readable: yes\nfiles of others closed: 0\n\
         read: fails: EBADF\nwrite: fails: EBADF\nwatch: fails: EBADF\nevent: fails: EINVAL\ntransaction: 0\nclosed\n"
    );
}

#[rstest]
#[case::debian(Library::Debian, Built::Debian)]
#[case::ours(Library::Ours, Built::Debian)]
#[case::ours_static(Library::Ours, Built::Static)]
fn handles_close_in_the_middle_of_a_storm(#[case] library: Library, #[case] built: Built) {
    let mut scene = stage(Store::Ours);
    let output = Run::new("storm", library).built(built).at(scene.host.socket()).args(&["1000"]).output();
    assert_eq!(output, "failures: 0\nthe writer returned\n");
    scene.assert_alive();
}

#[rstest]
fn a_daemon_dies_in_the_middle_of_a_storm(#[values(Library::Debian, Library::Ours)] library: Library) {
    for _ in 0..5 {
        let mut scene = stage(Store::Ours);
        let waiting = Run::new("storm", library).at(scene.host.socket()).args(&["10", "die"]).start();
        scene.kill();
        let output = waiting.finish();
        let told = "failures: 0\n> end the daemon\nthe taker returned\nthe writer returned\n";
        assert_eq!(output, told, "{library:?}");
    }
}

#[rstest]
fn threads_share_a_handle(
    #[values(Store::Ours, Store::C, Store::Ocaml)] store: Store,
    #[values(Library::Debian, Library::Ours)] library: Library,
) {
    let scene = stage(store);
    let output = Run::new("threads", library).at(scene.host.socket()).args(&["16", "200"]).output();
    assert_eq!(output, "wrong: 0\nevents: 3200\n");
}

/// Debian's library follows a NULL.
#[test]
fn no_call_follows_a_handle_that_is_null() {
    let output = Run::new("nulls", Library::Ours).built(Built::Ours).output();
    let answers = ["fileno: -1", "fileno's errno is EINVAL: 1", "get_quota_names: no", "closed"];
    for line in output.lines() {
        assert!(line.ends_with(": fails: EINVAL") || answers.contains(&line), "{line}");
    }
    assert_eq!(output.lines().count(), 35, "{output}");
}

/// Nor any other, nor a length.
#[test]
fn wrong_arguments_are_errors_and_the_handle_goes_on() {
    let scene = stage(Store::Ours);
    let output = Run::new("wrong", Library::Ours).built(Built::Ours).at(scene.host.socket()).output();
    let (strings, rest) = output.split_once("lengths\n").expect("lengths");
    let (lengths, places) = rest.split_once("places\n").expect("places");
    for line in strings.lines() {
        assert!(line.ends_with(": fails: EINVAL"), "{line}");
    }
    for line in lengths.lines() {
        assert!(line.ends_with(": fails: E2BIG"), "{line}");
    }
    assert_eq!(
        places,
        "value: \"v\"\nfeatures: true\nfeatures of a domain: true\nquota: true\nwatch: true\n\
         event: 2: \"/a\" \"t\"\nnothing to write: true\nno strings: true\n\
         the handle goes on: 1 bytes \"v\"\n"
    );
}
