#![no_main]
//! A log that is written and taken back, beside a list; and the file of a log with anything in it, read and printed.

use std::{cell::RefCell, env, fs, ops::Range, path::Path, process};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use xenstore_journal::{Directory, Full, Log, LogFile, Mark, RECORDS_AT, dump, record_checksum};

/// What is done to a log.
#[derive(Arbitrary, Debug)]
enum Op {
    Append { kind: u16, conn: u32, time: u64, payload: Vec<u8>, cut: u8 },
    Tail { kind: u16, room: u16, len: u16, fill: u8 },
    Mark,
    Rewind { mark: u8 },
    TooMuch { len: u32 },
    Position { index: u32, value: u64 },
    Forget { index: u32 },
    Convict { number: u64 },
}

/// A record without its place.
type Content = (u16, u32, u64, Vec<u8>);

thread_local! {
    /// The file of an empty log, to be changed and put right again.
    static FILE: RefCell<(Vec<u8>, Vec<u8>)> = RefCell::new(empty_log());
}

/// The part of a header where numbers are.
const HEADER: Range<usize> = 0..784;

fuzz_target!(|input: (Vec<Op>, Vec<(u16, u8)>, bool, &[u8])| {
    let (ops, changes, correct, records) = input;
    write(ops);
    FILE.with_borrow_mut(|(file, empty)| {
        let end = RECORDS_AT + records.len();
        file[RECORDS_AT..end].copy_from_slice(records);
        file[512..520].copy_from_slice(&((end & !7) as u64).to_ne_bytes());
        for (at, value) in changes {
            file[usize::from(at) % HEADER.end] = value;
        }
        if correct {
            correct_checksums(file, end & !7);
        }
        read(file);
        file[HEADER].copy_from_slice(&empty[HEADER]);
        file[RECORDS_AT..end].fill(0);
    });
});

fn write(ops: Vec<Op>) {
    let mut log = Log::in_memory("fuzz").unwrap();
    let mut expected: Vec<Content> = Vec::new();
    let mut marks: Vec<(Mark, usize)> = vec![(log.start(), 0)];
    let mut convicts = Vec::new();
    for op in ops {
        match op {
            Op::Append { kind, conn, time, payload, cut } => {
                let (head, rest) = payload.split_at(usize::from(cut).min(payload.len()));
                let span = log.append(kind, conn, time, &[head, rest]).unwrap();
                assert_eq!(log.bytes(span), payload);
                expected.push((kind, conn, time, payload));
            }
            Op::Tail { kind, room, len, fill } => {
                let (room, len) = (usize::from(room), usize::from(len.min(room)));
                let mut tail = log.tail(room).unwrap();
                tail.bytes()[..len].fill(fill);
                let span = tail.seal(kind, 0, 0, len);
                assert_eq!(span.len(), len);
                expected.push((kind, 0, 0, vec![fill; len]));
            }
            Op::Mark => marks.push((log.mark(), expected.len())),
            Op::Rewind { mark } => {
                marks.truncate(usize::from(mark) % marks.len() + 1);
                let (mark, len) = marks[marks.len() - 1];
                log.rewind(mark);
                expected.truncate(len);
            }
            Op::TooMuch { len } => {
                let len = (len as usize).saturating_add(log.capacity() - log.len());
                assert_eq!(log.tail(len).map(drop), Err(Full::AtCapacity));
            }
            Op::Position { index, value } => {
                if log.set_position(index, value, log.start()).is_ok() {
                    assert_eq!(log.position(index).map(|position| position.value), Some(value));
                }
            }
            Op::Forget { index } => {
                log.clear_position(index);
                assert_eq!(log.position(index), None);
            }
            Op::Convict { number } => {
                let number = number.min(u64::MAX - 1);
                let known = convicts.contains(&number);
                assert_eq!(log.convict(number), known || convicts.len() < 128);
                if !known && convicts.len() < 128 {
                    convicts.push(number);
                }
                assert!(log.convicts().eq(convicts.iter().copied()));
            }
        }
    }
    let records = log.records().map(|record| record.unwrap());
    let found: Vec<Content> =
        records.map(|record| (record.kind, record.conn, record.time, record.payload.to_vec())).collect();
    assert_eq!(found, expected);
}

fn read(file: &[u8]) {
    let Ok(log) = LogFile::from_bytes(Path::new("log.1"), file) else { return };
    let copy = Log::in_memory("fuzz").unwrap();
    let mut whole = true;
    for record in log.records() {
        match record {
            Ok(record) => drop(copy.append(record.kind, record.conn, record.time, &[record.payload]).unwrap()),
            Err(_) => whole = false,
        }
    }
    // Written again, it is the same.
    for (record, copied) in log.records().zip(copy.records()) {
        assert_eq!(record.unwrap(), copied.unwrap());
    }
    let mut text = Vec::new();
    let printed = dump(&log, &mut text, |record| String::from_utf8_lossy(record.payload).into_owned()).unwrap();
    assert_eq!(printed, whole);
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().count() >= 5 + log.records().count());
    assert!(!text.contains(|character: char| character.is_control() && character != '\n'));
}

/// Makes the checksums of the heading, and of the records as far as they can be followed, right.
fn correct_checksums(file: &mut [u8], end: usize) {
    let heading = crc32c::crc32c(&file[..256]);
    file[256..260].copy_from_slice(&heading.to_le_bytes());
    let mut at = RECORDS_AT;
    while at + 24 <= end {
        let len = u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
        let behind = at.checked_add((24 + len).next_multiple_of(8)).filter(|behind| *behind <= end);
        let Some(behind) = behind else { break };
        let checksum = record_checksum(&file[at..behind]);
        file[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        at = behind;
    }
}

/// The content of a log's file, twice.
fn empty_log() -> (Vec<u8>, Vec<u8>) {
    let path = env::temp_dir().join(format!("xenstored-fuzz-journal.{}", process::id()));
    let directory = Directory::open(&path).unwrap();
    let log = Log::first(&directory, "fuzz").unwrap();
    let file = fs::read(log.path()).unwrap();
    fs::remove_dir_all(&path).unwrap();
    (file.clone(), file)
}
