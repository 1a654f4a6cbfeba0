//! Many guests at once.

use crate::host::Guest;
use crate::scene::{OK, Scene, ask};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use xen_sim::{RING_SIZE, Word};
use xenstore_wire::{Op, put_message};
use xenstored_tests::wait::{AtEnd, PATIENCE};
use xenstored_tests::{Event, Store, Wire, process};

/// Keeps a ring full of requests and takes all replies, whatever they are; returns how many requests came in.
fn flood(ring: &mut Guest, requests: &[u8]) -> usize {
    let mut replies = [0; RING_SIZE];
    ring.try_receive(&mut replies).unwrap();
    // Always cut at the end of the block, so that the stream stays one of whole messages.
    let free = RING_SIZE - ring.word(Word::ReqProd).wrapping_sub(ring.word(Word::ReqCons)) as usize;
    if free < requests.len() {
        return 0;
    }
    ring.try_send(requests).unwrap();
    BLOCK
}

/// Requests that come into a ring together.
const BLOCK: usize = 20;

/// Floods until something is answered; returns the requests that came in meanwhile. As many were served, but for what the
/// rings hold: who is kept from running here changes nothing about that.
fn flood_until(rings: &mut [Guest], requests: &[u8], mut answered: impl FnMut() -> bool) -> usize {
    let (mut count, deadline) = (0, Instant::now() + PATIENCE);
    while !answered() {
        count += rings.iter_mut().map(|ring| flood(ring, requests)).sum::<usize>();
        assert!(Instant::now() < deadline, "no answer while {count} requests of others came in");
    }
    count
}

#[rstest]
#[case::one_guest_that_floods(1)]
#[case::fifty_guests_that_flood(50)]
fn leave_a_polite_one_and_a_tool_their_turns(#[case] flooding: u16) {
    let domids: Vec<u16> = (1..=flooding + 1).collect();
    let scene = Scene::with(&domids);
    let mut requests = Vec::new();
    for req_id in 0..BLOCK {
        put_message(&mut requests, Op::Read.number(), u32::try_from(req_id).unwrap(), 0, b"data\0");
    }
    // What all their rings hold is served in one turn. One turn is under way when somebody asks, and one is for the
    // answer; while each is served, and once more before this thread looks, the rings are filled again.
    let most = 4 * usize::from(flooding) * (RING_SIZE / requests.len() * BLOCK);
    let mut rings: Vec<Guest> = (1..=flooding).map(|domid| scene.ring(domid)).collect();
    let mut polite = scene.ring_client(flooding + 1);
    let mut dom0 = scene.dom0();
    let served = |rings: &[Guest]| -> Vec<u32> { rings.iter().map(|ring| ring.word(Word::ReqCons)).collect() };
    let (before, mut seen) = (served(&rings), Vec::new());
    for _ in 0..100 {
        let replies = polite.guest().word(Word::RspProd);
        polite.send(Op::Write, 0, b"data\0x").unwrap();
        let guest = flood_until(&mut rings, &requests, || polite.guest().word(Word::RspProd) != replies);
        assert_eq!(polite.reply().unwrap().payload, OK);
        dom0.send(Op::Read.number(), 0, b"/local/domain/1\0").unwrap();
        let tool = flood_until(&mut rings, &requests, || dom0.has_arrived());
        dom0.reply().unwrap();
        seen.push(guest.max(tool));
    }
    let after = served(&rings);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "those who flood are served too");
    assert!(seen.iter().any(|&count| count > 0), "there was no flood");
    assert!(seen.iter().all(|&count| count <= most), "so many came in before an answer, at most {most}: {seen:?}");
}

#[test]
fn a_thousand_domains_die_at_once_and_each_turn_does_a_little_of_it() {
    const DOMAINS: u16 = 1000;
    const NODES: usize = 60;
    const WATCHES: usize = 20;
    /// Homes that one turn may remove.
    const PIECE: usize = 40;
    let domids: Vec<u16> = (1..=DOMAINS).collect();
    let mut scene = Scene::of(Store::chosen(), &domids);
    let mut dom0 = scene.dom0();
    for &domid in &domids {
        for node in 0..NODES {
            let path = if node == 0 { String::new() } else { format!("/n{node}") };
            let payload = format!("/local/domain/{domid}{path}\0x");
            dom0.send(Op::Write.number(), 0, payload.as_bytes()).unwrap();
            if node == 0 {
                let payload = format!("/local/domain/{domid}\0n{domid}\0");
                dom0.send(Op::SetPerms.number(), 0, payload.as_bytes()).unwrap();
            }
        }
        for _ in 0..=NODES {
            assert_eq!(dom0.reply().unwrap().payload, OK);
        }
        let mut guest = scene.ring_client(domid);
        for watch in 0..WATCHES {
            guest.send(Op::Watch, 0, format!("n{watch}\0t\0").as_bytes()).unwrap();
            assert_eq!(guest.reply().unwrap().payload, OK);
        }
    }
    let mut watchers: Vec<_> = (0..5).map(|_| scene.dom0()).collect();
    watchers.iter_mut().for_each(|watcher| watcher.watch("@releaseDomain", "gone"));
    let mut each = scene.dom0();
    assert!(each.request(Op::Watch, b"@releaseDomain\0each\x001\0").is_ok());
    each.event().unwrap();
    // It has requests waiting all the time, and hears of every home that goes: what comes between two of its replies was
    // done in one turn.
    let mut tool = scene.dom0();
    tool.watch("/local/domain", "home");
    tool.watch("@releaseDomain", "gone");
    let mut requests = Vec::new();
    for req_id in 0..8000 {
        put_message(&mut requests, Op::Read.number(), req_id, 0, b"/\0");
    }
    scene.signal(Signal::SIGSTOP);
    domids.iter().for_each(|&domid| scene.host.destroy(domid).unwrap());
    tool.send_raw(&requests).unwrap();
    // The last one is followed by another with its number, which is introduced at once.
    let last = scene.host.create(DOMAINS).unwrap();
    let introduce = format!("{DOMAINS}\0{}\0{}\0", last.gfn, last.port);
    dom0.send(Op::Introduce.number(), 0, introduce.as_bytes()).unwrap();
    scene.signal(Signal::SIGCONT);

    let (mut homes, mut replies, mut largest, mut in_turn) = (0, 0, 0, 0);
    while replies < 8000 || homes < usize::from(DOMAINS) {
        match tool.arrival().unwrap() {
            Wire::Reply(reply) => {
                assert_eq!(reply.result(), Ok(&b""[..]));
                (replies, in_turn) = (replies + 1, 0);
            }
            Wire::Event(event) if event.token == "home" => {
                (homes, in_turn) = (homes + 1, in_turn + 1);
                largest = largest.max(if replies < 8000 { in_turn } else { 0 });
            }
            Wire::Event(event) => {
                assert_eq!((event.path.as_str(), homes), ("@releaseDomain", 1000), "told before all nodes were gone");
            }
        }
    }
    assert!((1..=PIECE).contains(&largest), "{largest} homes went in one turn");
    assert_eq!(dom0.reply().unwrap().payload, OK);
    for watcher in &mut watchers {
        assert_eq!(
            watcher.settled_events(),
            [Event::new("@releaseDomain", "gone")],
            "one look at the host is one event"
        );
    }
    let mut told: Vec<String> = each.settled_events().into_iter().map(|event| event.path).collect();
    told.sort();
    let mut all: Vec<String> = domids.iter().map(|domid| format!("@releaseDomain/{domid}")).collect();
    all.sort();
    assert_eq!(told, all);
    let mut new = scene.ring_client(DOMAINS);
    assert_eq!(new.request(Op::Unwatch, 0, b"n1\0t\0").unwrap().error(), Some(&b"ENOENT"[..]));
    assert_eq!(ask(&mut dom0, Op::Directory, &["/local/domain"]), Ok(vec![]));
    assert_eq!(ask(&mut dom0, Op::IsDomainIntroduced, &[&DOMAINS.to_string()]), Ok(b"T\0".to_vec()));
    scene.assert_alive();
}

#[test]
fn two_hundred_quiet_domains_leave_the_daemon_asleep() {
    let domids: Vec<u16> = (1..=200).collect();
    let scene = Scene::with(&domids);
    for &domid in &domids {
        let mut guest = scene.ring_client(domid);
        assert_eq!(guest.request(Op::Watch, 0, b"data\0t\0").unwrap().payload, OK);
    }
    let wakings = || process::status(scene.pid(), "voluntary_ctxt_switches");
    let (before, begun) = (wakings(), Instant::now());
    // There is nothing to wait for: time has to pass in which nothing happens.
    thread::sleep(Duration::from_secs(3));
    let woken = wakings() - before;
    let seconds = begun.elapsed().as_secs_f64();
    assert!((woken as f64) < 10.0 * seconds, "woken {woken} times in {seconds} s");
}

#[test]
fn guests_that_signal_without_end_hold_nobody_up() {
    const SIGNALLING: u16 = 8;
    let domids: Vec<u16> = (1..=SIGNALLING + 1).collect();
    let scene = Scene::with(&domids);
    let rings: Vec<Guest> = (1..=SIGNALLING).map(|domid| scene.ring(domid)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for rings in rings.chunks(usize::from(SIGNALLING / 2)) {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    rings.iter().for_each(Guest::notify);
                }
            });
        }
        let _at_end = AtEnd(&over);
        let mut polite = scene.ring_client(SIGNALLING + 1);
        for _ in 0..500 {
            assert_eq!(polite.request(Op::Write, 0, b"data\0x").unwrap().payload, OK);
        }
    });
}
