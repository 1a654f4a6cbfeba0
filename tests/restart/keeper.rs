//! A daemon that ends while its keeper is busy, or has hardly begun.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use xenstore_wire::Op;
use xenstored_tests::scene::{Scene, write};
use xenstored_tests::{process, wait};

const KEPT: &[&str] = &["--keep", "5"];

#[rstest]
#[case::stopped(Scene::stop)]
#[case::killed(Scene::kill)]
fn a_daemon_that_ends_as_soon_as_it_serves_is_followed(#[case] end: fn(&mut Scene)) {
    let mut scene = Scene::with_args(KEPT, &[3]);
    let mut guest = scene.guest(3);
    write(&mut guest, "data", b"before").unwrap();
    for round in 0..20 {
        end(&mut scene);
        scene.start_again();
        assert_eq!(guest.read("data"), Ok(b"before".to_vec()), "round {round}: {}", scene.log());
    }
}

#[test]
fn who_comes_while_the_keeper_has_yet_to_hear_of_the_end_gets_what_is_held() {
    let mut scene = Scene::with_args(KEPT, &[3]);
    // The keeper's parent is this daemon no more: its end would wake a keeper that sleeps.
    scene.kill();
    scene.start_again();
    let mut guest = scene.guest(3);
    let mut watcher = scene.dom0();
    watcher.watch("/local/domain/3/data", "token");
    let [keeper] = scene.keepers()[..] else { panic!("one keeper, and not {:?}", scene.keepers()) };
    let signal = |signal| kill(Pid::from_raw(i32::try_from(keeper).unwrap()), signal).unwrap();
    signal(Signal::SIGSTOP);
    scene.stop();
    let before = entries(&scene, "keeper");
    scene.start_unawaited();
    wait::until("the next daemon is at the keeper's door", || entries(&scene, "keeper") > before);
    signal(Signal::SIGCONT);
    assert_eq!(write(&mut guest, "data", b"after"), Ok(b"OK\0".to_vec()), "{}", scene.log());
    assert_eq!(watcher.event().map(|event| event.token), Ok("token".into()), "{}", scene.log());
    assert_eq!(scene.keepers(), [keeper]);
}

#[test]
fn who_asks_a_daemon_that_is_about_to_die_waits_for_no_answer_of_it() {
    let mut scene = Scene::with_args(KEPT, &[3]);
    let old = scene.pid();
    scene.signal(Signal::SIGSTOP);
    let before = entries(&scene, "socket");
    scene.start_unawaited();
    let new = scene.pid();
    wait::until("the new daemon asks the old one", || entries(&scene, "socket") > before);
    // The keeper starts one itself where none has come after a second.
    kill(Pid::from_raw(i32::try_from(old).unwrap()), Signal::SIGKILL).unwrap();
    let mut guest = scene.guest(3);
    assert_eq!(write(&mut guest, "data", b"after"), Ok(b"OK\0".to_vec()), "{}", scene.log());
    assert!(scene.daemons().contains(&new), "it is not the keeper that started one: {}", scene.log());
    scene.assert_alive();
}

#[rstest]
#[case::nobody_followed(false)]
#[case::a_daemon_of_another_kind_followed(true)]
fn a_keeper_that_gives_up_removes_the_socket_of_its_daemon_and_no_other(#[case] followed: bool) {
    let mut scene = Scene::with_args(&["--keep", "1"], &[]);
    let socket = scene.host.socket();
    // Standard streams, the link, its socket, the daemon's process, and then the listener and the event channels.
    let holds = |pid: &u32| process::descriptors(*pid) >= 8;
    wait::until("the keeper holds what there is", || scene.keepers().iter().any(holds));
    scene.stop();
    assert!(UnixStream::connect(&socket).is_ok(), "it is held");
    let other = followed.then(|| {
        fs::remove_file(&socket).unwrap();
        UnixListener::bind(&socket).unwrap()
    });
    wait::until("the keeper gives up", || scene.keepers().is_empty());
    assert_eq!(fs::exists(&socket).unwrap(), other.is_some());
}

#[test]
fn a_store_begins_afresh_though_a_keeper_holds_what_was_of_another() {
    let mut scene = Scene::with_args(KEPT, &[3]);
    scene.dom0().write("/data", b"before");
    scene.kill();
    scene.add_args(&["--no-recovery"]);
    scene.start_again();
    assert_eq!(scene.dom0().read("/data"), Err("ENOENT".into()));
    // The ports that were bound are free, that of the kernel of domain 0 too.
    scene.host.introduce(3).unwrap();
    assert_eq!(scene.guest(3).request(Op::GetDomainPath, b"3\0"), Ok(b"/local/domain/3\0".to_vec()));
    wait::until("the keeper of before is gone", || scene.keepers().len() == 1);
}

/// How often the kernel lists a socket of the run directory: once, and once more for each who is or waits to be let in.
fn entries(scene: &Scene, socket: &str) -> usize {
    let socket = scene.host.dir().join("run").join(socket);
    let sockets = fs::read_to_string("/proc/net/unix").expect("the kernel tells of its sockets");
    sockets.lines().filter(|line| line.ends_with(socket.to_str().expect("it is text"))).count()
}
