//! Requests, replies and events over rings.

use crate::running::{PATIENCE, Peer, Running, until};
use rstest::rstest;
use std::time::Duration;
use xen_sim::{DomainOptions, RING_SIZE, Word};
use xenstore_wire::Op;

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn a_guest_reads_what_it_writes_and_what_others_write(#[case] peer: Peer) {
    let running = Running::start(peer, 2);
    running.tool("xenstore-write", &["/local/domain/1/data", ""]);
    running.tool("xenstore-chmod", &["/local/domain/1/data", "n1"]);
    let mut guest = running.guest(1);
    assert_eq!(guest.request(Op::Write, 0, b"data/a\0from the guest").unwrap().error(), None);
    assert_eq!(guest.request(Op::Read, 0, b"data/a\0").unwrap().payload, b"from the guest");
    assert_eq!(running.client().request(Op::Read, b"/local/domain/1/data/a\0"), (Op::Read, b"from the guest".to_vec()));
    assert_eq!(running.client().request(Op::Write, b"/local/domain/1/data/a\0from outside").0, Op::Write);
    assert_eq!(guest.request(Op::Read, 0, b"data/a\0").unwrap().payload, b"from outside");
    let denied = running.guest(2).request(Op::Write, 0, b"/local/domain/1/data/a\0x").unwrap();
    assert_eq!(denied.error(), Some(&b"EACCES"[..]));
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn watch_events_arrive_at_a_guest_that_sleeps(#[case] peer: Peer) {
    let running = Running::start(peer, 1);
    running.tool("xenstore-write", &["/local/domain/1/data", ""]);
    running.tool("xenstore-chmod", &["/local/domain/1/data", "n1"]);
    let mut guest = running.guest(1);
    assert_eq!(guest.request(Op::Watch, 0, b"data\0token\0").unwrap().error(), None);
    let event = |path: &str| Some((path.to_owned(), "token".to_owned()));
    assert_eq!(guest.event(PATIENCE).unwrap(), event("data"), "the first one comes by itself");
    assert_eq!(guest.event(Duration::from_millis(50)).unwrap(), None);
    for round in 0..50 {
        running.client().request(Op::Write, format!("/local/domain/1/data/{round}\0x").as_bytes());
        assert_eq!(guest.event(PATIENCE).unwrap(), event(&format!("data/{round}")));
    }
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn requests_sent_in_one_go_wrap_around_the_ring(#[case] peer: Peer) {
    let running = Running::start(peer, 1);
    let mut guest = running.guest(1);
    for len in [1, 100, 900] {
        let path = format!("/{}\0", "x".repeat(len));
        // More than both rings and the daemon's own buffers hold would wait for us to read.
        for _ in 0..8 {
            guest.send(Op::Read, 0, path.as_bytes()).unwrap();
        }
        for _ in 0..8 {
            let reply = guest.reply().unwrap();
            let error = reply.error().map(String::from_utf8_lossy);
            // C does not tell a guest what is not there.
            assert!(matches!(error.as_deref(), Some("ENOENT" | "EACCES")), "a name of {len} bytes: {error:?}");
        }
    }
    assert!(guest.guest().word(Word::ReqProd) as usize > 2 * RING_SIZE);
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn the_kernel_of_domain_0_has_a_ring_too(#[case] peer: Peer) {
    let running = Running::start(peer, 0);
    let mut kernel = running.guest(0);
    assert!(kernel.guest().is_bound());
    assert_eq!(kernel.request(Op::Write, 0, b"/from/the/kernel\0x").unwrap().error(), None, "domain 0 may do anything");
    assert_eq!(running.client().request(Op::Read, b"/from/the/kernel\0"), (Op::Read, b"x".to_vec()));
}

#[test]
fn a_ring_with_impossible_indices_is_refused_and_the_next_one_served() {
    let running = Running::start(Peer::C, 2);
    let mut bad = running.guest(1);
    bad.guest().set_word(Word::ReqProd, 5000);
    bad.guest().notify();
    until("the daemon says what it thinks of it", || bad.guest().word(Word::Error) != 0);
    assert_eq!(bad.guest().word(Word::Error), 2, "the number for a wrong index");
    running.assert_served(2);
}

#[test]
fn a_ring_without_a_grant_can_only_be_mapped_by_its_frame() {
    let without = DomainOptions { granted: false, ..DomainOptions::default() };
    for (peer, served) in [(Peer::C, false), (Peer::O, true)] {
        let running = Running::start(peer, 0);
        running.host.create_with(7, &without).unwrap();
        let introduced = running.host.introduce(7);
        assert_eq!(introduced.is_ok(), served, "{peer:?}: {introduced:?}");
        if served {
            running.assert_served(7);
        }
    }
}
