//! What kernels do to their rings, and what comes of it.

use crate::scene::{OK, Scene, ask, is_introduced, set_perms};
use rstest::rstest;
use std::time::{Duration, Instant};
use xen_sim::{Guest, RING_SIZE, Word};
use xenstore_wire::{Header, Op, put_message};
use xenstored_tests::wait::{PATIENCE, until};
use xenstored_tests::{Event, process};

/// A whole message.
fn message(op: Op, req_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_message(&mut bytes, op.number(), req_id, 0, payload);
    bytes
}

/// Waits until the daemon has given up on a ring, for this reason.
fn await_error(ring: &mut Guest, reason: u32) {
    until("the ring is given up", || ring.word(Word::Error) != 0);
    assert_eq!(ring.word(Word::Error), reason);
}

/// Checks that the ring of domain 1 is left alone, and that this has cost nobody else anything.
fn assert_ignored(scene: &mut Scene, ring: &mut Guest) {
    let mut dom0 = scene.dom0();
    assert!(is_introduced(&mut dom0, 1), "a bad ring is not a dead domain");
    let cpu = process::cpu_ns(scene.pid());
    // The signal of the error itself.
    ring.wait(Duration::from_millis(10));
    ring.notify();
    assert!(!ring.wait(Duration::from_millis(150)), "it is not answered any more");
    let spent = Duration::from_nanos(process::cpu_ns(scene.pid()) - cpu);
    assert!(spent < Duration::from_millis(75), "the daemon is busy with nothing: {spent:?}");
    assert_eq!(scene.ring_client(2).request(Op::Read, 0, b"/local\0").unwrap().error(), Some(&b"EACCES"[..]));
    scene.assert_alive();
}

#[rstest]
fn a_header_that_announces_too_much_ends_the_ring_but_not_the_domain(
    #[values(4097, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff)] len: u32,
) {
    let mut scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    dom0.watch("@releaseDomain", "gone");
    let mut ring = scene.ring(1);
    let header = Header { op: Op::Read.number(), req_id: 1, tx_id: 0, len };
    ring.send(&header.encode(), PATIENCE).unwrap();
    await_error(&mut ring, 3);
    assert_ignored(&mut scene, &mut ring);
    assert_eq!(dom0.settled_events(), [], "nobody has gone");
}

#[rstest]
#[case::requests_further_apart_than_the_ring(Word::ReqProd, 1025)]
#[case::requests_apart_by_the_sign_bit(Word::ReqProd, 0x8000_0000)]
#[case::requests_taken_back(Word::ReqProd, u32::MAX)]
#[case::requests_of_the_future_taken(Word::ReqCons, 1)]
#[case::replies_of_the_future_read(Word::RspCons, 1)]
#[case::replies_far_ahead_read(Word::RspCons, 0x8000_0000)]
#[case::replies_further_apart_than_the_ring(Word::RspProd, 1025)]
fn indices_that_cannot_be_end_the_ring(#[case] word: Word, #[case] offset: u32) {
    let mut scene = Scene::with(&[1, 2]);
    let mut client = scene.ring_client(1);
    client.request(Op::Read, 0, b"/\0").unwrap();
    let mut ring = scene.ring(1);
    if word == Word::RspCons || word == Word::RspProd {
        // Looked at when there is something to say.
        ring.set_word(word, ring.word(word).wrapping_add(offset));
        ring.send(&message(Op::Read, 9, b"/\0"), PATIENCE).unwrap();
    } else {
        ring.set_word(word, ring.word(word).wrapping_add(offset));
        ring.notify();
    }
    await_error(&mut ring, 2);
    assert_ignored(&mut scene, &mut ring);
}

#[test]
fn a_payload_as_long_as_allowed_goes_through_the_ring() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let payload = [b"data\0".as_slice(), &[b'v'; 4091]].concat();
    let reply = guest.request(Op::Write, 0, &payload).unwrap();
    assert_eq!(reply.error(), Some(&b"ENOSPC"[..]), "too large a node, but a whole request");
    assert_eq!(guest.request(Op::Write, 0, b"data\0short").unwrap().payload, OK);
    scene.assert_alive();
}

/// Puts a request into the ring byte by byte without a signal, and waits for its answer.
fn ask_silently(ring: &mut Guest, req_id: u32) {
    let mut next = ring.word(Word::ReqProd);
    for byte in &message(Op::Read, req_id, b"/\0") {
        ring.page().copy_in(next as usize % RING_SIZE, &[*byte]);
        next = next.wrapping_add(1);
    }
    ring.set_word(Word::ReqProd, next);
    let begun = Instant::now();
    let mut reply = [0; 64];
    let len = ring.receive(&mut reply, PATIENCE).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "answered after {:?}", begun.elapsed());
    assert_eq!(Header::decode(reply[..len].first_chunk().unwrap()).req_id, req_id);
}

#[rstest]
#[case::forgotten(false, 1)]
#[case::only_late(true, 0)]
fn a_request_without_a_signal_is_answered_soon_and_told_of_once(#[case] signals_later: bool, #[case] told: usize) {
    let scene = Scene::with(&[1]);
    let mut ring = scene.ring(1);
    for req_id in 0..3 {
        ask_silently(&mut ring, req_id);
        if signals_later {
            ring.notify();
        }
    }
    assert_eq!(scene.log().lines().filter(|line| line.contains("forgets to signal")).count(), told, "{}", scene.log());
}

#[test]
fn a_kernel_that_asks_for_a_new_connection_gets_a_clean_one() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    guest.request(Op::Watch, 0, b"data\0old\0").unwrap();
    assert_eq!(guest.event(PATIENCE).unwrap().unwrap().0, "data");
    let tx = guest.request(Op::TransactionStart, 0, b"\0").unwrap().payload;
    let tx: u32 = String::from_utf8(tx).unwrap().trim_end_matches('\0').parse().unwrap();
    let mut ring = scene.ring(1);
    let features = ring.word(Word::Features);
    assert_ne!(features, 0);
    ring.send(&message(Op::Write, 5, b"data\0half")[..20], PATIENCE).unwrap();
    ring.set_word(Word::Connection, 1);
    ring.notify();
    until("the connection is new", || ring.word(Word::Connection) == 0);
    for word in [Word::ReqCons, Word::ReqProd, Word::RspCons, Word::RspProd, Word::Error] {
        assert_eq!(ring.word(word), 0, "{}", word.name());
    }
    assert_eq!(ring.word(Word::Features), features);
    assert!(ring.wait(PATIENCE), "the kernel is signalled");
    let mut fresh = scene.ring_client(1);
    assert_eq!(fresh.request(Op::TransactionEnd, tx, b"F\0").unwrap().error(), Some(&b"ENOENT"[..]));
    scene.dom0().write("/local/domain/1/data", b"changed");
    assert_eq!(fresh.request(Op::Unwatch, 0, b"data\0old\0").unwrap().error(), Some(&b"ENOENT"[..]));
    assert_eq!(fresh.event(Duration::ZERO).unwrap(), None);
}

#[test]
fn a_page_wiped_while_nothing_is_under_way_goes_on_from_zero() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    for _ in 0..7 {
        guest.request(Op::Read, 0, b"/\0").unwrap();
    }
    guest.guest().page().copy_in(0, &[0; 2 * RING_SIZE]);
    for word in Word::ALL {
        guest.guest().set_word(word, 0);
    }
    guest.guest().notify();
    assert_eq!(guest.request(Op::Write, 0, b"data\0value").unwrap().payload, OK);
    assert_eq!(guest.request(Op::Read, 0, b"data\0").unwrap().payload, b"value");
    assert_eq!(guest.guest().word(Word::Error), 0);
    scene.assert_alive();
}

#[test]
fn messages_are_whole_wherever_in_the_ring_they_begin() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    dom0.write("/abcdefg", b"123456789");
    set_perms(&mut dom0, "/abcdefg", &["r0"]);
    let mut guest = scene.ring_client(1);
    // 25 bytes each way: an odd number passes every place of the ring in as many rounds as it has.
    let mut begun = [false; RING_SIZE];
    for _ in 0..RING_SIZE {
        begun[guest.guest().word(Word::ReqProd) as usize % RING_SIZE] = true;
        assert_eq!(guest.guest().word(Word::ReqProd), guest.guest().word(Word::RspProd));
        assert_eq!(guest.request(Op::Read, 0, b"/abcdefg\0").unwrap().payload, b"123456789");
    }
    assert!(begun.iter().all(|begun| *begun));
}

#[test]
fn indices_wrap_at_the_end_of_their_numbers() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    for word in [Word::ReqCons, Word::ReqProd, Word::RspCons, Word::RspProd] {
        guest.guest().set_word(word, u32::MAX - 40);
    }
    for round in 0..10 {
        assert_eq!(guest.request(Op::Write, 0, b"data\0value").unwrap().payload, OK, "round {round}");
    }
    assert!(guest.guest().word(Word::ReqProd) < 1024);
}

#[test]
fn a_ring_may_be_full_to_the_last_byte_both_ways() {
    let scene = Scene::with(&[1]);
    let mut ring = scene.ring(1);
    let request = message(Op::Write, 1, &[b"data\0".as_slice(), &[b'v'; 1003]].concat());
    assert_eq!(request.len(), RING_SIZE);
    assert_eq!(ring.try_send(&request).unwrap(), RING_SIZE);
    let mut reply = [0; 19];
    assert_eq!(ring.receive(&mut reply, PATIENCE).unwrap(), 19);
    assert_eq!(ring.try_send(&message(Op::Write, 2, &[b"data\0".as_slice(), &[b'w'; 1003]].concat())).unwrap(), 1024);
    assert_eq!(ring.receive(&mut reply, PATIENCE).unwrap(), 19);
    scene.dom0().write("/local/domain/1/data", &[b'x'; 1008]);
    // The second reply waits for room, and so does what is behind it.
    for req_id in 3..5 {
        ring.send(&message(Op::Read, req_id, b"data\0"), PATIENCE).unwrap();
    }
    let used = |ring: &Guest| ring.word(Word::RspProd).wrapping_sub(ring.word(Word::RspCons)) as usize;
    until("the ring of replies is full", || used(&ring) == RING_SIZE);
    for req_id in 3..5 {
        let mut bytes = Vec::new();
        while bytes.len() < 1024 {
            let mut part = vec![0; 1024 - bytes.len()];
            let len = ring.receive(&mut part, PATIENCE).unwrap();
            bytes.extend_from_slice(&part[..len]);
        }
        assert_eq!(bytes, message(Op::Read, req_id, &[b'x'; 1008]));
    }
}

#[rstest]
fn a_reply_larger_than_the_ring_comes_in_parts(#[values(1009, 2000, 4090)] len: usize) {
    let scene = Scene::with(&[1]);
    let value: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
    let mut dom0 = scene.dom0();
    dom0.write("/v", &value);
    set_perms(&mut dom0, "/v", &["r0"]);
    let mut guest = scene.ring_client(1);
    assert_eq!(guest.request(Op::Read, 0, b"/v\0").unwrap().payload, value);
}

/// Asks as domain 1 without reading, until nothing moves although the daemon has had its turns with others. Returns how
/// many requests that were.
fn ask_until_held_back(scene: &Scene, ring: &mut Guest) -> u32 {
    let mut sent = 0;
    loop {
        let bytes = message(Op::Read, sent, b"/\0");
        if RING_SIZE - ring.word(Word::ReqProd).wrapping_sub(ring.word(Word::ReqCons)) as usize >= bytes.len() {
            ring.send(&bytes, PATIENCE).unwrap();
            sent += 1;
            continue;
        }
        let cons = ring.word(Word::ReqCons);
        for _ in 0..20 {
            assert_eq!(ask(&mut scene.dom0(), Op::GetDomainPath, &["1"]), Ok(b"/local/domain/1\0".to_vec()));
        }
        if ring.word(Word::ReqCons) == cons {
            return sent;
        }
    }
}

#[test]
fn a_guest_that_does_not_read_its_replies_is_held_back_and_loses_none() {
    let mut scene = Scene::with(&[1, 2]);
    let mut guest = scene.ring_client(1);
    let before = process::anonymous_kib(scene.pid());
    let sent = ask_until_held_back(&scene, &mut scene.ring(1));
    // Replies in the ring (64), outstanding ones (20), requests that the daemon has taken and those in the ring (57 each).
    assert!((100..=220).contains(&sent), "{sent} requests were taken");
    assert!(process::anonymous_kib(scene.pid()) < before + 1024);
    for req_id in 0..sent {
        assert_eq!(guest.reply().unwrap().header.req_id, req_id);
    }
    assert_eq!(guest.request(Op::Write, 0, b"data\0x").unwrap().payload, OK, "and goes on");
    scene.assert_alive();
}

#[test]
fn a_guest_that_is_held_back_goes_on_when_its_limit_is_raised() {
    let scene = Scene::with(&[1]);
    let mut ring = scene.ring(1);
    ask_until_held_back(&scene, &mut ring);
    let cons = ring.word(Word::ReqCons);
    assert_eq!(ask(&mut scene.dom0(), Op::SetQuota, &["1", "outstanding", "1000"]), Ok(OK.to_vec()));
    until("the rest is taken", || ring.word(Word::ReqCons) != cons);
}

#[test]
fn what_a_kernel_leaves_behind_with_a_bad_ring_is_dropped_at_once() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.ring_client(1);
    guest.request(Op::Watch, 0, b"data\0t\0").unwrap();
    guest.request(Op::TransactionStart, 0, b"\0").unwrap();
    dom0.watch("@releaseDomain", "gone");
    guest.guest().set_word(Word::ReqProd, 5000);
    guest.guest().notify();
    await_error(guest.guest(), 2);
    assert!(is_introduced(&mut dom0, 1));
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    for quota in ["watches", "transactions"] {
        let line = usage.lines().find(|line| line.starts_with(quota)).unwrap();
        assert!(line.contains(": ") && line.split(':').nth(1).unwrap().trim().starts_with('0'), "{line}");
    }
    assert_eq!(dom0.settled_events(), []);
    scene.host.shutdown(1, xen_sim::ShutdownReason::Crash).unwrap();
    assert_eq!(dom0.event(), Ok(Event::new("@releaseDomain", "gone")));
    scene.destroy(1);
    assert_eq!(dom0.event(), Ok(Event::new("@releaseDomain", "gone")));
    assert_eq!(dom0.settled_events(), []);
}

#[test]
fn a_page_that_changes_while_it_is_served_harms_only_its_guest() {
    let domids: Vec<u16> = (1..=20).collect();
    let mut scene = Scene::with(&domids);
    let mut other = scene.ring_client(20);
    let words = [Word::ReqProd, Word::ReqCons, Word::RspCons, Word::RspProd, Word::Connection, Word::Error];
    let mut seed: u32 = 1;
    for &domid in &domids[..19] {
        let ring = scene.ring(domid);
        for _ in 0..200 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let word = words[(seed >> 8) as usize % words.len()];
            // Small steps mostly, since wild ones end the ring.
            let step = if seed >> 28 == 0 { seed } else { (seed >> 16) % 64 };
            ring.set_word(word, ring.word(word).wrapping_add(step));
            ring.page().copy_in((seed >> 4) as usize % (2 * RING_SIZE - 4), &seed.to_ne_bytes());
            ring.notify();
        }
        assert_eq!(other.request(Op::Write, 0, b"data\0x").unwrap().payload, OK);
    }
    scene.assert_alive();
}

#[test]
fn replies_that_are_taken_without_a_signal_are_followed_by_the_rest() {
    let scene = Scene::with(&[1]);
    scene.dom0().write("/local/domain/1/long", &[b'v'; 4000]);
    let mut ring = scene.ring(1);
    ring.send(&message(Op::Read, 1, b"long\0"), PATIENCE).unwrap();
    let mut taken = 0;
    while taken < 16 + 4000 {
        until("more of the reply comes", || ring.word(Word::RspProd) != ring.word(Word::RspCons));
        taken += ring.word(Word::RspProd).wrapping_sub(ring.word(Word::RspCons)) as usize;
        // By hand, since taking signals.
        ring.set_word(Word::RspCons, ring.word(Word::RspProd));
    }
    let told = scene.log().lines().filter(|line| line.contains("forgets to signal")).count();
    assert_eq!(told, 1, "{}", scene.log());
}
