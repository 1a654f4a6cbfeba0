//! A daemon that is started by itself takes the place of one that runs.

use xenstore_wire::Op;
use xenstored_tests::scene::{OK, Scene, ask, write};
use xenstored_tests::{Event, Store, our_binary, wait};

/// Starts a daemon beside the one that runs, and waits until only that is left.
fn start(scene: &mut Scene) {
    scene.start_unawaited();
    let pid = scene.pid();
    wait::until("it has the place", || scene.daemons() == [pid]);
    assert!(scene.dom0().read("/").is_ok(), "{}", scene.log());
}

#[test]
fn one_of_this_kind_leaves_its_place_with_guests_and_clients() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[1, 2]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    guest.watch("a", "t");
    let id = dom0.start_transaction();
    dom0.request_in(id, Op::Write, b"/held\0value").unwrap();
    let (first, keepers) = (scene.pid(), scene.keepers());
    scene.add_args(&["--replace"]);
    start(&mut scene);
    assert_ne!(scene.pid(), first);
    wait::until("there is another keeper, and only that", || {
        let now = scene.keepers();
        now.len() == 1 && now != keepers
    });
    assert_eq!(dom0.commit(id), Ok(()), "{}", scene.log());
    assert_eq!(write(&mut guest, "a", b"1"), Ok(OK.to_vec()));
    assert_eq!(guest.event(), Ok(Event::new("a", "t")));
    // What comes after that is as ever.
    start(&mut scene);
    scene.kill();
    assert_eq!(dom0.read("/held"), Ok(b"value".to_vec()), "{}", scene.log());
    assert_eq!(guest.read("a"), Ok(b"1".to_vec()));
}

#[test]
fn one_that_was_taken_over_leaves_its_place() {
    let mut scene = Scene::of(Store::C, &[1]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    dom0.write("/a", b"1");
    for words in [&["live-update", "-f", our_binary().to_str().unwrap()][..], &["live-update", "-s"]] {
        assert_eq!(ask(&mut dom0, Op::Control, words), Ok(OK.to_vec()), "{}", scene.log());
    }
    scene.become_ours();
    scene.add_args(&["--replace", "--keep", "5"]);
    start(&mut scene);
    assert_eq!(dom0.read("/a"), Ok(b"1".to_vec()), "{}", scene.log());
    assert_eq!(guest.request(Op::GetDomainPath, b"1\0"), Ok(b"/local/domain/1\0".to_vec()));
}

#[test]
fn where_nothing_runs_it_starts_as_ever() {
    let mut scene = Scene::with_args(&["--keep", "5", "--replace"], &[1]);
    let mut guest = scene.guest(1);
    write(&mut guest, "a", b"1").unwrap();
    scene.stop();
    scene.start_again();
    assert_eq!(guest.read("a"), Ok(b"1".to_vec()), "{}", scene.log());
}

#[test]
fn one_that_would_lose_its_store_keeps_its_place() {
    let mut scene = Scene::with_args(&["--no-journal"], &[1]);
    let mut guest = scene.guest(1);
    write(&mut guest, "a", b"1").unwrap();
    let before = scene.pid();
    scene.add_args(&["--replace"]);
    scene.start_unawaited();
    assert_eq!(scene.ended().code(), Some(1));
    assert!(scene.log().contains("does not leave its place: it has no journal"), "{}", scene.log());
    assert!(scene.daemons() == [before] && guest.read("a") == Ok(b"1".to_vec()));
}

#[test]
fn another_kind_keeps_its_place() {
    let mut scene = Scene::of(Store::C, &[1]);
    let mut dom0 = scene.dom0();
    scene.become_ours();
    scene.add_args(&["--replace"]);
    scene.start_unawaited();
    assert_eq!(scene.ended().code(), Some(1));
    let said = scene.log();
    assert!(said.contains("another xenstored serves") && said.contains("xenstore-control live-update /"), "{said}");
    dom0.write("/a", b"1");
}
