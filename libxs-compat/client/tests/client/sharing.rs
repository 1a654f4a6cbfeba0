//! One client, many threads; one client, two processes.

use crate::{open, store};
use std::thread;
use std::time::Duration;
use xenstore_client::{Client, Error, Event, Nodes, Options, Transaction, Watch};
use xenstore_wire::Op;
use xenstored_tests::Scripted;

#[test]
fn everything_may_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Client>();
    check::<Transaction>();
    check::<Watch>();
    check::<Event>();
    check::<Error>();
}

#[test]
fn sixteen_threads_get_their_own_answers() {
    let (_daemon, client) = store();
    let _watch = client.watch("/").unwrap();
    for n in 0..16 {
        client.write(format!("/t/{n}"), format!("value {n}")).unwrap();
    }
    thread::scope(|scope| {
        for n in 0..16 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..500 {
                    assert_eq!(client.read_text(format!("/t/{n}")).unwrap(), format!("value {n}"));
                    if round % 50 == 0 {
                        client.write(format!("/t/{n}"), format!("value {n}")).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn answers_are_matched_by_their_number() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..5)
            .map(|n| {
                let client = &client;
                scope.spawn(move || (n, client.read_text(format!("/{n}")).unwrap()))
            })
            .collect();
        let mut requests: Vec<_> = (0..5).map(|_| line.request()).collect();
        requests.reverse();
        for (header, payload) in requests {
            line.event("/nobody", "nobody");
            line.reply(&header, &payload[..payload.len() - 1]);
        }
        for reader in readers {
            let (n, value) = reader.join().unwrap();
            assert_eq!(value, format!("/{n}"));
        }
    });
}

#[test]
fn a_late_answer_is_dropped() {
    let server = Scripted::start();
    let client = Options::new().place(server.socket()).timeout(Duration::from_millis(20)).open().unwrap();
    let mut line = server.accept();
    assert_eq!(client.read("/slow"), Err(Error::TimedOut));
    let (slow, _) = line.request();
    line.reply(&slow, b"slow");
    let patient = thread::spawn(move || {
        // Each of these may be late again on a busy machine, but none may get the slow one's answer.
        loop {
            match client.read("/quick") {
                Err(Error::TimedOut) => {}
                done => return done,
            }
        }
    });
    while let Some((header, _)) = line.next_request() {
        line.reply(&header, b"quick");
    }
    assert_eq!(patient.join().unwrap().unwrap(), b"quick");
}

/// The daemon reads nothing more while it cannot send; a client that is about to send must not wait for that.
#[test]
fn many_large_requests_do_not_block_each_other() {
    let (_daemon, client) = store();
    let _watch = client.watch("/").unwrap();
    let value = [b'x'; 4000];
    thread::scope(|scope| {
        for n in 0..64 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..20 {
                    client.write(format!("/big/{n}"), value).unwrap();
                    assert_eq!(client.read(format!("/big/{n}")).unwrap(), value);
                }
            });
        }
    });
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    let reader = thread::spawn(move || client.read("/a"));
    let (header, _) = line.request();
    let mut bytes = Vec::new();
    xenstore_wire::put_event(&mut bytes, b"/e", b"t");
    xenstore_wire::put_message(&mut bytes, Op::Read.number(), header.req_id, 0, b"value");
    for byte in bytes {
        line.send(&[byte]);
    }
    assert_eq!(reader.join().unwrap().unwrap(), b"value");
}
