//! A request that ends the daemon each time it is executed.

use nix::sys::signal::Signal;
use xenstore_journal::{Directory, LogFile};
use xenstore_wire::Op;
use xenstored_tests::scene::{OK, Scene, write};
use xenstored_tests::{Client, wait};

/// A daemon without a keeper, so that nobody starts the next one but the test, and a guest's subtree that takes a while to
/// remove.
fn with_large_subtree(nodes: usize) -> (Scene, Client) {
    let scene = Scene::with_args(&["-Q", "nodes=0", "-Q", "memory=0"], &[1]);
    let mut guest = scene.guest(1);
    for some in (0..nodes).collect::<Vec<_>>().chunks(10) {
        for number in some {
            guest.send(Op::Write.number(), 0, format!("large/{}/{number}\0v", number % 40).as_bytes()).unwrap();
        }
        some.iter().for_each(|_| drop(guest.reply().unwrap()));
    }
    (scene, guest)
}

/// Kills the daemon as soon as it executes a request. Tells whether it was still at it then.
fn kill_in_execution(scene: &mut Scene) -> bool {
    wait::until_busily("a request is executed", || executing(scene).is_some());
    scene.signal(Signal::SIGKILL);
    scene.ended();
    executing(scene).is_some()
}

/// Which request is executed at this moment, or was at the death.
fn executing(scene: &Scene) -> Option<u64> {
    LogFile::executing_now(&scene.host.dir().join("run/journal/log.1")).unwrap()
}

/// As the first two daemons leave it that the request met, whose guest still waits for an answer.
fn killed_twice() -> (Scene, Client) {
    // Where the machine stalls in between, the request is over before its daemon is dead.
    for nodes in [10_000, 20_000, 40_000, 80_000] {
        let (mut scene, mut guest) = with_large_subtree(nodes);
        guest.send(Op::Rm.number(), 0, b"large\0").unwrap();
        if kill_in_execution(&mut scene) {
            scene.start_unawaited();
            wait::until_busily("that death is counted", || executing(&scene).is_none());
            if kill_in_execution(&mut scene) {
                return (scene, guest);
            }
        }
    }
    panic!("no request was slow enough to be met");
}

#[test]
fn a_request_that_ends_the_daemon_twice_is_refused_and_not_executed() {
    let (mut scene, mut guest) = killed_twice();
    scene.start_again();
    let reply = guest.reply().unwrap();
    assert_eq!((reply.header.op, &reply.payload[..]), (Op::Error.number(), &b"EIO\0"[..]));
    assert_eq!(guest.read("large/3/3"), Ok(b"v".to_vec()));
    let said = scene.log();
    assert!(said.contains("died while it executed a request"), "{said}");
    assert!(said.contains("it is answered EIO from now on"), "{said}");
    // It stays refused, whichever way the store is had back.
    for _ in 0..2 {
        scene.kill();
        scene.start_again();
        assert_eq!(guest.read("large/3/3"), Ok(b"v".to_vec()));
    }
    assert_eq!(guest.request(Op::Rm, b"large\0"), Ok(OK.to_vec()), "another one may");
}

#[test]
fn a_request_that_met_one_death_is_executed_again() {
    for nodes in [10_000, 20_000, 40_000, 80_000] {
        let (mut scene, mut guest) = with_large_subtree(nodes);
        guest.send(Op::Rm.number(), 0, b"large\0").unwrap();
        if kill_in_execution(&mut scene) {
            scene.start_again();
            assert_eq!(guest.reply().unwrap().payload, OK);
            assert_eq!(guest.read("large"), Err("ENOENT".into()));
            return;
        }
    }
    panic!("no request was slow enough to be met");
}

#[test]
fn nothing_is_suspected_of_a_death_between_requests() {
    let (mut scene, mut guest) = with_large_subtree(100);
    for _ in 0..3 {
        scene.kill();
        scene.start_again();
        assert_eq!(write(&mut guest, "large/more", b"v"), Ok(OK.to_vec()));
    }
    let journal = Directory::open(&scene.host.dir().join("run/journal")).unwrap();
    let last = journal.newest().unwrap().plan.unwrap().logs.pop().unwrap();
    let log = LogFile::open(&journal, last).unwrap();
    assert_eq!((log.suspect(), log.convicts().count()), (None, 0));
    assert!(!scene.log().contains("while it executed"), "{}", scene.log());
}
