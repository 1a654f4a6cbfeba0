//! Another daemon executes ours in its own place, with all guests and clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::scene::{OK, Scene, ask, is_introduced, perms, set_perms, write};
use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Client, Event, Setting, Store, our_binary, tools};

/// An executable file of a scene.
pub(crate) fn program(scene: &Scene, name: &str, content: &str) -> PathBuf {
    let file = scene.host.dir().join(name);
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// Has the daemon of a scene executed another program in its place, as `xenstore-control live-update` asks for it.
fn live_update(scene: &Scene, client: &mut Client, program: &str) {
    // oxenstored ends no text with a NUL.
    let mut say = |words: &[&str]| {
        let mut reply = ask(client, Op::Control, words)?;
        reply.retain(|&byte| byte != 0);
        String::from_utf8(reply).map_err(|error| error.to_string())
    };
    assert_eq!(say(&["live-update", "-f", program]).as_deref(), Ok("OK"));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match say(&["live-update", "-s", "-t", "5"]).as_deref() {
            Ok("OK") => return,
            Ok("BUSY") if Instant::now() < deadline => {}
            other => panic!("live update: {other:?}\n{}", scene.log()),
        }
    }
}

#[rstest]
#[case::c(Store::C)]
#[case::oxenstored(Store::Ocaml)]
fn guests_clients_and_watches_go_on(#[case] store: Store) {
    let domids: Vec<u16> = (1..=50).collect();
    let mut scene = Scene::of(store, &domids);
    let mut dom0 = scene.dom0();
    for &domid in &domids {
        let home = format!("/local/domain/{domid}");
        dom0.write(&home, b"");
        set_perms(&mut dom0, &home, &[&format!("n{domid}")]);
    }
    let mut guests: Vec<Client> = domids.iter().map(|&domid| scene.guest(domid)).collect();
    for (guest, domid) in guests.iter_mut().zip(&domids) {
        write(guest, "data", format!("of {domid}").as_bytes()).unwrap();
        guest.watch("data", "relative");
        guest.watch(&format!("/local/domain/{domid}"), "absolute");
    }
    let mut watcher = scene.dom0();
    watcher.watch("/local/domain/7", "dom0's");
    set_perms(&mut dom0, "/local/domain/9/data", &["n9", "r7", "b0"]);
    let before = scene.pid();

    live_update(&scene, &mut dom0, our_binary().to_str().unwrap());

    assert_eq!(scene.pid(), before, "in the same process");
    let control = ask(&mut dom0, Op::Control, &["help"]).unwrap();
    assert!(String::from_utf8_lossy(&control).contains("turns"), "it is ours: {}", scene.log());
    for (guest, domid) in guests.iter_mut().zip(&domids) {
        assert_eq!(guest.read("data"), Ok(format!("of {domid}").into_bytes()), "{}", scene.log());
        assert!(is_introduced(&mut dom0, *domid));
    }
    assert_eq!(perms(&mut dom0, "/local/domain/9/data"), Ok("n9 r7 b0".into()));
    dom0.write("/local/domain/7/data", b"new");
    assert_eq!(watcher.event(), Ok(Event::new("/local/domain/7/data", "dom0's")));
    let mut events = vec![guests[6].event().unwrap(), guests[6].event().unwrap()];
    events.sort();
    let want = [Event::new("/local/domain/7/data", "absolute"), Event::new("data", "relative")];
    assert_eq!(events, want);
    assert_eq!(write(&mut guests[6], "data", b"own"), Ok(OK.to_vec()));
    // What comes after: deaths, introductions, and the death of the daemon itself.
    drop(guests);
    scene.destroy(3);
    assert_eq!(dom0.read("/local/domain/3/data"), Err("ENOENT".into()));
    scene.add(60);
    let mut late = scene.guest(60);
    assert_eq!(late.request(Op::GetDomainPath, b"60\0"), Ok(b"/local/domain/60\0".to_vec()));
    // The keeper starts the next one, which understands what this one was started with.
    scene.kill();
    assert_eq!(dom0.read("/local/domain/7/data"), Ok(b"own".to_vec()), "{}", scene.log());
    assert_eq!(late.request(Op::GetDomainPath, b"60\0"), Ok(b"/local/domain/60\0".to_vec()));
}

#[test]
fn the_settings_of_oxenstored_hold_on() {
    let mut scene = Scene::of_with(Store::Ocaml, &[Setting::Nodes(77)], &[1]);
    let mut dom0 = scene.dom0();
    live_update(&scene, &mut dom0, our_binary().to_str().unwrap());
    assert_eq!(ask(&mut dom0, Op::GetQuota, &["nodes"]), Ok(b"77\0".to_vec()), "{}", scene.log());
    scene.kill();
    assert_eq!(ask(&mut dom0, Op::GetQuota, &["nodes"]), Ok(b"77\0".to_vec()), "{}", scene.log());
    live_update(&scene, &mut dom0, our_binary().to_str().unwrap());
    assert_eq!(ask(&mut dom0, Op::GetQuota, &["nodes"]), Ok(b"77\0".to_vec()), "{}", scene.log());
    assert_eq!(ask(&mut dom0, Op::GetQuota, &["watches"]), Ok(b"128\0".to_vec()), "of which its file says nothing");
}

#[rstest]
#[case::c(Store::C, "state_dump", "more")]
#[case::oxenstored(Store::Ocaml, "db", "watch,7")]
fn a_state_that_cannot_be_read_costs_nobody_the_store(#[case] store: Store, #[case] file: &str, #[case] more: &str) {
    let scene = Scene::of(store, &[1]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    dom0.write("/local/domain/1", b"");
    set_perms(&mut dom0, "/local/domain/1", &["n1"]);
    guest.watch("data", "token");
    // Something that the other daemon itself passes over, and ours does not.
    let (state, ours) = (scene.host.dir().join("run").join(file), our_binary());
    let script = format!("for word; do test \"$word\" != --help || exit 0; done; echo {more} >>{}", state.display());
    let spoiler = program(&scene, "spoiler", &format!("#!/bin/sh\n{script}\nexec {} \"$@\"\n", ours.display()));
    let before = fs::read_link(format!("/proc/{}/exe", scene.pid())).unwrap();

    live_update(&scene, &mut dom0, spoiler.to_str().unwrap());

    assert_eq!(fs::read_link(format!("/proc/{}/exe", scene.pid())).unwrap(), before, "{}", scene.log());
    assert_eq!(write(&mut guest, "data", b"value"), Ok(OK.to_vec()), "{}", scene.log());
    assert_eq!(guest.event(), Ok(Event::new("data", "token")));
    assert!(is_introduced(&mut dom0, 1));
    let named = fs::read_to_string(scene.host.dir().join("pid")).map(|pid| pid.trim().to_owned());
    // oxenstored's is where its configuration says.
    assert!(store == Store::Ocaml || named.is_ok_and(|pid| pid == scene.pid().to_string()));
}

/// A guest's and a client's view before and after a change of daemons.
#[test]
fn another_build_of_ours_goes_on_with_open_transactions() {
    let scene = Scene::with_args(&["--keep", "5"], &[1, 2]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    write(&mut guest, "a", b"1").unwrap();
    guest.watch("a", "t");
    let (of_guest, of_dom0) = (guest.start_transaction(), dom0.start_transaction());
    guest.request_in(of_guest, Op::Write, b"b\x002").unwrap();
    dom0.request_in(of_dom0, Op::Write, b"/c\x003").unwrap();
    let copy = scene.host.dir().join("another-build");
    fs::copy(our_binary(), &copy).unwrap();
    let before = scene.pid();

    live_update(&scene, &mut dom0, copy.to_str().unwrap());

    assert_eq!(fs::read_link(format!("/proc/{before}/exe")).unwrap(), copy, "{}", scene.log());
    assert_eq!((guest.commit(of_guest), dom0.commit(of_dom0)), (Ok(()), Ok(())));
    assert_eq!((guest.read("b"), dom0.read("/c")), (Ok(b"2".to_vec()), Ok(b"3".to_vec())));
    dom0.write("/local/domain/1/a", b"4");
    assert_eq!(guest.event(), Ok(Event::new("a", "t")));
    // A guest that has another port now, as drivers have after a resume.
    let old = scene.host.domain(2).unwrap().port;
    assert_ne!(scene.host.renew_port(2).unwrap(), old);
    scene.host.introduce(2).unwrap();
    let mut guest = scene.ring_client(2);
    assert_eq!(guest.request(Op::GetDomainPath, 0, b"2\0").unwrap().payload, b"/local/domain/2\0");
}

#[test]
fn to_the_c_daemon_and_back() {
    let scene = Scene::with_args(&["--keep", "5"], &[1, 2]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    write(&mut guest, "a", b"1").unwrap();
    guest.watch("a", "t");
    set_perms(&mut dom0, "/local/domain/1/a", &["n1", "r2"]);
    let c = format!("{}/xenstored", tools::XEN_BIN);

    live_update(&scene, &mut dom0, &c);

    assert_eq!(guest.read("a"), Ok(b"1".to_vec()), "{}", scene.log());
    assert_eq!(perms(&mut dom0, "/local/domain/1/a"), Ok("n1 r2".into()));
    dom0.write("/local/domain/1/a", b"2");
    assert_eq!(guest.event(), Ok(Event::new("a", "t")));
    let exe = fs::read_link(format!("/proc/{}/exe", scene.pid())).unwrap();
    assert_eq!(exe.to_str().unwrap(), c);

    live_update(&scene, &mut dom0, our_binary().to_str().unwrap());

    assert_eq!(guest.read("a"), Ok(b"2".to_vec()), "{}", scene.log());
    dom0.write("/local/domain/1/a", b"3");
    assert_eq!(guest.event(), Ok(Event::new("a", "t")));
    scene.destroy(2);
}

#[test]
fn an_open_transaction_holds_up_the_c_daemon_until_it_is_forced() {
    let scene = Scene::with_args(&["--keep", "5"], &[1]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    let id = guest.start_transaction();
    let c = format!("{}/xenstored", tools::XEN_BIN);
    let mut say = |words: &[&str]| {
        let reply = ask(&mut dom0, Op::Control, words).unwrap();
        String::from_utf8(reply).unwrap().trim_end_matches('\0').to_owned()
    };
    assert_eq!(say(&["live-update", "-f", &c]), "OK");
    assert_eq!(say(&["live-update", "-s", "-t", "9"]), "BUSY");
    let refused = say(&["live-update", "-s", "-t", "0"]);
    assert!(refused.starts_with("Domains with long running transactions:\nDomain 1: "), "{refused}");
    assert_eq!(guest.request_in(id, Op::Write, b"a\x001"), Ok(OK.to_vec()), "all goes on");
    assert_eq!(say(&["live-update", "-f", &c]), "OK");
    assert_eq!(say(&["live-update", "-s", "-t", "0", "-F"]), "OK");
    assert_eq!(guest.request_in(id, Op::Write, b"a\x001"), Err("ENOENT".into()));
}

#[rstest]
#[case::another_takes_over(false)]
#[case::the_update_is_given_up(true)]
fn while_open_transactions_are_waited_for_new_ones_wait_too(#[case] given_up: bool) {
    let scene = Scene::with_args(&["--keep", "5"], &[1, 2]);
    let (mut dom0, mut open, mut new) = (scene.dom0(), scene.guest(1), scene.guest(2));
    let id = open.start_transaction();
    open.request_in(id, Op::Write, b"a\x001").unwrap();
    let mut say = |words: &[&str]| {
        let reply = ask(&mut dom0, Op::Control, words).unwrap();
        String::from_utf8(reply).unwrap().trim_end_matches('\0').to_owned()
    };
    assert_eq!(say(&["live-update", "-f", &format!("{}/xenstored", tools::XEN_BIN)]), "OK");
    assert_eq!(say(&["live-update", "-s", "-t", "600"]), "BUSY");
    let waits = new.send(Op::TransactionStart.number(), 0, b"\0").unwrap();
    assert_ne!(open.start_transaction(), id, "who has one may open another");
    assert_eq!(say(&["live-update", "-s", "-t", "600"]), "BUSY");
    // It would have been answered before that.
    assert!(!new.has_arrived());
    if given_up {
        assert_eq!(say(&["live-update", "-a"]), "OK");
    } else {
        open.request_in(0, Op::ResetWatches, b"\0").unwrap();
        assert_eq!(say(&["live-update", "-s", "-t", "600"]), "OK");
    }
    let started = new.reply().unwrap();
    assert_eq!((started.header.req_id, started.error()), (waits, None), "{}", scene.log());
}
