//! The memory of a log, with everything that is lent out held as long as it may be. Without files and sockets, so that
//! Miri can follow every access:
//!
//!     cargo +nightly miri test -p xenstore-journal --test memory

use xenstore_journal::{Full, Log, Position};

#[test]
fn payloads_stay_while_records_positions_and_notes_come() {
    let mut log = Log::in_memory("memory").unwrap();
    let start = log.start();
    for round in 0..3 {
        let first = log.append(1, 2, 3, &[b"fi", b"rst"]).unwrap();
        let lent = log.bytes(first);
        let mut records = log.records();
        let record = records.next().unwrap().unwrap();
        let second = log.append(4, 5, 6, &[lent, lent]).unwrap();
        log.set_position(round, 7, log.mark()).unwrap();
        assert_eq!((lent, record.payload, log.bytes(second)), (&b"first"[..], &b"first"[..], &b"firstfirst"[..]));
        assert!(records.next().is_none(), "records are those of the moment they were asked for");
        assert_eq!(log.records().count(), 2);

        let mark = log.mark();
        let mut tail = log.tail(1000).unwrap();
        tail.bytes()[..7].copy_from_slice(b"written");
        let bytes = tail.bytes();
        bytes[0] = b'W';
        let third = tail.seal(9, 9, 9, 7);
        assert_eq!(log.bytes(third), b"Written");
        let bytes = log.bytes(third).to_vec();
        log.rewind(mark);
        let again = log.append(0, 0, 0, &[&bytes, b"again"]).unwrap();
        assert_eq!((again.len(), log.bytes(again)), (12, &b"Writtenagain"[..]));
        log.rewind(start);
        assert!(log.is_empty());
    }
    assert_eq!(log.position(1).map(|Position { value, .. }| value), Some(7));
    log.clear_position(1);
    assert_eq!((log.position(1), log.count_death()), (None, None));
}

#[test]
fn the_last_byte_of_a_log_is_of_use() {
    let mut log = Log::in_memory("memory").unwrap();
    let most = log.capacity() - 24;
    assert_eq!(log.append(0, 0, 0, &[&vec![1; most + 1]]), Err(Full::AtCapacity));
    let mut tail = log.tail(most).unwrap();
    *tail.bytes().last_mut().unwrap() = 9;
    let span = tail.seal(0, 0, 0, most);
    assert_eq!((log.bytes(span).last(), log.len()), (Some(&9), log.capacity()));
    assert_eq!(log.append(0, 0, 0, &[]), Err(Full::AtCapacity));
}

#[test]
#[should_panic(expected = "range.end <= self.tail.get()")]
fn a_place_that_was_taken_back_is_not_read() {
    let mut log = Log::in_memory("memory").unwrap();
    let span = log.append(0, 0, 0, &[b"bytes"]).unwrap();
    let start = log.start();
    log.rewind(start);
    let _ = log.bytes(span);
}
