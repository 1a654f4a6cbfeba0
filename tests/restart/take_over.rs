//! Another daemon executes ours in its own place, with all guests and clients.

use std::time::{Duration, Instant};

use xenstore_wire::Op;
use xenstored_tests::scene::{OK, Scene, ask, is_introduced, perms, set_perms, write};
use xenstored_tests::{Backend, Client, Event, our_binary};

/// Has the daemon of a scene executed another program in its place, as `xenstore-control live-update` asks for it.
fn live_update(scene: &Scene, client: &mut Client, program: &str) {
    assert_eq!(ask(client, Op::Control, &["live-update", "-f", program]), Ok(OK.to_vec()));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match ask(client, Op::Control, &["live-update", "-s", "-t", "5"]) {
            Ok(reply) if reply == OK => return,
            Ok(reply) if reply == b"BUSY\0" && Instant::now() < deadline => {}
            other => panic!("live update: {other:?}\n{}", scene.log()),
        }
    }
}

#[test]
fn from_the_c_daemon_with_guests_clients_and_watches() {
    let domids: Vec<u16> = (1..=50).collect();
    let scene = Scene::of(Backend::C, &[], &domids);
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
    assert_eq!(scene.guest(60).request(Op::GetDomainPath, b"60\0"), Ok(b"/local/domain/60\0".to_vec()));
}

#[test]
fn a_state_that_cannot_be_read_costs_nobody_the_store() {
    let scene = Scene::of(Backend::C, &[], &[1]);
    let mut dom0 = scene.dom0();
    dom0.write("/kept", b"value");
    // Our daemon refuses arguments that it cannot follow; the other one is told, or goes on.
    let reply = ask(&mut dom0, Op::Control, &["live-update", "-f", "/no/such/file"]);
    assert!(reply.is_ok_and(|reply| reply.starts_with(b"File not accessible")));
    assert_eq!(dom0.read("/kept"), Ok(b"value".to_vec()));
}
