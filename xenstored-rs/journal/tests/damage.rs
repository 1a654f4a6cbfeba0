//! Files that are cut or changed: told of, never believed, never a crash.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    io::Write,
    ops::Range,
    os::{
        fd::AsFd,
        unix::{fs::FileExt, net::UnixStream},
    },
    path::Path,
};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use rstest::rstest;
use tempfile::TempDir;
use xenstore_journal::{
    Directory, Error, Image, ImageWriter, Log, LogFile, Note, RECORDS_AT, Received, Suspect, dump, record_checksum,
    sent_count,
};

/// A journal with a log in which everything is used, and an image.
fn journal() -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    let log = Log::first(&directory, "test 1.0").unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    for number in 0..12_u16 {
        near.write_all(&vec![7; usize::from(number) * 9 + 1]).unwrap();
        let received = log.receive(far.as_fd(), number, 1, 2_000_000_003, b"pre", 500).unwrap();
        assert!(matches!(received, Received::Bytes { .. }));
    }
    log.send(far.as_fd(), 12, 2, 5, b"eleven char").unwrap();
    log.append(13, 0, 6, &[]).unwrap();
    log.set_position(0, 0x1234, log.mark()).unwrap();
    log.set_position(700, 9, log.start()).unwrap();
    log.set_suspect(Some(Suspect { number: 40, deaths: 2 }));
    log.execution().unwrap().unwrap().begin(41);
    assert!(log.convict(39));
    let mut image = ImageWriter::create(&directory, log.heading()).unwrap();
    image.write_all(&[9; 300]).unwrap();
    image.finish().unwrap();
    (dir, directory)
}

fn log_bytes(directory: &Directory) -> Vec<u8> {
    fs::read(directory.path().join("log.1")).unwrap()
}

fn path() -> &'static Path {
    Path::new("log.1")
}

/// A record without its place: kind, connection, time, payload.
type Content = (u16, u32, u64, Vec<u8>);

/// Where the numbers are that are changed where it hurts: those of the header, and the records.
const HEADER: Range<usize> = 0..784;

/// Kind, connection, time and payload by offset; and the error that ended it.
fn read(bytes: &[u8]) -> Result<(BTreeMap<u64, Content>, Option<Error>), Error> {
    let log = LogFile::from_bytes(path(), bytes)?;
    let (mut records, mut failed) = (BTreeMap::new(), None);
    for record in log.records() {
        match record {
            Ok(record) => {
                assert!(failed.is_none(), "it goes on behind damage");
                records.insert(record.offset, (record.kind, record.conn, record.time, record.payload.to_vec()));
            }
            Err(error) => failed = Some(error),
        }
    }
    let _ = (log.note(), log.in_execution(), log.suspect(), log.position(0), log.position(u32::MAX));
    Ok((records, failed))
}

#[test]
fn a_file_is_whole_if_it_reaches_to_the_tail_and_damaged_if_not() {
    let (_dir, directory) = journal();
    let bytes = log_bytes(&directory);
    let (all, failed) = read(&bytes).unwrap();
    assert!(all.len() == 14 && failed.is_none());
    let tail = RECORDS_AT + LogFile::from_bytes(path(), &bytes).unwrap().len();
    assert!(tail + 5000 < bytes.len());
    for cut in 0..tail {
        match read(&bytes[..cut]) {
            Err(Error::NotAJournal { .. }) => assert!(cut < 512),
            Err(Error::Damaged { offset, .. }) => assert!(cut >= 512 && (offset == 0) == (cut < 4096), "{cut}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    for cut in tail..tail + 5000 {
        assert_eq!(read(&bytes[..cut]).unwrap().0, all);
    }
}

#[test]
fn what_is_beyond_the_tail_does_not_matter() {
    let (_dir, directory) = journal();
    let mut bytes = log_bytes(&directory);
    let (all, _) = read(&bytes).unwrap();
    let tail = RECORDS_AT + LogFile::from_bytes(path(), &bytes).unwrap().len();
    // The beginning of a record that was not sealed, as a death leaves it.
    bytes.copy_within(RECORDS_AT..RECORDS_AT + 30, tail);
    let (records, failed) = read(&bytes).unwrap();
    assert!(records == all && failed.is_none());
    fs::write(directory.path().join("log.1"), &bytes).unwrap();
    let log = Log::open(&directory, 1).unwrap();
    log.append(99, 0, 0, &[b"behind it"]).unwrap();
    assert_eq!(log.records().map(|record| record.unwrap().kind).collect::<Vec<_>>().len(), all.len() + 1);
}

#[test]
fn a_note_is_good_for_one_place() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    let mut log = Log::first(&directory, "test").unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    let note = || LogFile::open(&directory, 1).unwrap().note();
    let mark = log.mark();
    near.write_all(b"bytes").unwrap();
    log.receive(far.as_fd(), 1, 2, 3, b"prefix", 100).unwrap();
    assert_eq!(note(), None, "the record is sealed");
    // As if the record had not been sealed: the tail is put back where the call was made.
    let tail_back = |to: u64| {
        let file = fs::OpenOptions::new().write(true).open(directory.path().join("log.1")).unwrap();
        file.write_all_at(&to.to_ne_bytes(), 512).unwrap();
    };
    tail_back(RECORDS_AT as u64);
    let expected = Note::Received { conn: 2, time: 3, kind: 1, prefix: 6, count: 5 };
    assert_eq!(note(), Some(expected));
    let next = Log::open(&directory, 1).unwrap();
    let settled = next.settled().unwrap();
    let record = next.records().next().unwrap().unwrap();
    assert_eq!((record.kind, record.conn, record.time, record.payload), (1, 2, 3, &b"prefixbytes"[..]));
    let expected = xenstore_journal::Settled::Received { conn: 2, kind: 1, span: record.span(), count: 5 };
    assert_eq!(settled, expected);
    drop(next);
    assert_eq!((note(), Log::open(&directory, 1).unwrap().settled()), (None, None), "settled once");
    // Taken back on purpose: nothing is to be settled.
    log.rewind(mark);
    assert_eq!(note(), None);
    assert_eq!(Log::open(&directory, 1).unwrap().settled(), None);

    log.send(far.as_fd(), 4, 5, 6, b"sent").unwrap();
    tail_back(RECORDS_AT as u64);
    assert_eq!(note(), Some(Note::Sent { conn: 5, time: 6, kind: 4, count: 4 }));
    let next = Log::open(&directory, 1).unwrap();
    assert_eq!(next.settled(), Some(xenstore_journal::Settled::Sent { conn: 5, kind: 4, count: 4 }));
    assert_eq!(sent_count(next.records().next().unwrap().unwrap().payload), Some(4));
}

#[rstest]
#[case::tail_before_the_records(512, RECORDS_AT as u64 - 8, "the tail is not where a record could end")]
#[case::tail_that_is_odd(512, RECORDS_AT as u64 + 9, "the tail is not where a record could end")]
#[case::tail_beyond_the_blocks(512, RECORDS_AT as u64 + (1 << 20) + 8, "the tail is not where a record could end")]
#[case::tail_of_ones(512, u64::MAX, "the tail is not where a record could end")]
#[case::no_blocks(520, 0, "blocks beyond the capacity")]
#[case::blocks_of_ones(520, u64::MAX, "blocks beyond the capacity")]
#[case::table_of_nothing(528, 0, "blocks beyond the table")]
#[case::table_of_odd_blocks(528, 5000, "blocks beyond the table")]
#[case::table_of_ones(528, u64::MAX, "blocks beyond the table")]
#[case::unknown_call(640, 3, "a note of an unknown call")]
fn numbers_of_the_header_that_cannot_be_are_told(#[case] at: usize, #[case] number: u64, #[case] what: &str) {
    let (_dir, directory) = journal();
    let file = directory.path().join("log.1");
    let mut bytes = log_bytes(&directory);
    bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    fs::write(&file, &bytes).unwrap();
    let text = format!("{} is damaged at byte {at}: {what}", file.display());
    assert_eq!(Log::open(&directory, 1).unwrap_err().to_string(), text);
    assert_eq!(LogFile::open(&directory, 1).unwrap_err().to_string(), text);
}

#[rstest]
#[case::kind(656, 1 << 16)]
#[case::connection(664, 1 << 32)]
#[case::prefix(680, u64::MAX - 100)]
#[case::prefix_beyond_the_blocks(680, 1 << 20)]
#[case::fewer_asked_for(688, 3)]
#[case::more_moved(760, 501)]
fn a_note_that_cannot_be_is_told(#[case] at: usize, #[case] number: u64) {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    let log = Log::first(&directory, "test").unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"bytes").unwrap();
    log.receive(far.as_fd(), 1, 2, 3, b"", 500).unwrap();
    let mut bytes = log_bytes(&directory);
    bytes[512..520].copy_from_slice(&(RECORDS_AT as u64).to_ne_bytes());
    assert!(LogFile::from_bytes(path(), &bytes).unwrap().note().is_some());
    bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    assert!(matches!(read(&bytes), Err(Error::Damaged { .. })));
    fs::write(directory.path().join("log.1"), &bytes).unwrap();
    assert!(matches!(Log::open(&directory, 1), Err(Error::Damaged { .. })));
}

/// Bytes to be changed: where and to what, of a header and of records.
fn changes(tail: usize) -> impl Strategy<Value = Vec<(usize, u8)>> {
    let interesting = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    vec((prop_oneof![HEADER, 512..784_usize, RECORDS_AT..tail], interesting), 1..6)
}

/// Makes the checksums of a heading, and of the records as far as they can be followed, right.
fn correct_checksums(bytes: &mut [u8], tail: usize) {
    let heading = crc32c::crc32c(&bytes[..256]);
    bytes[256..260].copy_from_slice(&heading.to_le_bytes());
    let mut at = RECORDS_AT;
    while at + 24 <= tail {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let Some(end) = at.checked_add((24 + len).next_multiple_of(8)).filter(|end| *end <= tail) else { break };
        let checksum = record_checksum(&bytes[at..end]);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
}

#[test]
fn changed_bytes_are_noticed_and_never_a_crash() {
    let (_dir, directory) = journal();
    let original = log_bytes(&directory);
    let (all, _) = read(&original).unwrap();
    let tail = RECORDS_AT + LogFile::from_bytes(path(), &original).unwrap().len();
    // One copy for all cases: only what a case changes is restored.
    let bytes = RefCell::new(original.clone());
    let config = ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&(changes(tail), any::<bool>()), |(changes, corrected)| {
        let mut bytes = bytes.borrow_mut();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if corrected {
            correct_checksums(&mut bytes, tail);
        }
        let result = read(&bytes);
        bytes[HEADER].copy_from_slice(&original[HEADER]);
        bytes[RECORDS_AT..tail].copy_from_slice(&original[RECORDS_AT..tail]);
        if let (Ok((records, _)), false) = (result, corrected) {
            // What is still read is what was written, from the start on without a gap.
            let expected = all.iter().take(records.len());
            prop_assert!(records.iter().eq(expected));
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(*bytes.borrow() == original);
}

#[test]
fn a_changed_log_is_opened_for_writing_or_refused() {
    let (_dir, directory) = journal();
    let original = log_bytes(&directory);
    let tail = RECORDS_AT + LogFile::from_bytes(path(), &original).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(directory.path().join("log.1")).unwrap();
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&(changes(tail), any::<bool>()), |(changes, corrected)| {
        let mut bytes = original[..tail].to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if corrected {
            correct_checksums(&mut bytes, tail);
        }
        file.write_all_at(&bytes[HEADER], 0).unwrap();
        file.write_all_at(&bytes[RECORDS_AT..], RECORDS_AT as u64).unwrap();
        if let Ok(mut log) = Log::open(&directory, 1) {
            let before = log.records().filter(Result::is_ok).count();
            let mark = log.mark();
            if log.append(1, 2, 3, &[b"goes on"]).is_ok() && log.records().all(|record| record.is_ok()) {
                prop_assert_eq!(log.records().count(), before + 1);
            }
            log.rewind(mark);
            let _ = log.set_position(1, 2, mark);
            let _ = log.count_death();
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn every_cut_and_every_changed_byte_of_an_image_is_noticed() {
    let (_dir, directory) = journal();
    let file = directory.path().join("image.1");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(Image::open(&directory, 1).unwrap().content(), [9; 300]);
    for cut in 0..bytes.len() {
        fs::write(&file, &bytes[..cut]).unwrap();
        assert!(Image::open(&directory, 1).is_err(), "cut at {cut}");
    }
    // Between the heading's checksum and the content nothing is kept.
    for at in (0..260).chain(512..bytes.len()) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        fs::write(&file, &changed).unwrap();
        assert!(Image::open(&directory, 1).is_err(), "changed at {at}");
    }
    fs::write(&file, [&bytes[..], b"more"].concat()).unwrap();
    assert!(Image::open(&directory, 1).is_err());
}

#[test]
fn a_log_reads_as_text_damage_included() {
    let (_dir, directory) = journal();
    let text = |bytes: &[u8]| {
        let mut out = Vec::new();
        let log = LogFile::from_bytes(path(), bytes).unwrap();
        let whole = dump(&log, &mut out, |record| format!("\u{1b}[31mten\n{}", record.kind)).unwrap();
        (whole, String::from_utf8(out).unwrap())
    };
    let mut bytes = log_bytes(&directory);
    let (whole, all) = text(&bytes);
    let lines: Vec<_> = all.lines().collect();
    assert!(whole);
    assert_eq!(lines[..2], ["file     log.1", "writer   test 1.0"]);
    assert_eq!(lines[5..8], ["executing request 41", "suspect  request 40, 2 deaths", "refused  request 39"]);
    assert!(lines[8].starts_with("position 0: 0x0000000000001234 at "), "{}", lines[8]);
    assert_eq!(lines[9], format!("position 700: 0x0000000000000009 at {RECORDS_AT}"));
    let first = format!("{RECORDS_AT:>10} 2.000000003 kind 0 conn 1 4 bytes: \\u{{1b}}[31mten\\n0");
    assert_eq!((lines[10], lines.len()), (first.as_str(), 10 + 14));

    bytes[RECORDS_AT + 24] ^= 1;
    let (whole, damaged) = text(&bytes);
    let lines: Vec<_> = damaged.lines().collect();
    assert!(!whole);
    assert_eq!(lines[10..], [format!("log.1 is damaged at byte {RECORDS_AT}: the checksum of a record is wrong")]);

    bytes[512..520].copy_from_slice(&(RECORDS_AT as u64).to_ne_bytes());
    bytes[648..656].copy_from_slice(&(RECORDS_AT as u64).to_ne_bytes());
    let (whole, noted) = text(&bytes);
    assert!(whole);
    assert_eq!(noted.lines().last(), Some("under way: kind 12 conn 2 at 0.000000005: 11 bytes were sent"));
}
