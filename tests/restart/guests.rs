//! Guests on their rings, over a SIGKILL of the daemon.

use crate::scene::{OK, Scene, is_introduced, write};
use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Event, wait};

/// With the event channels kept, and with all ports bound anew.
const KEPT: &[&str] = &["--keep", "5"];
const BOUND_ANEW: &[&str] = &[];

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn a_guest_goes_on_with_all_that_it_had(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3, 4]);
    let mut guest = scene.guest(3);
    write(&mut guest, "data", b"before").unwrap();
    guest.watch("data", "token");
    let id = guest.start_transaction();
    guest.request_in(id, Op::Write, b"inside\x001").unwrap();
    scene.kill();
    scene.start_again();
    assert_eq!(guest.read("data"), Ok(b"before".to_vec()));
    assert_eq!(guest.request_in(id, Op::Read, b"inside\0"), Ok(b"1".to_vec()));
    assert_eq!(guest.commit(id), Ok(()));
    scene.dom0().write("/local/domain/3/data", b"after");
    assert_eq!(guest.event(), Ok(Event::new("data", "token")));
    assert_eq!(write(&mut scene.guest(4), "own", b"x"), Ok(OK.to_vec()), "the other one is served too");
}

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn a_guest_goes_on_after_a_stop_and_its_death_is_noticed(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3, 4]);
    let mut guest = scene.guest(3);
    write(&mut guest, "data", b"before").unwrap();
    for round in 0..3 {
        scene.stop();
        assert!(!scene.ring(3).is_bound(), "a daemon of another kind could not follow");
        scene.start_again();
        // The guest sleeps until it is signalled.
        assert_eq!(guest.read("data"), Ok(b"before".to_vec()), "round {round}: {}", scene.log());
    }
    let mut watcher = scene.dom0();
    watcher.watch("@releaseDomain", "gone");
    drop(guest);
    scene.host.destroy(3).unwrap();
    assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")));
}

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn each_guest_has_its_own_port_after_a_stop(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3, 4]);
    // The port of the one that is gone is the newcomer's, and lower than that of the guest before it.
    scene.destroy(3);
    scene.add(5);
    scene.stop();
    scene.start_again();
    let asks_for_its_path = |scene: &Scene, domid: u16| {
        // It sleeps until it is signalled.
        let reply = scene.ring_client(domid).request(Op::GetDomainPath, 0, format!("{domid}\0").as_bytes());
        let payload = reply.map(|message| message.payload).unwrap_or_else(|error| panic!("{error}: {}", scene.log()));
        assert_eq!(payload, format!("/local/domain/{domid}\0").into_bytes());
    };
    asks_for_its_path(&scene, 5);
    asks_for_its_path(&scene, 4);
    scene.destroy(4);
    asks_for_its_path(&scene, 5);
}

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn requests_put_while_no_daemon_is_there_are_served_after_a_stop(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3]);
    let mut guest = scene.guest(3);
    write(&mut guest, "a", b"1").unwrap();
    scene.stop();
    guest.send(Op::Write.number(), 0, b"a\x002").unwrap();
    guest.send(Op::Read.number(), 0, b"a\0").unwrap();
    scene.start_again();
    assert_eq!(guest.reply().unwrap().payload, OK);
    assert_eq!(guest.reply().unwrap().payload, b"2");
}

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn requests_put_while_no_daemon_is_there_are_served(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3]);
    let mut guest = scene.guest(3);
    write(&mut guest, "a", b"1").unwrap();
    scene.kill();
    guest.send(Op::Write.number(), 0, b"a\x002").unwrap();
    guest.send(Op::Read.number(), 0, b"a\0").unwrap();
    scene.start_again();
    assert_eq!(guest.reply().unwrap().payload, OK);
    assert_eq!(guest.reply().unwrap().payload, b"2");
}

#[rstest]
#[case::kept(KEPT)]
#[case::bound_anew(BOUND_ANEW)]
fn what_is_read_only_leaves_no_record_and_no_gap(#[case] keep: &[&str]) {
    let mut scene = Scene::with_args(keep, &[3, 4]);
    let (mut guest, mut other) = (scene.guest(3), scene.guest(4));
    other.watch("/local/domain/3", "t");
    write(&mut guest, "a", b"1").unwrap();
    for round in 0..3 {
        // The rings move on without a record, ...
        for _ in 0..100 {
            assert_eq!(guest.read("a").map(|value| value.len()), Ok(1));
            assert_eq!(other.request(Op::GetDomainPath, b"4\0").map(|path| path.len()), Ok(16));
        }
        scene.kill();
        scene.start_again();
        // ... and what comes next is neither lost nor told twice.
        write(&mut guest, "a", round.to_string().as_bytes()).unwrap();
        assert_eq!(guest.read("a"), Ok(round.to_string().into_bytes()));
    }
    assert_eq!(other.read("/local/domain/4"), Ok(Vec::new()));
}

#[test]
fn a_domain_that_dies_while_no_daemon_is_there_is_found_dead() {
    let mut scene = Scene::with_args(KEPT, &[3, 4]);
    let mut guest = scene.guest(3);
    write(&mut guest, "a", b"1").unwrap();
    drop(guest);
    let mut watcher = scene.dom0();
    watcher.watch("@releaseDomain", "gone");
    // A connection that holds a watch is kept once the turn of its reply is over.
    scene.dom0().read("/").unwrap();
    scene.kill();
    scene.host.destroy(3).unwrap();
    scene.start_again();
    let mut dom0 = scene.dom0();
    wait::until("the death is noticed", || !is_introduced(&mut dom0, 3));
    assert_eq!(dom0.read("/local/domain/3"), Err("ENOENT".into()));
    assert!(is_introduced(&mut dom0, 4));
    assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")));
}

#[test]
fn an_introduction_after_the_restart_works_as_before() {
    let mut scene = Scene::with_args(KEPT, &[3]);
    scene.kill();
    scene.start_again();
    scene.add(9);
    assert_eq!(scene.guest(9).request(Op::GetDomainPath, b"9\0"), Ok(b"/local/domain/9\0".to_vec()));
    scene.destroy(3);
    scene.kill();
    scene.start_again();
    let mut dom0 = scene.dom0();
    assert!(is_introduced(&mut dom0, 9) && !is_introduced(&mut dom0, 3));
}
