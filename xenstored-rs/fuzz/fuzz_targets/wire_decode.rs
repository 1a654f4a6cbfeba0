#![no_main]
//! Arbitrary bytes in arbitrary pieces: the same messages, and the same end, as from all bytes at once.

use libfuzzer_sys::fuzz_target;
use xenstore_wire::{Decoder, PAYLOAD_MAX, TooLong, put_message, split_message};

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (cuts, bytes) = input;
    let mut whole = Vec::new();
    let mut rest = bytes;
    let mut end: Option<TooLong> = None;
    loop {
        match split_message(rest) {
            Ok(Some((message, after))) => {
                assert_eq!(message.payload.len(), message.header.len as usize);
                assert!(message.payload.len() <= PAYLOAD_MAX);
                whole.push((message.header, message.payload.to_vec()));
                rest = after;
            }
            Ok(None) => break,
            Err(too_long) => {
                end = Some(too_long);
                break;
            }
        }
    }

    // What was taken is what encoding makes of it.
    let mut again = Vec::new();
    for (header, payload) in &whole {
        put_message(&mut again, header.op, header.req_id, header.tx_id, payload);
    }
    assert_eq!([&again, rest].concat(), bytes);

    let mut decoder = Decoder::new();
    let (mut got, mut got_end) = (Vec::new(), None);
    let mut left = bytes;
    let mut cuts = cuts.iter().map(|&cut| usize::from(cut) + 1).chain(std::iter::repeat(usize::MAX));
    while !left.is_empty() {
        let (now, later) = left.split_at(cuts.next().unwrap_or(usize::MAX).min(left.len()));
        decoder.push(now);
        left = later;
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => got.push((message.header, message.payload.to_vec())),
                Ok(None) => break,
                Err(too_long) => {
                    got_end = Some(too_long);
                    break;
                }
            }
        }
    }
    assert_eq!((got, got_end), (whole, end));
    assert_eq!(decoder.pending(), rest.len());
});
