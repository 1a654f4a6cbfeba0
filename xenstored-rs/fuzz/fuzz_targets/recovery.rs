#![no_main]
//! A log in which everything happened, changed: the daemon that starts with it has a sound store, or refuses it.

use std::cell::RefCell;
use std::{env, fs, process};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use xenstore_journal::{LogFile, RECORDS_AT, record_checksum};
use xenstored_rs::damage::{recover, sample_log};

/// What is done to the records.
#[derive(Arbitrary, Debug)]
enum Change {
    Set(u16, u8),
    Flip(u16, u8),
    Word(u16, u32),
    /// A record has the kind, or the connection, of another.
    Kind(u8, u8),
    Connection(u8, u8),
    /// Two records change places, if they are of the same length.
    Swap(u8, u8),
}

thread_local! {
    /// A log, as it was written, and as it is changed and put right again.
    static LOG: RefCell<(Vec<u8>, Vec<u8>)> = RefCell::new(log());
}

fuzz_target!(|input: (Vec<Change>, u16, bool)| {
    let (changes, cut, correct) = input;
    LOG.with_borrow_mut(|(whole, log)| {
        let boundaries = boundaries(whole);
        let tail = boundaries[boundaries.len() - 1];
        for change in changes {
            change.apply(log, &boundaries);
        }
        if correct {
            correct_checksums(log, &boundaries);
        }
        // Only so many records are there, or the file ends before them.
        let end = boundaries[usize::from(cut) % boundaries.len()];
        log[512..520].copy_from_slice(&(end as u64).to_ne_bytes());
        let count = recover(log);
        let cut_off = recover(&log[..end.saturating_sub(usize::from(cut) % 3)]);
        assert!(cut_off.is_err() || cut_off == count);
        log[..tail].copy_from_slice(&whole[..tail]);
    });
});

impl Change {
    fn apply(self, log: &mut [u8], boundaries: &[usize]) {
        let tail = boundaries[boundaries.len() - 1];
        let place = |at: u16| RECORDS_AT + usize::from(at) % (tail - RECORDS_AT);
        let record = |number: u8| usize::from(number) % (boundaries.len() - 1);
        match self {
            Self::Set(at, byte) => log[place(at)] = byte,
            Self::Flip(at, bits) => log[place(at)] ^= bits,
            Self::Word(at, word) => {
                let at = place(at) & !3;
                log[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Self::Kind(to, from) => {
                let (to, from) = (boundaries[record(to)], boundaries[record(from)]);
                log.copy_within(from + 8..from + 10, to + 8);
            }
            Self::Connection(to, from) => {
                let (to, from) = (boundaries[record(to)], boundaries[record(from)]);
                log.copy_within(from + 12..from + 16, to + 12);
            }
            Self::Swap(one, other) => {
                let span = |number: usize| boundaries[number]..boundaries[number + 1];
                let (one, other) = (span(record(one).min(record(other))), span(record(one).max(record(other))));
                if one.start != other.start && one.len() == other.len() {
                    let (before, after) = log.split_at_mut(other.start);
                    before[one].swap_with_slice(&mut after[..other.end - other.start]);
                }
            }
        }
    }
}

/// Where records begin and where the last one ends.
fn boundaries(log: &[u8]) -> Vec<usize> {
    let file = LogFile::from_bytes("log.1".as_ref(), log).expect("it is a log");
    let begins = file.records().map(|record| record.expect("it is whole").offset as usize);
    let tail = u64::from_ne_bytes(log[512..520].try_into().expect("eight bytes")) as usize;
    begins.chain([tail]).collect()
}

/// Makes the checksums of records right that have their length still.
fn correct_checksums(log: &mut [u8], boundaries: &[usize]) {
    for &at in &boundaries[..boundaries.len() - 1] {
        let len = u32::from_le_bytes(log[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        if let Some(record) = log.get(at..(at + 24).saturating_add(len.next_multiple_of(8))) {
            let checksum = record_checksum(record);
            log[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// The content of a log, twice.
fn log() -> (Vec<u8>, Vec<u8>) {
    let path = env::temp_dir().join(format!("xenstored-fuzz-recovery.{}", process::id()));
    let log = sample_log(&path);
    fs::remove_dir_all(&path).expect("the directory can be removed");
    (log.clone(), log)
}
