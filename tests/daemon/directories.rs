//! Directories whose listing fits no message.

use std::collections::BTreeSet;
use xenstore_wire::{Op, payload, put_message};
use xenstored_tests::{Backend, Client, Daemon};

/// One slice of a listing.
struct Part {
    generation: String,
    names: Vec<String>,
    /// Bytes of the list that the slice covers.
    bytes: usize,
    /// Whether the end of the list is marked.
    last: bool,
}

fn part(client: &mut Client, path: &str, offset: usize) -> Part {
    let reply = client.request(Op::DirectoryPart, format!("{path}\0{offset}\0").as_bytes()).expect("a slice");
    assert!(reply.len() < 4096, "{} bytes", reply.len());
    let (generation, slice) = payload::string_and_rest(&reply).expect("a generation");
    let mut names: Vec<String> =
        payload::strings(slice).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let last = names.last().is_some_and(String::is_empty);
    if last {
        names.pop();
    }
    assert!(names.iter().all(|name| !name.is_empty()), "an empty name in the middle");
    let generation = String::from_utf8_lossy(generation).into_owned();
    generation.parse::<u64>().expect("a generation is a number");
    Part { generation, bytes: names.iter().map(|name| name.len() + 1).sum(), names, last }
}

/// The whole listing, with the generation that all its slices carry.
fn list(client: &mut Client, path: &str) -> (String, Vec<String>) {
    let mut names = Vec::new();
    let mut offset = 0;
    let mut generation = None;
    loop {
        let slice = part(client, path, offset);
        assert_eq!(
            *generation.get_or_insert_with(|| slice.generation.clone()),
            slice.generation,
            "unchanged, so one generation"
        );
        names.extend(slice.names);
        offset += slice.bytes;
        if slice.last {
            return (slice.generation, names);
        }
    }
}

fn fill(client: &mut Client, path: &str, names: impl Iterator<Item = String>) -> BTreeSet<String> {
    let names: BTreeSet<String> = names.collect();
    for chunk in names.iter().collect::<Vec<_>>().chunks(100) {
        let mut bytes = Vec::new();
        for name in chunk {
            put_message(&mut bytes, Op::Mkdir.number(), 0, 0, format!("{path}/{name}\0").as_bytes());
        }
        client.send_raw(&bytes).expect("the daemon takes requests");
        for name in chunk {
            assert_eq!(client.reply().expect("a reply").result(), Ok(&b"OK\0"[..]), "{name}");
        }
    }
    names
}

#[test]
fn five_thousand_children_are_listed_in_slices() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let names = fill(&mut client, "/d", (1..=5000).map(|i| i.to_string()));
    assert_eq!(client.request(Op::Directory, b"/d\0"), Err("E2BIG".into()));
    let (generation, listed) = list(&mut client, "/d");
    assert_eq!(listed, names.into_iter().collect::<Vec<_>>(), "every name once, sorted by bytes");
    let size: usize = listed.iter().map(|name| name.len() + 1).sum();
    for offset in [size, size + 1, 1_000_000] {
        let beyond = part(&mut client, "/d", offset);
        assert_eq!((beyond.generation, beyond.names.len(), beyond.last), (generation.clone(), 0, true), "{offset}");
    }
}

#[test]
fn the_generation_changes_with_the_children_and_only_then() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut writer = daemon.connect();
    fill(&mut client, "/d", (0..1000).map(|i| format!("{i:04}")));
    let first = part(&mut client, "/d", 0);
    writer.write("/d/0000", b"a new value of a child");
    writer.write("/d/0000/below", b"");
    writer.write("/elsewhere", b"");
    let same = part(&mut client, "/d", first.bytes);
    assert_eq!(first.generation, same.generation);
    assert_eq!(same.names[0], format!("{:04}", first.names.len()));
    writer.write("/d/1000", b"");
    let added = part(&mut client, "/d", 0);
    assert_ne!(first.generation, added.generation);
    assert_eq!(writer.request(Op::Rm, b"/d/1000\0"), Ok(b"OK\0".to_vec()));
    let removed = part(&mut client, "/d", 0);
    assert_ne!(added.generation, removed.generation);
    assert_eq!(first.names, removed.names);
}

#[test]
fn a_listing_made_while_the_children_change_is_that_of_one_moment() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut writer = daemon.connect();
    let fixed = fill(&mut client, "/d", (0..2000).map(|i| format!("{i:04}")));
    writer.write("/d/x0", b"");
    for round in 0..30 {
        let mut offset = 0;
        let mut names = BTreeSet::new();
        let mut generation = None;
        let mut slices = 0;
        // A change in the middle of the first attempt, none later: a client that starts again at a new generation ends.
        loop {
            let slice = part(&mut client, "/d", offset);
            if *generation.get_or_insert_with(|| slice.generation.clone()) != slice.generation {
                (offset, generation) = (0, None);
                names.clear();
                continue;
            }
            names.extend(slice.names);
            offset += slice.bytes;
            slices += 1;
            if slices == 2 {
                writer.write(&format!("/d/x{}", round + 1), b"");
                let old = format!("/d/x{round}\0");
                assert_eq!(writer.request(Op::Rm, old.as_bytes()), Ok(b"OK\0".to_vec()));
            }
            if slice.last {
                break;
            }
        }
        let moving: Vec<String> = names.difference(&fixed).cloned().collect();
        assert_eq!(moving, [format!("x{}", round + 1)], "round {round}");
        assert!(fixed.is_subset(&names), "round {round}");
    }
}

#[test]
fn a_wide_directory_in_a_transaction_is_the_one_of_its_beginning() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut writer = daemon.connect();
    let names = fill(&mut client, "/d", (0..2000).map(|i| format!("{i:04}")));
    let tx = client.start_transaction();
    assert_eq!(writer.request(Op::Rm, b"/d\0"), Ok(b"OK\0".to_vec()));
    let mut listed = Vec::new();
    let mut offset = 0;
    loop {
        let slice = client.request_in(tx, Op::DirectoryPart, format!("/d\0{offset}\0").as_bytes()).expect("a slice");
        let (_, slice) = payload::string_and_rest(&slice).expect("a generation");
        let found: Vec<&[u8]> = payload::strings(slice).collect();
        let last = found.last().is_some_and(|name| name.is_empty());
        let found: Vec<String> = found
            .iter()
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        offset += found.iter().map(|name| name.len() + 1).sum::<usize>();
        listed.extend(found);
        if last {
            break;
        }
    }
    assert_eq!(listed, names.into_iter().collect::<Vec<_>>());
    assert_eq!(client.commit(tx), Ok(()));
    assert_eq!(client.request(Op::DirectoryPart, b"/d\x000\0"), Err("ENOENT".into()));
}

#[test]
fn a_name_that_fits_no_reply_ends_the_listing_with_an_error() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let before = part(&mut client, "/", 0);
    assert!(before.last);
    let long = format!("/{}\0", "z".repeat(4094));
    assert_eq!(client.request(Op::Mkdir, long.as_bytes()), Ok(b"OK\0".to_vec()));
    assert_eq!(part(&mut client, "/", 0).names, before.names);
    assert_eq!(client.request(Op::DirectoryPart, format!("/\0{}\0", before.bytes).as_bytes()), Err("E2BIG".into()));
    assert_eq!(client.request(Op::Rm, long.as_bytes()), Ok(b"OK\0".to_vec()));
    assert!(part(&mut client, "/", 0).last);
    daemon.assert_alive();
}
