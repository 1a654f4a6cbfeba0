//! The kernel of domain 0, which has a ring as every guest has.

use crate::dom0::Dom0;
use crate::xenbus::Xenbus;
use xenstore_wire::Op;
use xenstored_tests::Client;

const OK: &[u8] = b"OK\0";

#[test]
fn it_reads_writes_and_lists() {
    let mut dom0 = Dom0::begin();
    dom0.await_answer();
    let mut kernel = Xenbus::open();
    assert_eq!(kernel.request(0, Op::Write, b"/tool/by-the-kernel\0value"), Ok(OK.to_vec()));
    let mut socket = dom0.connect();
    assert_eq!(socket.read("/tool/by-the-kernel"), Ok(b"value".to_vec()));
    socket.write("/tool/by-a-tool", b"another");
    assert_eq!(kernel.request(0, Op::Read, b"/tool/by-a-tool\0"), Ok(b"another".to_vec()));
    let listed = kernel.request(0, Op::Directory, b"/tool\0").unwrap();
    assert!(listed.split(|&byte| byte == 0).any(|name| name == b"by-a-tool"));
    assert_eq!(kernel.request(0, Op::Read, b"/nowhere\0"), Err("ENOENT".into()));
    assert_eq!(kernel.request(0, Op::Rm, b"/tool\0"), Ok(OK.to_vec()));
    assert_eq!(socket.read("/tool"), Err("ENOENT".into()));
}

#[test]
fn messages_larger_than_its_ring_go_both_ways() {
    let mut dom0 = Dom0::begin();
    dom0.await_answer();
    let mut kernel = Xenbus::open();
    // The kernel takes messages of 4 KiB with their header.
    for len in [1003, 1004, 1024, 2048, 4070] {
        let value: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
        assert_eq!(kernel.request(0, Op::Write, &[b"/tool/big\0", &value[..]].concat()), Ok(OK.to_vec()), "{len}");
        assert_eq!(kernel.request(0, Op::Read, b"/tool/big\0"), Ok(value), "{len}");
    }
}

#[test]
fn its_watch_fires_for_what_others_change() {
    let mut dom0 = Dom0::begin();
    dom0.await_answer();
    let mut kernel = Xenbus::open();
    assert_eq!(kernel.request(0, Op::Watch, b"/tool\0mine\0"), Ok(OK.to_vec()));
    assert_eq!(kernel.event(), ("/tool".into(), "mine".into()));
    dom0.connect().write("/tool/seen", b"x");
    assert_eq!(kernel.event(), ("/tool/seen".into(), "mine".into()));
    assert_eq!(kernel.request(0, Op::Unwatch, b"/tool\0mine\0"), Ok(OK.to_vec()));
}

/// The number of a transaction, from the answer to its start.
fn number(answer: &[u8]) -> u32 {
    String::from_utf8_lossy(answer).trim_end_matches('\0').parse().expect("a number")
}

#[test]
fn its_transactions_hold_against_those_of_others() {
    let mut dom0 = Dom0::begin();
    dom0.await_answer();
    let mut kernel = Xenbus::open();
    let mut socket = dom0.connect();
    socket.write("/tool/counter", b"1");
    let spoilt = number(&kernel.request(0, Op::TransactionStart, b"\0").unwrap());
    assert_eq!(kernel.request(spoilt, Op::Read, b"/tool/counter\0"), Ok(b"1".to_vec()));
    assert_eq!(kernel.request(spoilt, Op::Write, b"/tool/counter\x002"), Ok(OK.to_vec()));
    socket.write("/tool/counter", b"7");
    assert_eq!(kernel.request(spoilt, Op::TransactionEnd, b"T\0"), Err("EAGAIN".into()));
    let good = number(&kernel.request(0, Op::TransactionStart, b"\0").unwrap());
    assert_eq!(kernel.request(good, Op::Write, b"/tool/counter\x008"), Ok(OK.to_vec()));
    assert_eq!(kernel.request(good, Op::TransactionEnd, b"T\0"), Ok(OK.to_vec()));
    assert_eq!(socket.read("/tool/counter"), Ok(b"8".to_vec()));
}

#[test]
fn it_goes_on_with_the_next_daemon() {
    for round in 0..3 {
        let mut dom0 = Dom0::begin();
        dom0.await_answer();
        let mut kernel = Xenbus::open();
        let value = format!("round {round}");
        let request = format!("/tool/round\0{value}");
        assert_eq!(kernel.request(0, Op::Write, request.as_bytes()), Ok(OK.to_vec()));
        let mut client: Client = dom0.connect();
        assert_eq!(client.read("/tool/round"), Ok(value.into_bytes()));
        dom0.stop();
    }
}
