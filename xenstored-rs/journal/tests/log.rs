//! Logs as their users see them: written, read, taken back, continued after a death.

use std::{
    io::{Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
};

use rstest::rstest;
use tempfile::TempDir;
use xenstore_journal::{
    Directory, Full, Log, LogFile, POSITIONS, Position, Received, Suspect, TransferError, sent_count,
};

const WRITER: &str = "test 1.0";

fn directory() -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    (dir, directory)
}

/// What the records of a log are, without their places.
fn contents(log: &Log) -> Vec<(u16, u32, u64, Vec<u8>)> {
    let records = log.records().map(|record| record.unwrap());
    records.map(|record| (record.kind, record.conn, record.time, record.payload.to_vec())).collect()
}

/// The same by way of the file.
fn contents_of_file(directory: &Directory, number: u64) -> Vec<(u16, u32, u64, Vec<u8>)> {
    let log = LogFile::open(directory, number).unwrap();
    let records = log.records().map(|record| record.unwrap());
    records.map(|record| (record.kind, record.conn, record.time, record.payload.to_vec())).collect()
}

#[rstest]
fn records_come_back_as_they_were_written(#[values(true, false)] kept: bool) {
    let (_dir, directory) = directory();
    let log = if kept { Log::first(&directory, WRITER).unwrap() } else { Log::in_memory(WRITER).unwrap() };
    assert_eq!((log.is_kept(), log.is_empty(), log.len()), (kept, true, 0));
    let mut expected = Vec::new();
    for len in 0..40 {
        let payload: Vec<u8> = (0..len).collect();
        let (head, rest) = payload.split_at(payload.len() / 3);
        let span = log.append(u16::from(len), 7, u64::MAX - u64::from(len), &[head, &[], rest]).unwrap();
        assert_eq!(log.bytes(span), payload);
        assert_eq!(log.bytes(span.skip(3)), payload.get(3..).unwrap_or_default());
        expected.push((u16::from(len), 7, u64::MAX - u64::from(len), payload));
        assert_eq!(contents(&log), expected);
    }
    for record in log.records() {
        let record = record.unwrap();
        assert_eq!(log.bytes(record.span()), record.payload);
    }
    if kept {
        assert_eq!(contents_of_file(&directory, 1), expected);
        drop(log);
        assert_eq!(contents(&Log::open(&directory, 1).unwrap()), expected);
    }
}

#[test]
fn a_payload_can_be_read_while_others_come_behind_it() {
    let log = Log::in_memory(WRITER).unwrap();
    let first = log.append(1, 0, 0, &[b"first"]).unwrap();
    let bytes = log.bytes(first);
    log.append(2, 0, 0, &[b"second"]).unwrap();
    assert_eq!(bytes, b"first");
}

#[test]
fn what_is_rewound_is_gone_and_its_place_is_used_again() {
    let (_dir, directory) = directory();
    let mut log = Log::first(&directory, WRITER).unwrap();
    log.append(1, 1, 1, &[b"kept"]).unwrap();
    let mark = log.mark();
    log.append(2, 2, 2, &[b"taken back"]).unwrap();
    log.rewind(mark);
    log.rewind(mark);
    assert_eq!(contents_of_file(&directory, 1), [(1, 1, 1, b"kept".to_vec())]);
    let span = log.append(3, 3, 3, &[b"after"]).unwrap();
    assert_eq!(log.bytes(span), b"after");
    let start = log.start();
    log.rewind(start);
    assert!(log.is_empty() && contents_of_file(&directory, 1).is_empty());
}

#[test]
fn a_tail_counts_when_it_is_sealed_and_only_then() {
    let mut log = Log::in_memory(WRITER).unwrap();
    log.tail(100).unwrap().bytes()[..4].copy_from_slice(b"lost");
    assert!(log.is_empty());
    let mut tail = log.tail(100).unwrap();
    assert_eq!(tail.bytes().len(), 100);
    tail.bytes()[..4].copy_from_slice(b"kept");
    let span = tail.seal(5, 6, 7, 4);
    assert_eq!(log.bytes(span), b"kept");
    assert_eq!(contents(&log), [(5, 6, 7, b"kept".to_vec())]);
}

#[test]
fn a_log_takes_what_it_was_made_for_and_no_more() {
    let (_dir, directory) = directory();
    let directory = directory.with_capacity(100);
    let mut log = Log::first(&directory, WRITER).unwrap();
    assert_eq!(log.capacity(), 96);
    assert_eq!(log.append(0, 0, 0, &[&[1; 73]]), Err(Full::AtCapacity));
    assert_eq!(log.tail(usize::MAX).unwrap_err(), Full::AtCapacity);
    log.append(0, 0, 0, &[&[1; 72]]).unwrap();
    assert_eq!(log.append(0, 0, 0, &[]), Err(Full::AtCapacity));
    assert_eq!(contents_of_file(&directory, 1).len(), 1);
    let next = log.next(&directory, WRITER).unwrap();
    assert_eq!((next.number(), next.len()), (2, 0));
    assert!(!next.heading().begins && next.heading().history == log.heading().history);
}

#[test]
fn a_log_grows_over_many_steps() {
    let (_dir, directory) = directory();
    let log = Log::first(&directory, WRITER).unwrap();
    let payload = vec![3; 700_000];
    for _ in 0..10 {
        log.append(0, 0, 0, &[&payload]).unwrap();
    }
    let log = Log::open(&directory, 1).unwrap();
    assert_eq!(contents(&log).len(), 10);
    log.append(0, 0, 0, &[&payload]).unwrap();
}

#[rstest]
fn bytes_go_through_a_socket_into_records(#[values(true, false)] kept: bool) {
    let (_dir, directory) = directory();
    let log = if kept { Log::first(&directory, WRITER).unwrap() } else { Log::in_memory(WRITER).unwrap() };
    let (mut near, far) = UnixStream::pair().unwrap();
    let receive = || log.receive(far.as_fd(), 1, 2, 3, b"from:", 10);
    match receive() {
        Err(TransferError::Socket(error)) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        other => panic!("{other:?}"),
    }
    near.write_all(b"hello, world").unwrap();
    let Received::Bytes { span, count } = receive().unwrap() else { panic!("the end") };
    assert_eq!((log.bytes(span), count), (&b"from:hello, wor"[..], 10));
    assert_eq!(log.bytes(span.skip(5)), b"hello, wor");
    assert_eq!(log.send(far.as_fd(), 4, 5, 6, b"answer").unwrap(), 6);
    assert!(matches!(receive().unwrap(), Received::Bytes { count: 2, .. }));
    let mut answer = [0; 6];
    near.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
    drop(near);
    assert_eq!(receive().unwrap(), Received::End);
    assert!(log.send(far.as_fd(), 4, 5, 6, b"answer").is_err());

    let expected: [(u16, u32, u64, &[u8]); 3] =
        [(1, 2, 3, b"from:hello, wor"), (4, 5, 6, &6_u64.to_le_bytes()), (1, 2, 3, b"from:ld")];
    let expected = expected.map(|(kind, conn, time, payload)| (kind, conn, time, payload.to_vec()));
    assert_eq!(contents(&log), expected);
    assert_eq!(sent_count(&expected[1].3), Some(6));
    if kept {
        let log = Log::open(&directory, 1).unwrap();
        assert_eq!((contents(&log).as_slice(), log.settled()), (&expected[..], None));
    }
}

#[test]
fn a_transfer_without_room_leaves_the_socket_alone() {
    let (_dir, directory) = directory();
    let log = Log::first(&directory.with_capacity(64), WRITER).unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"x").unwrap();
    let full = |result| matches!(result, Err(TransferError::Full(Full::AtCapacity)));
    assert!(full(log.receive(far.as_fd(), 0, 0, 0, b"", 41).map(drop)));
    log.append(0, 0, 0, &[&[0; 16]]).unwrap();
    assert!(full(log.send(far.as_fd(), 0, 0, 0, b"x").map(drop)));
    assert!(full(log.receive(far.as_fd(), 0, 0, 0, b"", 1).map(drop)));
    near.set_nonblocking(true).unwrap();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let mut byte = [0];
    (&far).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[rstest]
fn positions_are_kept_by_index(#[values(true, false)] kept: bool) {
    let (_dir, directory) = directory();
    let log = if kept { Log::first(&directory, WRITER).unwrap() } else { Log::in_memory(WRITER).unwrap() };
    let start = log.mark();
    log.append(0, 0, 0, &[b"record"]).unwrap();
    let end = log.mark();
    assert_eq!(log.position(0), None);
    log.set_position(0, 10, start).unwrap();
    log.set_position(POSITIONS - 1, 20, end).unwrap();
    log.set_position(300, 30, end).unwrap();
    log.set_position(300, 31, end).unwrap();
    assert_eq!(log.set_position(POSITIONS, 0, end), Err(Full::AtCapacity));
    log.clear_position(0);
    log.clear_position(POSITIONS);
    let check = |log: &Log| {
        let at = log.records().last().unwrap().unwrap().offset + 32;
        assert_eq!(log.position(300), Some(Position { value: 31, at }));
        assert_eq!(log.position(POSITIONS - 1), Some(Position { value: 20, at }));
        assert_eq!((log.position(0), log.position(1), log.position(POSITIONS)), (None, None, None));
    };
    check(&log);
    if kept {
        check(&Log::open(&directory, 1).unwrap());
        let read = LogFile::open(&directory, 1).unwrap();
        assert_eq!(read.positions().map(|(index, _)| index).collect::<Vec<_>>(), [300, POSITIONS - 1]);
    }
}

#[test]
fn a_request_that_is_met_at_each_death_is_counted() {
    let (_dir, directory) = directory();
    let log = Log::first(&directory, WRITER).unwrap();
    let execution = log.execution().unwrap().unwrap();
    execution.begin(0);
    assert_eq!(log.in_execution(), Some(0));
    execution.end();
    assert_eq!(log.in_execution(), None);
    for deaths in 1..4 {
        execution.begin(41);
        let log = Log::open(&directory, 1).unwrap();
        assert_eq!(LogFile::open(&directory, 1).unwrap().in_execution(), Some(41));
        assert_eq!(log.count_death(), Some(Suspect { number: 41, deaths }));
        assert_eq!((log.in_execution(), log.suspect()), (None, Some(Suspect { number: 41, deaths })));
    }
    drop(log);
    execution.begin(42);
    let log = Log::open(&directory, 1).unwrap();
    assert_eq!(log.count_death(), Some(Suspect { number: 42, deaths: 1 }));
    assert_eq!((log.count_death(), log.suspect()), (None, None));
}

#[test]
fn who_is_convicted_stays_so_as_long_as_there_is_a_place() {
    let (_dir, directory) = directory();
    let log = Log::first(&directory, WRITER).unwrap();
    let convicts = |log: &Log| log.convicts().collect::<Vec<_>>();
    assert!(convicts(&log).is_empty());
    assert!(log.convict(9) && log.convict(0) && log.convict(9));
    assert_eq!(log.count_death(), None);
    let log = Log::open(&directory, 1).unwrap();
    assert_eq!(convicts(&log), [9, 0]);
    assert!((100..226).all(|number| log.convict(number)));
    assert!(!log.convict(226) && log.convict(0), "no place, and one that has its place");
    assert_eq!(convicts(&log).len(), 128);
    assert!(LogFile::open(&directory, 1).unwrap().convicts().eq(convicts(&log)));
    assert!(convicts(&log.next(&directory, WRITER).unwrap()).is_empty());
    assert!(Log::in_memory(WRITER).unwrap().execution().unwrap().is_none());
}
