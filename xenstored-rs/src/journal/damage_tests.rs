//! Logs that are cut or changed are recovered from or refused: never a panic, and never a store that is not sound.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use xenstore_journal::{LogFile, RECORDS_AT, record_checksum};

use super::record::Record;
use super::sample::{recover_bytes, sample};

/// Where a log's header says how far its records go.
const TAIL: std::ops::Range<usize> = 512..520;

/// So many times as many changed logs are gone through as other properties have cases: a hundred thousand.
const CHANGED: u32 = 400;

fn log() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("journal"))
}

/// Where records begin and where the last one ends.
fn boundaries(log: &[u8]) -> Vec<usize> {
    let file = LogFile::from_bytes("log.1".as_ref(), log).unwrap();
    let begins = file.records().map(|record| usize::try_from(record.unwrap().offset).unwrap());
    let tail = usize::try_from(u64::from_ne_bytes(log[TAIL].try_into().unwrap())).unwrap();
    begins.chain([tail]).collect()
}

#[test]
fn the_sample_has_every_kind_of_record() {
    let log = log();
    let file = LogFile::from_bytes("log.1".as_ref(), &log[..]).unwrap();
    let kinds: BTreeSet<_> = file
        .records()
        .map(|record| {
            let record = record.unwrap();
            let call = Record::decode(record.kind, record.payload).unwrap();
            format!("{call:?}").split(|after: char| !after.is_alphanumeric()).next().unwrap().to_owned()
        })
        .collect();
    let want = "Answered Began Closed Domains Existing Hold Host Introduced Open Put Rebound Received Reconnected \
                RingFailed Sent Started Step Taken";
    assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), want);
    assert_eq!(recover_bytes(&log), Ok(file.records().count()));
}

#[test]
fn every_beginning_is_recovered_from_or_refused() {
    let whole = log();
    let boundaries = boundaries(&whole);
    let end = boundaries[boundaries.len() - 1];
    // A file that is cut is refused, and names the place; one that ends after a record is a log of fewer records.
    for cut in (0..RECORDS_AT).step_by(997).chain(RECORDS_AT..end) {
        assert!(recover_bytes(&whole[..cut]).is_err(), "{cut}");
    }
    let mut log = whole.clone();
    for tail in (RECORDS_AT..end).step_by(8) {
        log[TAIL].copy_from_slice(&(tail as u64).to_ne_bytes());
        let recovered = recover_bytes(&log);
        match boundaries.iter().position(|at| *at == tail) {
            Some(records) if records > 0 => assert_eq!(recovered, Ok(records), "{tail}"),
            Some(_) => assert!(recovered.is_err(), "nothing begins there"),
            None => {
                let whole_before = boundaries.iter().filter(|at| **at < tail).count() - 1;
                assert!(recovered.is_err() || recovered == Ok(whole_before), "{tail}: {recovered:?}");
            }
        }
    }
}

#[test]
fn changed_ones_are_recovered_from_or_refused() {
    let mut log = log();
    let (boundaries, whole) = (boundaries(&log), log.clone());
    let end = boundaries[boundaries.len() - 1];
    let change = (RECORDS_AT..end, prop_oneof![any::<u8>(), 0..4_u8, Just(255)]);
    // Most have right checksums all the same: else they would be refused at once.
    let input = (prop::collection::vec(change, 1..5), prop::bool::weighted(0.9));
    let mut config = ProptestConfig::default();
    config.cases *= CHANGED;
    let cases = config.cases;
    let mut runner = TestRunner::new(config);
    let (mut recovered, mut refused) = (0, 0);
    let log = std::cell::RefCell::new(&mut log);
    let counts = std::cell::RefCell::new((&mut recovered, &mut refused));
    let result = runner.run(&input, |(changes, correct)| {
        let (mut log, mut counts) = (log.borrow_mut(), counts.borrow_mut());
        changes.iter().for_each(|(at, byte)| log[*at] = *byte);
        if correct {
            correct_checksums(&mut log, &boundaries);
        }
        match recover_bytes(&log[..end]) {
            Ok(_) => *counts.0 += 1,
            Err(_) => *counts.1 += 1,
        }
        log[RECORDS_AT..end].copy_from_slice(&whole[RECORDS_AT..end]);
        Ok(())
    });
    result.unwrap();
    assert_eq!(recovered + refused, cases);
    // Else it would not have been about the records.
    assert!(recovered > cases / 10 && refused > cases / 10, "{recovered} {refused}");
}

/// Makes the checksums of the records right.
fn correct_checksums(log: &mut [u8], boundaries: &[usize]) {
    for &at in &boundaries[..boundaries.len() - 1] {
        let len = u32::from_le_bytes(log[at + 4..at + 8].try_into().unwrap()) as usize;
        if let Some(record) = log.get(at..at + 24 + len.next_multiple_of(8)) {
            let checksum = record_checksum(record);
            log[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}
