//! Watches of guests, and events for guests that do not read.

use crate::scene::{OK, Scene, ask, refused, set_perms};
use std::collections::BTreeSet;
use std::time::Duration;
use xen_sim::Word;
use xenstore_wire::Op;
use xenstored_tests::wait::{PATIENCE, until};
use xenstored_tests::{Client, Event, Setting, Wire, process};

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
    let mut scene = Scene::with_settings(&[Setting::EventTimeout(0)], &[2]);
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
    let mut again = scene.dom0();
    for domid in 11..=15 {
        for _ in 0..20 {
            (0..100).for_each(|_| _ = again.send(Op::Write.number(), 0, b"/a\0x").unwrap());
            (0..100).for_each(|_| assert_eq!(again.reply().unwrap().payload, OK));
        }
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
    const NODES: usize = 900;
    let mut scene = Scene::with_settings(&[Setting::EventTimeout(0)], &[1, 2]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.ring_client(1);
    let in_use = |dom0: &mut Client| {
        let usage = ask(dom0, Op::Control, &["quota", "1"]).unwrap();
        let usage = String::from_utf8_lossy(&usage).into_owned();
        let line = usage.lines().find(|line| line.starts_with("memory")).unwrap();
        line.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()).unwrap().parse::<u64>().unwrap()
    };
    // By the privileged domain, since a guest's nodes may have no such number of children.
    let fill = |dom0: &mut Client| {
        for node in 0..NODES {
            dom0.send(Op::Write.number(), 0, format!("/local/domain/1/tree/{node}\0").as_bytes()).unwrap();
        }
        (0..NODES).for_each(|_| assert_eq!(dom0.reply().unwrap().payload, OK));
    };
    fill(&mut dom0);
    let (before, without) = (process::anonymous_kib(scene.pid()), in_use(&mut dom0));
    for watch in 0..128 {
        // Half of them see the tree as a whole, half of them a node of it.
        let path = if watch % 2 == 0 { "/local/domain/1".to_owned() } else { format!("tree/{watch}") };
        let payload = format!("{path}\0a token of some length {watch}\0");
        assert_eq!(guest.request(Op::Watch, 0, payload.as_bytes()).unwrap().payload, OK);
        guest.event(PATIENCE).unwrap().unwrap();
    }
    let mut other = scene.guest(2);
    for round in 0..10 {
        if round == 0 {
            guest.send(Op::Rm, 0, b"tree\0").unwrap();
            until("the guest has removed it", || dom0.read("/local/domain/1/tree") == refused("ENOENT"));
        } else {
            assert_eq!(ask(&mut dom0, Op::Rm, &["/local/domain/1/tree"]), Ok(OK.to_vec()));
        }
        fill(&mut dom0);
        assert_eq!(other.read("/nowhere"), refused("EACCES"), "round {round}");
        let (now, used) = (process::anonymous_kib(scene.pid()), in_use(&mut dom0));
        // The nodes that the privileged domain makes come on top of what fills the quota, and so does what is noted about
        // the last event.
        assert!(used <= 2_621_440 + without + 1024, "{used} bytes in round {round}");
        assert!(now < before + 6 * 1024, "{before} KiB, then {now} in round {round}, {used} accounted");
    }
    // It reads at last, and lets its watches go.
    guest.send(Op::ResetWatches, 0, b"\0").unwrap();
    assert_eq!(guest.reply().unwrap().payload, OK, "of RM");
    assert_eq!(guest.reply().unwrap().payload, OK, "of RESET_WATCHES");
    assert_eq!(in_use(&mut dom0), without);
    // But for what the allocator keeps.
    until("memory is back", || process::anonymous_kib(scene.pid()) < before + 2048);
    scene.assert_alive();
}

#[test]
fn the_first_event_comes_after_the_reply_and_whatever_the_watcher_holds() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    let payload = b"/nowhere\0token\0";
    assert_eq!(guest.request(Op::Watch, payload), Ok(OK.to_vec()));
    assert_eq!(guest.event(), Ok(Event::new("/nowhere", "token")), "of a node that is not there");
    assert_eq!(guest.settled_events(), [], "one");
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    let line = usage.lines().find(|line| line.starts_with("memory")).unwrap();
    let held: usize = line.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()).unwrap().parse().unwrap();
    // Room for the watch itself, and for no event: such a one takes a header more.
    let room = held + "/other".len() + "t".len();
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "memory", &room.to_string()]), Ok(OK.to_vec()));
    guest.send(Op::Watch.number(), 0, b"/other\0t\0").unwrap();
    let reply = guest.arrival().unwrap();
    assert!(matches!(&reply, Wire::Reply(reply) if reply.payload == OK), "the reply first: {reply:?}");
    assert_eq!(guest.arrival().unwrap(), Wire::Event(Event::new("/other", "t")));
}

#[test]
fn who_writes_what_it_watches_is_told() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    guest.watch("data", "t");
    for round in 0..200 {
        guest.send(Op::Write.number(), 0, b"data\0x").unwrap();
        // Either of the two may be waited for alone.
        if round % 2 == 0 {
            assert_eq!(guest.event(), Ok(Event::new("data", "t")), "round {round}");
            assert_eq!(guest.reply().unwrap().payload, OK);
        } else {
            assert_eq!(guest.reply().unwrap().payload, OK, "round {round}");
            assert_eq!(guest.event(), Ok(Event::new("data", "t")));
        }
    }
    assert_eq!(guest.settled_events(), []);
}

#[test]
fn a_guest_that_does_not_read_its_events_stops_nobody() {
    let mut scene = Scene::with_settings(&[Setting::EventTimeout(1)], &[2, 3, 4]);
    let mut dom0 = scene.dom0();
    dom0.write("/shared/x", b"");
    set_perms(&mut dom0, "/shared/x", &["b0"]);
    let mut sleeper = scene.ring_client(2);
    assert_eq!(sleeper.request(Op::Watch, 0, b"/shared\0t\0").unwrap().payload, OK);
    let (mut writer, mut polite) = (scene.ring_client(3), scene.ring_client(4));
    // The writer is held back with so many requests outstanding, until the events expire: some times over.
    let mut held_back = 0;
    for round in 0..120 {
        let replies = writer.guest().word(Word::RspProd);
        // A new node each time, so that no event is like another.
        writer.send(Op::Write, 0, format!("/shared/x/{round}\0").as_bytes()).unwrap();
        let mut others = 0;
        while writer.guest().word(Word::RspProd) == replies && others < 10_000_000 {
            polite.request(Op::Read, 0, b"/shared/x\0").unwrap();
            others += 1;
        }
        assert_eq!(writer.reply().unwrap().payload, OK, "round {round}");
        held_back += usize::from(others > 100);
    }
    assert!((3..=12).contains(&held_back), "others were served {held_back} times while it waited");
    // One event may have begun to leave: that one, and its request, waits for ever.
    until("stale events are dropped", || {
        let usage = ask(&mut dom0, Op::Control, &["quota", "3"]).unwrap();
        let usage = String::from_utf8_lossy(&usage).into_owned();
        let line = usage.lines().find(|line| line.starts_with("outstanding")).unwrap().to_owned();
        line.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap() <= 1
    });
    scene.assert_alive();
}
