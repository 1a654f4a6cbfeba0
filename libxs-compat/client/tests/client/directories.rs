//! Long lists, and lists that change while they are read.

use crate::open;
use rstest::rstest;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xenstore_client::{Error, Nodes, XsError};
use xenstore_wire::Op;
use xenstored_tests::{Backend, Daemon, Scripted};

#[rstest]
fn five_thousand_children_are_listed(#[values(Backend::Ours, Backend::C)] backend: Backend) {
    let daemon = Daemon::start(backend);
    let client = open(&daemon.socket());
    let names: BTreeSet<Vec<u8>> = (1..=5000).map(|n: u32| n.to_string().into_bytes()).collect();
    for name in &names {
        client.mkdir([b"/d/", name.as_slice()].concat()).unwrap();
    }
    let listed = client.list("/d").unwrap();
    assert_eq!(listed.len(), 5000);
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    let transaction = client.transaction().unwrap();
    transaction.remove("/d/1").unwrap();
    assert_eq!(transaction.list("/d").unwrap().len(), 4999);
}

/// The list always has the marker of one moment and all the fillers.
#[test]
fn a_list_is_that_of_one_moment() {
    let daemon = Daemon::start(Backend::Ours);
    let client = open(&daemon.socket());
    for n in 0..2000 {
        client.mkdir(format!("/d/filler-{n}")).unwrap();
    }
    client.mkdir("/d/a-marker").unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let writer = open(&daemon.socket());
            while !stop.load(Ordering::Relaxed) {
                // The marker moves from one end of the list to the other.
                writer
                    .transact(|t| -> Result<(), Error> {
                        t.remove("/d/a-marker")?;
                        t.mkdir("/d/z-marker")
                    })
                    .unwrap();
                writer
                    .transact(|t| -> Result<(), Error> {
                        t.remove("/d/z-marker")?;
                        t.mkdir("/d/a-marker")
                    })
                    .unwrap();
            }
        });
        for _ in 0..200 {
            let names = client.list("/d").expect("a list that is not given up");
            let markers = names.iter().filter(|name| name.ends_with(b"marker")).count();
            assert_eq!((names.len(), markers), (2001, 1));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Answers each part with another generation, until a transaction is opened.
#[test]
fn a_list_that_always_changes_is_read_in_a_transaction() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || open(&socket).list("/d"));
    let mut line = server.accept();
    let (mut generation, mut tries) = (0, 0);
    while let Some((header, payload)) = line.next_request() {
        match Op::from_number(header.op) {
            Some(Op::Directory) => line.error(&header, "E2BIG"),
            Some(Op::TransactionStart) => line.reply(&header, b"9\0"),
            Some(Op::DirectoryPart) if header.tx_id == 9 => {
                let part: &[u8] = if payload == b"/d\x000\0" { b"7\0a\0b\0\0" } else { b"7\0\0" };
                line.reply(&header, part);
            }
            Some(Op::DirectoryPart) => {
                tries += usize::from(payload == b"/d\x000\0");
                generation += 1;
                line.reply(&header, format!("{generation}\0a\0").as_bytes());
            }
            Some(Op::TransactionEnd) => {
                assert_eq!((header.tx_id, payload.as_slice()), (9, &b"F\0"[..]));
                line.reply(&header, b"OK\0");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.join().unwrap(), Ok(vec![b"a".to_vec(), b"b".to_vec()]));
    assert_eq!(tries, 4, "outside a transaction");
}

/// Plays a daemon with this list, whose parts hold at most `room` bytes of names.
fn serve_list(line: &mut xenstored_tests::Line, list: &[u8], room: usize) {
    while let Some((header, payload)) = line.next_request() {
        if Op::from_number(header.op) == Some(Op::Directory) {
            line.error(&header, "E2BIG");
            continue;
        }
        let offset: usize = std::str::from_utf8(&payload[3..payload.len() - 1]).unwrap().parse().unwrap();
        let rest = list.get(offset..).unwrap_or_default();
        let mut part = rest[..rest.len().min(room)].to_vec();
        while part.last().is_some_and(|&byte| byte != 0) {
            part.pop();
        }
        if part.len() == rest.len() {
            part.push(0);
        }
        line.reply(&header, &[b"7\0", part.as_slice()].concat());
    }
}

#[rstest]
#[case::short_names(6, 4092)]
#[case::long_names(1000, 4092)]
#[case::names_that_fill_a_part(3000, 4092)]
#[case::small_parts(6, 100)]
#[case::one_name_a_part(6, 7)]
fn parts_are_put_together_whatever_their_length(#[case] name: usize, #[case] room: usize) {
    let names: Vec<_> = (0..3000 / name + 40).map(|n| format!("{n:0name$}").into_bytes()).collect();
    let list: Vec<u8> = names.iter().flat_map(|name| [name.as_slice(), b"\0"].concat()).collect();
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || open(&socket).list("/d"));
    serve_list(&mut server.accept(), &list, room);
    assert_eq!(client.join().unwrap(), Ok(names));
}

#[test]
fn parts_that_do_not_fit_each_other_are_an_error() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || open(&socket).list("/d"));
    let mut line = server.accept();
    while let Some((header, payload)) = line.next_request() {
        match Op::from_number(header.op) {
            Some(Op::Directory) => line.error(&header, "E2BIG"),
            _ => {
                // Counts from the beginning wherever a part is to begin.
                let names: String = (0..500).map(|n| format!("{n:07}\0")).collect();
                assert!(payload.starts_with(b"/d\0"));
                line.reply(&header, format!("7\0{names}").as_bytes());
            }
        }
    }
    assert_eq!(client.join().unwrap(), Err(Error::Malformed("a part of a directory")));
}

#[rstest]
#[case::no_transactions("ENOSPC", "EAGAIN")]
fn a_list_that_always_changes_is_given_up_in_the_end(#[case] refusal: &str, #[case] name: &str) {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || open(&socket).list("/d"));
    let mut line = server.accept();
    let mut generation = 0;
    while let Some((header, _)) = line.next_request() {
        match Op::from_number(header.op) {
            Some(Op::Directory) => line.error(&header, "E2BIG"),
            Some(Op::TransactionStart) => line.error(&header, refusal),
            _ => {
                generation += 1;
                line.reply(&header, format!("{generation}\0a\0").as_bytes());
            }
        }
    }
    assert_eq!(client.join().unwrap().unwrap_err().name(), name);
}

#[test]
fn a_daemon_without_parts_leaves_the_list_too_big() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || open(&socket).list("/d"));
    let mut line = server.accept();
    let (header, _) = line.request();
    line.error(&header, "E2BIG");
    while let Some((header, _)) = line.next_request() {
        line.error(&header, "ENOSYS");
    }
    assert_eq!(client.join().unwrap(), Err(Error::Refused(XsError::TooBig)));
}
