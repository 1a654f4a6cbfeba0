//! Many guests at once.

use crate::scene::{OK, Scene};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use xen_sim::{Guest, RING_SIZE, Word};
use xenstore_wire::{Op, put_message};
use xenstored_tests::wait::{PATIENCE, until};

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

#[test]
fn fifty_guests_that_flood_leave_a_polite_one_and_a_tool_their_turns() {
    const FLOODING: u16 = 50;
    let domids: Vec<u16> = (1..=FLOODING + 1).collect();
    let scene = Scene::with(&domids);
    let mut requests = Vec::new();
    for req_id in 0..20 {
        put_message(&mut requests, Op::Read.number(), req_id, 0, b"data\0");
    }
    let over = AtomicBool::new(false);
    let (guest, tool) = thread::scope(|scope| {
        scope.spawn(|| {
            let mut rings: Vec<Guest> = (1..=FLOODING).map(|domid| scene.ring(domid)).collect();
            while !over.load(SeqCst) {
                rings.iter_mut().for_each(|ring| flood(ring, &requests));
            }
        });
        let mut polite = scene.ring_client(FLOODING + 1);
        let mut dom0 = scene.dom0();
        let flooder = scene.ring(FLOODING);
        until("the flood has begun", || flooder.word(Word::ReqProd) > 5000);
        let (mut guest, mut tool) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            let asked = Instant::now();
            assert_eq!(polite.request(Op::Write, 0, b"data\0x").unwrap().payload, OK);
            guest.push(asked.elapsed());
            let asked = Instant::now();
            dom0.read("/local/domain/1").unwrap();
            tool.push(asked.elapsed());
        }
        over.store(true, SeqCst);
        (guest, tool)
    });
    for (who, mut times) in [("the polite guest", guest), ("the tool", tool)] {
        times.sort();
        let p99 = times[times.len() * 99 / 100];
        assert!(p99 < Duration::from_millis(100), "{who}: 99 of 100 in {p99:?}, all in {:?}", times.last());
    }
}

#[test]
fn a_thousand_domains_die_at_once_while_a_tool_is_served() {
    const DOMAINS: u16 = 1000;
    let domids: Vec<u16> = (1..=DOMAINS).collect();
    let scene = Scene::of(xenstored_tests::Backend::Ours, &[], &domids);
    let mut dom0 = scene.dom0();
    for &domid in &domids {
        for node in 0..60 {
            let path = if node == 0 { String::new() } else { format!("/n{node}") };
            let payload = format!("/local/domain/{domid}{path}\0x");
            dom0.send(Op::Write.number(), 0, payload.as_bytes()).unwrap();
            if node == 0 {
                let payload = format!("/local/domain/{domid}\0n{domid}\0");
                dom0.send(Op::SetPerms.number(), 0, payload.as_bytes()).unwrap();
            }
        }
        for _ in 0..61 {
            assert_eq!(dom0.reply().unwrap().payload, OK);
        }
        let mut guest = scene.ring_client(domid);
        for watch in 0..20 {
            guest.send(Op::Watch, 0, format!("n{watch}\0t\0").as_bytes()).unwrap();
            assert_eq!(guest.reply().unwrap().payload, OK);
        }
    }
    let mut watchers: Vec<_> = (0..5).map(|_| scene.dom0()).collect();
    watchers.iter_mut().for_each(|watcher| watcher.watch("@releaseDomain", "gone"));
    let mut each = scene.dom0();
    assert!(each.request(Op::Watch, b"@releaseDomain\0each\x001\0").is_ok());
    each.event().unwrap();
    scene.signal(Signal::SIGSTOP);
    domids.iter().for_each(|&domid| scene.host.destroy(domid).unwrap());
    scene.signal(Signal::SIGCONT);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let left = dom0.request(Op::Directory, b"/local/domain\0").or_else(|name| match name.as_str() {
            "E2BIG" => Ok(b"many".to_vec()),
            _ => Err(name),
        });
        longest = longest.max(asked.elapsed());
        if left.unwrap().is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}");
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "all are gone after {took:?}");
    assert!(longest < Duration::from_secs(2), "a request in between took {longest:?}");
    for watcher in &mut watchers {
        assert_eq!(watcher.settled_events().len(), 1, "one look at the host is one event");
    }
    assert_eq!(each.settled_events().len(), usize::from(DOMAINS));
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
