//! What kernels do to their rings, and what comes of it.

use crate::host::Guest;
use crate::scene::{OK, Scene, ask, is_introduced, set_perms};
use rstest::rstest;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use xen_sim::{RING_SIZE, Word};
use xenstore_wire::{Header, Op, put_message};
use xenstored_tests::wait::{AtEnd, PATIENCE, until};
use xenstored_tests::{Client, Event, process};

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

/// Checks that the daemon has next to nothing to do while `nothing_happens`, where it counts what it does.
fn assert_quiet(dom0: &mut Client, nothing_happens: impl FnOnce()) {
    let before = dom0.turns();
    nothing_happens();
    if let (Some(before), Some(after)) = (before, dom0.turns()) {
        // The two questions, a signal, and looks at all rings.
        assert!(after - before < 20, "the daemon is busy with nothing: {} turns", after - before);
    }
}

/// Checks that the ring of domain 1 is left alone, and that this has cost nobody else anything.
fn assert_ignored(scene: &mut Scene, ring: &mut Guest) {
    let mut dom0 = scene.dom0();
    assert!(is_introduced(&mut dom0, 1), "a bad ring is not a dead domain");
    // The signal of the error itself.
    ring.wait(Duration::from_millis(10));
    assert_quiet(&mut dom0, || {
        ring.notify();
        assert!(!ring.wait(Duration::from_millis(150)), "it is not answered any more");
    });
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
    let mut reply = [0; 64];
    let len = ring.receive(&mut reply, PATIENCE).unwrap();
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
fn a_page_wiped_while_it_is_served_harms_nobody_and_can_be_connected_anew() {
    let mut scene = Scene::with(&[1, 2]);
    let mut other = scene.ring_client(2);
    for round in 0..100 {
        let mut guest = scene.ring_client(1);
        for _ in 0..20 {
            guest.send(Op::Write, 0, b"data\0x").unwrap();
        }
        let ring = guest.guest();
        ring.page().copy_in(0, &[0; 2 * RING_SIZE]);
        // All but that of the error, which would not be seen otherwise.
        for word in Word::ALL.into_iter().filter(|&word| word != Word::Error) {
            ring.set_word(word, 0);
        }
        // What was taken is answered from zero on, or the indices do not fit any more. A clean start helps either way.
        assert_eq!(other.request(Op::Write, 0, b"data\0x").unwrap().payload, OK, "round {round}");
        if ring.word(Word::Error) == 0 {
            ring.set_word(Word::Connection, 1);
            ring.notify();
            until("it is connected anew, or given up", || {
                ring.word(Word::Connection) == 0 || ring.word(Word::Error) != 0
            });
        }
        if ring.word(Word::Error) != 0 {
            let mut dom0 = scene.dom0();
            assert_eq!(ask(&mut dom0, Op::Release, &["1"]), Ok(OK.to_vec()));
            scene.host.introduce(1).unwrap();
            crate::scene::make_home(&mut dom0, 1);
        }
        let mut guest = scene.ring_client(1);
        assert_eq!(guest.request(Op::Write, 0, b"data\0value").unwrap().payload, OK, "round {round}");
    }
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
fn a_megabyte_of_requests_before_the_first_reply_is_read_is_answered_whole() {
    /// One megabyte of them.
    const REQUESTS: u32 = 58_255;
    let mut scene = Scene::with(&[1, 2]);
    let mut other = scene.ring_client(2);
    let before = process::anonymous_kib(scene.pid());
    let most = std::thread::scope(|scope| {
        let mut writer = scene.ring(1);
        scope.spawn(move || {
            let mut all = Vec::new();
            (0..REQUESTS).for_each(|req_id| put_message(&mut all, Op::Read.number(), req_id, 0, b"/\0"));
            assert!(all.len() >= 1 << 20);
            writer.send(&all, PATIENCE).unwrap();
        });
        // The writer cannot go on; others can, for as long as it takes to see that.
        let ring = scene.ring(1);
        until("the ring of requests is full", || {
            let full = ring.word(Word::ReqProd).wrapping_sub(ring.word(Word::ReqCons)) as usize == RING_SIZE;
            let stuck = ring.word(Word::ReqCons);
            (0..50).for_each(|_| assert!(other.request(Op::Read, 0, b"data\0").is_ok()));
            full && ring.word(Word::ReqCons) == stuck
        });
        let mut most = process::anonymous_kib(scene.pid());
        let mut guest = scene.ring_client(1);
        for req_id in 0..REQUESTS {
            assert_eq!(guest.reply().unwrap().header.req_id, req_id);
            if req_id % 5000 == 0 {
                most = most.max(process::anonymous_kib(scene.pid()));
            }
        }
        most
    });
    assert!(most < before + 1024, "{before} KiB, then {most}");
    scene.assert_alive();
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
        let producer = ring.word(Word::RspProd);
        taken += producer.wrapping_sub(ring.word(Word::RspCons)) as usize;
        // By hand, since taking signals.
        ring.set_word(Word::RspCons, producer);
    }
    let told = scene.log().lines().filter(|line| line.contains("forgets to signal")).count();
    assert!(told <= 1, "{}", scene.log());
}

#[rstest]
#[case::read(Op::Read, b"EINVAL\0")]
#[case::start(Op::TransactionStart, b"1\0")]
#[case::reset(Op::ResetWatches, OK)]
fn a_request_without_payload_is_answered_at_once(#[case] op: Op, #[case] wanted: &[u8]) {
    let scene = Scene::with(&[1]);
    assert_eq!(scene.ring_client(1).request(op, 0, b"").unwrap().payload, wanted);
}

#[test]
fn types_that_are_no_requests_are_answered_and_the_ring_goes_on() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    for op in [15, 16, 20, 27, 1000, 65535, u32::MAX] {
        for payload in [&b""[..], b"\0", b"/\0", b"anything at all"] {
            let mut bytes = Vec::new();
            put_message(&mut bytes, op, op ^ 7, 3, payload);
            guest.guest().send(&bytes, PATIENCE).unwrap();
            let reply = guest.reply().unwrap();
            assert_eq!(reply.error(), Some(&b"ENOSYS"[..]), "type {op}");
            assert_eq!((reply.header.req_id, reply.header.tx_id), (op ^ 7, 3));
        }
    }
    assert_eq!(guest.request(Op::ResetWatches, 0, b"\0").unwrap().payload, OK);
    let part = guest.request(Op::DirectoryPart, 0, b"/local/domain/1\x000\0").unwrap().payload;
    assert!(part.ends_with(b"\0\0"), "{part:?}");
}

#[rstest]
fn a_path_that_ends_in_a_slash_is_refused_in_every_request(
    #[values(
        Op::Read,
        Op::Write,
        Op::Mkdir,
        Op::Rm,
        Op::Watch,
        Op::Directory,
        Op::GetPerms,
        Op::SetPerms,
        Op::DirectoryPart
    )]
    op: Op,
) {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let rest = match op {
        Op::Watch => "t\0",
        Op::SetPerms => "n1\0",
        Op::DirectoryPart => "0\0",
        _ => "",
    };
    for path in ["/local/domain/", "/local/domain/7/", "/local/domain/1/", "/local/domain/99999999999/", "a/", "/"] {
        let reply = guest.request(op, 0, format!("{path}\0{rest}").as_bytes()).unwrap();
        let wanted: &[u8] = if path == "/" { b"EACCES" } else { b"EINVAL" };
        if path != "/" || op != Op::Watch {
            assert_eq!(reply.error(), Some(wanted), "{op:?} {path}");
        }
    }
    scene.assert_alive();
}

#[test]
fn every_reply_has_the_numbers_of_its_request() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let numbers = [0, u32::MAX, 1, 0x8000_0000, 77, 77];
    for req_id in numbers {
        for tx_id in numbers {
            let mut bytes = Vec::new();
            put_message(&mut bytes, Op::Read.number(), req_id, tx_id, b"data\0");
            put_message(&mut bytes, Op::GetDomainPath.number(), req_id, tx_id, b"1\0");
            put_message(&mut bytes, Op::Watch.number(), req_id, tx_id, b"data\0t\0");
            put_message(&mut bytes, Op::Unwatch.number(), req_id, tx_id, b"data\0t\0");
            guest.guest().send(&bytes, PATIENCE).unwrap();
            for number in 0..4 {
                let reply = guest.reply().unwrap();
                assert_eq!((reply.header.req_id, reply.header.tx_id), (req_id, tx_id), "number {number}");
                let wanted: &[u8] = match (number, tx_id) {
                    (0 | 1, 1..) | (0, 0) => b"ENOENT\0",
                    (1, 0) => b"/local/domain/1\0",
                    _ => OK,
                };
                assert_eq!(reply.payload, wanted, "number {number}, transaction {tx_id}");
            }
            assert_eq!(guest.event(PATIENCE).unwrap().unwrap(), ("data".into(), "t".into()));
        }
    }
}

#[test]
fn bytes_that_come_one_by_one_make_whole_requests_and_no_work() {
    let scene = Scene::with(&[1]);
    let mut ring = scene.ring(1);
    let mut bytes = Vec::new();
    (0..20).for_each(|req_id| put_message(&mut bytes, Op::Read.number(), req_id, 0, b"/nowhere\0"));
    let (last, all) = bytes.split_last().unwrap();
    for byte in all {
        ring.send(&[*byte], PATIENCE).unwrap();
    }
    let mut got = Vec::new();
    let mut part = [0; RING_SIZE];
    while got.len() < 19 * 23 {
        let len = ring.receive(&mut part, PATIENCE).unwrap();
        got.extend_from_slice(&part[..len]);
    }
    // All but the last byte of the last request is there: nothing is to be done about that.
    until("everything is taken", || ring.word(Word::ReqCons) == ring.word(Word::ReqProd));
    ring.wait(Duration::from_millis(20));
    assert_quiet(&mut scene.dom0(), || assert!(!ring.wait(Duration::from_millis(300))));
    ring.send(&[*last], PATIENCE).unwrap();
    while got.len() < 20 * 23 {
        let len = ring.receive(&mut part, PATIENCE).unwrap();
        got.extend_from_slice(&part[..len]);
    }
    let mut wanted = Vec::new();
    (0..20).for_each(|req_id| put_message(&mut wanted, Op::Error.number(), req_id, 0, b"EACCES\0"));
    assert_eq!(got, wanted);
}

/// Writes requests as Linux does: it signals only where everything before was taken, as far as it can see.
fn send_as_linux(ring: &mut Guest, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let producer = ring.word(Word::ReqProd);
        let room = RING_SIZE - producer.wrapping_sub(ring.word(Word::ReqCons)) as usize;
        let now = &bytes[..room.min(bytes.len())];
        if now.is_empty() {
            assert!(ring.wait(PATIENCE), "no room for requests");
            continue;
        }
        let start = producer as usize % RING_SIZE;
        let first = now.len().min(RING_SIZE - start);
        ring.page().copy_in(start, &now[..first]);
        ring.page().copy_in(0, &now[first..]);
        ring.set_word(Word::ReqProd, producer.wrapping_add(u32::try_from(now.len()).unwrap()));
        if ring.word(Word::ReqCons).wrapping_sub(producer) < 1 << 31 {
            ring.notify();
        }
        bytes = &bytes[now.len()..];
    }
}

#[test]
fn a_guest_that_signals_no_more_than_linux_does_never_waits_for_the_slow_look() {
    const REQUESTS: u32 = 50_000;
    /// Requests of somebody else that are served until the slow look comes, at least.
    const MANY: u32 = 8000;
    let scene = Scene::with(&[1]);
    let mut writer = scene.ring(1);
    let (others, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let slow = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dom0 = scene.dom0();
            while !over.load(SeqCst) {
                dom0.read("/").unwrap();
                others.fetch_add(1, SeqCst);
            }
        });
        scope.spawn(move || {
            for req_id in 0..REQUESTS {
                // Some of odd lengths, and some pauses, so that both sides meet at all places.
                let payload = [&b"data/"[..], &vec![b'x'; req_id as usize % 90], b"\0"].concat();
                send_as_linux(&mut writer, &message(Op::Read, req_id, &payload));
                if req_id % 61 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let _at_end = AtEnd(&over);
        let mut guest = scene.ring_client(1);
        let (mut slow, mut last) = (0, 0);
        for req_id in 0..REQUESTS {
            assert_eq!(guest.reply().unwrap().header.req_id, req_id);
            let now = others.load(SeqCst);
            slow += u32::from(now - last > MANY);
            last = now;
        }
        slow
    });
    // A busy machine may keep this thread from looking.
    assert!(slow <= 1, "{slow} replies came only after {MANY} of somebody else's");
}

#[test]
fn events_that_fill_the_ring_while_it_is_read_arrive_to_the_last() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.ring_client(1);
    // It looks without sleeping, so as to read just when the daemon writes.
    guest.guest().set_spin(Duration::from_millis(1));
    for watch in 0..100 {
        assert_eq!(guest.request(Op::Watch, 0, format!("data\0token {watch:03}\0").as_bytes()).unwrap().payload, OK);
        guest.event(PATIENCE).unwrap().unwrap();
    }
    assert_eq!(guest.request(Op::Watch, 0, b"first\0first\0").unwrap().payload, OK);
    guest.event(PATIENCE).unwrap().unwrap();
    for round in 0..3000 {
        // One event, then more than the ring holds at the moment at which that one is read, and then silence.
        dom0.send(Op::Write.number(), 0, b"/local/domain/1/first\0").unwrap();
        dom0.reply().unwrap();
        for _ in 0..round % 50 * 20 {
            std::hint::spin_loop();
        }
        dom0.send(Op::Write.number(), 0, b"/local/domain/1/data\0").unwrap();
        assert_eq!(guest.event(PATIENCE).unwrap().unwrap().0, "first");
        for watch in 0..100 {
            let event = guest.event(PATIENCE).unwrap();
            let wanted = ("data".to_owned(), format!("token {watch:03}"));
            assert_eq!(event, Some(wanted), "event {watch} of round {round}");
        }
        dom0.reply().unwrap();
    }
}
