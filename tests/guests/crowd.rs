//! Many guests at once.

use crate::scene::{OK, Scene, ask};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use xen_sim::{Guest, RING_SIZE, Word};
use xenstore_wire::{Op, put_message};
use xenstored_tests::wait::until;
use xenstored_tests::{Event, Store, Wire, process};

/// Keeps a ring full of requests and takes all replies, whatever they are.
fn flood(ring: &mut Guest, requests: &[u8]) {
    let mut replies = [0; RING_SIZE];
    ring.try_receive(&mut replies).unwrap();
    // Always cut at the end of the block, so that the stream stays one of whole messages.
    let free = RING_SIZE - ring.word(Word::ReqProd).wrapping_sub(ring.word(Word::ReqCons)) as usize;
    if free >= requests.len() {
        ring.try_send(requests).unwrap();
    }
}

/// What 99 of 100 requests stayed below.
fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

#[rstest]
#[case::one_guest_that_floods(1, Duration::from_millis(20))]
#[case::fifty_guests_that_flood(50, Duration::from_millis(100))]
fn leave_a_polite_one_and_a_tool_their_turns(#[case] flooding: u16, #[case] allowed: Duration) {
    /// Of so many looks one must be good: the machine may be busy with others.
    const LOOKS: usize = 6;
    let domids: Vec<u16> = (1..=flooding + 1).collect();
    let scene = Scene::with(&domids);
    let mut requests = Vec::new();
    for req_id in 0..20 {
        put_message(&mut requests, Op::Read.number(), req_id, 0, b"data\0");
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rings: Vec<Guest> = (1..=flooding).map(|domid| scene.ring(domid)).collect();
            while !over.load(SeqCst) {
                rings.iter_mut().for_each(|ring| flood(ring, &requests));
            }
        });
        let mut polite = scene.ring_client(flooding + 1);
        let mut dom0 = scene.dom0();
        let flooder = scene.ring(flooding);
        until("the flood has begun", || flooder.word(Word::ReqProd) > 5000);
        let mut seen = Vec::new();
        for _ in 0..LOOKS {
            let before = flooder.word(Word::ReqCons);
            let (mut guest, mut tool) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                let asked = Instant::now();
                assert_eq!(polite.request(Op::Write, 0, b"data\0x").unwrap().payload, OK);
                guest.push(asked.elapsed());
                let asked = Instant::now();
                dom0.read("/local/domain/1").unwrap();
                tool.push(asked.elapsed());
            }
            assert_ne!(flooder.word(Word::ReqCons), before, "those who flood are served too");
            seen.push((p99(guest), p99(tool)));
            if seen.last().is_some_and(|(guest, tool)| guest.max(tool) < &allowed) {
                break;
            }
        }
        over.store(true, SeqCst);
        let good = seen.iter().any(|(guest, tool)| guest.max(tool) < &allowed);
        assert!(good, "99 of 100 requests of the polite guest, and of the tool, take {seen:?}");
    });
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
    let mut times = thread::scope(|scope| {
        for rings in rings.chunks(usize::from(SIGNALLING / 2)) {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    rings.iter().for_each(Guest::notify);
                }
            });
        }
        let mut polite = scene.ring_client(SIGNALLING + 1);
        let times: Vec<Duration> = (0..200)
            .map(|_| {
                let asked = Instant::now();
                assert_eq!(polite.request(Op::Write, 0, b"data\0x").unwrap().payload, OK);
                asked.elapsed()
            })
            .collect();
        over.store(true, SeqCst);
        times
    });
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(100), "99 of 100 in {p99:?}, all in {:?}", times.last());
}
