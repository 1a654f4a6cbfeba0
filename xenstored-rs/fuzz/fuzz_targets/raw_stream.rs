#![no_main]
//! Arbitrary bytes from a socket and from a domain: no failure, and the same answers however the bytes were split.

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use xenstore_core::{Config, ConnId, DomId};
use xenstored_fuzz::Driver;

/// Plays both streams in pieces of these lengths, one after the other; gives all that came back.
fn play(cuts: &[u8], socket_bytes: &[u8], guest_bytes: &[u8]) -> BTreeMap<ConnId, Vec<u8>> {
    let mut driver = Driver::new(Config::default());
    driver.record = Some(BTreeMap::new());
    let socket = driver.open().expect("the first is let in");
    let guest = driver.introduce(DomId(3));
    for (conn, bytes) in [(guest, guest_bytes), (socket, socket_bytes)] {
        let mut left = bytes;
        let mut cuts = cuts.iter().map(|&cut| usize::from(cut) + 1).chain(std::iter::repeat(usize::MAX));
        while !left.is_empty() {
            let (now, later) = left.split_at(cuts.next().unwrap_or(usize::MAX).min(left.len()));
            driver.send(conn, now);
            driver.settle();
            left = later;
        }
    }
    driver.check_answered();
    // Somebody who comes later finds the store at work.
    let newcomer = driver.open().expect("there is room");
    let reply = driver.ask(newcomer, xenstore_wire::Op::Control, 0, b"check\0");
    assert_eq!(reply.1, b"OK\0");
    driver.record.take().unwrap_or_default()
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>, &[u8])| {
    let (cuts, guest, socket) = input;
    assert_eq!(play(&cuts, socket, &guest), play(&[], socket, &guest));
});
