//! Watches of guests, and events for guests that do not read.

use crate::scene::{OK, Scene, ask, refused, set_perms, write};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use xenstore_wire::Op;
use xenstored_tests::wait::{PATIENCE, until};
use xenstored_tests::{Event, process};

#[test]
fn a_relative_watch_tells_relative_paths_and_an_absolute_one_absolute_ones() {
    let scene = Scene::with(&[3]);
    let mut guest = scene.guest(3);
    guest.watch("device", "relative");
    guest.watch("/local/domain/3/device", "absolute");
    scene.dom0().write("/local/domain/3/device/vif/0/state", b"1");
    let mut got = guest.settled_events();
    got.sort();
    let absolute = Event::new("/local/domain/3/device/vif/0/state", "absolute");
    assert_eq!(got, [absolute, Event::new("device/vif/0/state", "relative")]);
}

#[test]
fn resetting_the_watches_of_one_domain_leaves_those_of_others() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    dom0.write("/shared", b"");
    set_perms(&mut dom0, "/shared", &["r0"]);
    let (mut first, mut second) = (scene.guest(1), scene.guest(2));
    for client in [&mut first, &mut second, &mut dom0] {
        client.watch("/shared", "t");
    }
    let (tx, other_tx) = (first.start_transaction(), second.start_transaction());
    assert_eq!(first.request(Op::ResetWatches, b"\0"), Ok(OK.to_vec()));
    dom0.write("/shared", b"new");
    assert_eq!(first.settled_events(), []);
    assert_eq!(second.settled_events(), [Event::new("/shared", "t")]);
    assert_eq!(dom0.settled_events(), [Event::new("/shared", "t")]);
    assert_eq!(first.commit(tx), refused("ENOENT"));
    assert_eq!(second.commit(other_tx), Ok(()));
}

#[test]
fn equal_events_that_wait_are_one_but_introductions_are_all_told() {
    let mut scene = Scene::with_args(&["-w", "watch-event=0"], &[2]);
    let mut dom0 = scene.dom0();
    dom0.write("/a", b"");
    set_perms(&mut dom0, "/a", &["r0"]);
    set_perms(&mut dom0, "@introduceDomain", &["n0", "r2"]);
    let mut guest = scene.ring_client(2);
    for path in ["/a", "@introduceDomain"] {
        assert_eq!(guest.request(Op::Watch, 0, format!("{path}\0t\0").as_bytes()).unwrap().payload, OK);
        assert_eq!(guest.event(PATIENCE).unwrap().unwrap().0, path);
    }
    let paths: Vec<String> = std::iter::once("/a".into()).chain((1..=50).map(|n| format!("/a/{n}"))).collect();
    paths.iter().skip(1).for_each(|path| dom0.write(path, b""));
    let mut change_all = |rounds: usize| {
        for _ in 0..rounds {
            for path in &paths {
                dom0.send(Op::Write.number(), 0, format!("{path}\0x").as_bytes()).unwrap();
            }
            paths.iter().for_each(|path| assert_eq!(dom0.reply().unwrap().payload, OK, "{path}"));
        }
    };
    change_all(10);
    let before = process::anonymous_kib(scene.pid());
    change_all(50);
    for domid in 11..=15 {
        scene.add(domid);
    }
    change_all(50);
    let after = process::anonymous_kib(scene.pid());
    assert!(after < before + 512, "{before} KiB, then {after}");
    // The ring itself holds what came first, all the same; behind it each event waits once.
    let mut events = Vec::new();
    guest.send(Op::Read, 0, b"/a\0").unwrap();
    guest.reply().unwrap();
    while let Some((path, _)) = guest.event(Duration::ZERO).unwrap() {
        events.push(path);
    }
    let in_ring = 1024 / (16 + "/a\0t\0".len());
    let (special, plain): (Vec<_>, Vec<_>) = events.into_iter().partition(|path| path.starts_with('@'));
    assert_eq!(special.len(), 5);
    assert!(plain.len() <= in_ring + 51, "{} events", plain.len());
    let last: BTreeSet<String> = plain.into_iter().collect();
    assert_eq!(last, paths.iter().cloned().collect());
    scene.assert_alive();
}

#[test]
fn an_event_never_comes_before_what_it_tells_of() {
    let scene = Scene::with(&[5]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(5);
    dom0.write("/local/domain/5/device/vif/0/state", b"start");
    guest.watch("device/vif/0", "t");
    for round in 0..50 {
        let tx = dom0.start_transaction();
        assert!(dom0.request_in(tx, Op::Rm, b"/local/domain/5/device/vif/0\0").is_ok());
        dom0.commit(tx).unwrap();
        let tx = dom0.start_transaction();
        let payload = format!("/local/domain/5/device/vif/0/state\0{round}");
        assert!(dom0.request_in(tx, Op::Write, payload.as_bytes()).is_ok());
        dom0.commit(tx).unwrap();
        while guest.event() != Ok(Event::new("device/vif/0/state", "t")) {}
        assert_eq!(guest.read("device/vif/0/state"), Ok(round.to_string().into_bytes()));
        guest.settled_events();
    }
}

#[test]
fn a_flood_of_events_is_held_by_the_watchers_memory_quota() {
    let mut scene = Scene::with_args(&["-w", "watch-event=0"], &[1, 2]);
    let mut guest = scene.guest(1);
    for watch in 0..128 {
        guest.watch("/local/domain/1", &format!("a token of some length {watch}"));
    }
    for node in 0..300 {
        assert_eq!(write(&mut guest, &format!("tree/{node}"), b""), Ok(OK.to_vec()));
        guest.settled_events();
    }
    drop(guest);
    let before = process::anonymous_kib(scene.pid());
    let mut dom0 = scene.dom0();
    for round in 0..5 {
        assert_eq!(ask(&mut dom0, Op::Rm, &["/local/domain/1/tree"]), Ok(OK.to_vec()));
        for node in 0..300 {
            dom0.write(&format!("/local/domain/1/tree/{round}-{node}"), b"");
        }
    }
    let after = process::anonymous_kib(scene.pid());
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    assert!(after < before + 4096, "{before} KiB, then {after}: {usage}");
    assert_eq!(scene.guest(2).read("/nowhere"), refused("EACCES"));
    scene.assert_alive();
}

#[test]
fn a_guest_that_does_not_read_its_events_stops_nobody() {
    let mut scene = Scene::with_args(&["-w", "watch-event=1"], &[2, 3, 4]);
    let mut dom0 = scene.dom0();
    dom0.write("/shared/x", b"");
    set_perms(&mut dom0, "/shared/x", &["b0"]);
    let mut sleeper = scene.ring_client(2);
    assert_eq!(sleeper.request(Op::Watch, 0, b"/shared\0t\0").unwrap().payload, OK);
    let (mut writer, mut polite) = (scene.ring_client(3), scene.ring_client(4));
    let (mut longest, mut waits) = (Duration::ZERO, Vec::new());
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < Duration::from_millis(2500) {
        round += 1;
        let asked = Instant::now();
        // A new node each time, so that no event is like another.
        let payload = format!("/shared/x/{}\0{round}", round % 300);
        assert_eq!(writer.request(Op::Write, 0, payload.as_bytes()).unwrap().payload, OK);
        longest = longest.max(asked.elapsed());
        let asked = Instant::now();
        polite.request(Op::Read, 0, b"/shared/x\0").unwrap();
        waits.push(asked.elapsed());
    }
    assert!(longest < Duration::from_secs(3), "the writer waited {longest:?}, events expire after 1 s");
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(50), "another guest: 99 of 100 in {p99:?}, all in {:?}", waits.last());
    // One event may have begun to leave: that one, and its request, waits for ever.
    until("stale events are dropped", || {
        let usage = ask(&mut dom0, Op::Control, &["quota", "3"]).unwrap();
        let usage = String::from_utf8_lossy(&usage).into_owned();
        let line = usage.lines().find(|line| line.starts_with("outstanding")).unwrap().to_owned();
        line.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap() <= 1
    });
    scene.assert_alive();
}
