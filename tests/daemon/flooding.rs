//! Clients that send without end or never read: they get what is right, and nobody else notices.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use xenstore_wire::{Op, put_message};
use xenstored_tests::{Backend, Client, ClientError, Daemon, Starter, wait};

/// The bytes of `count` requests of one kind, numbered from `first`.
fn requests(op: Op, payload: &[u8], first: u32, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for req_id in first..first + count {
        put_message(&mut bytes, op.number(), req_id, 0, payload);
    }
    bytes
}

/// Sends READs until the daemon takes no more for a while; returns the requests sent whole and the rest of the last.
fn send_until_paused(client: &Client, path: &str) -> (u32, Vec<u8>) {
    use std::io::Write;
    let mut stream = client.stream();
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    for req_id in 0.. {
        let request = requests(Op::Read, format!("{path}\0").as_bytes(), req_id, 1);
        let mut rest = request.as_slice();
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    stream.set_write_timeout(Some(wait::PATIENCE)).expect("a timeout");
                    return (req_id, rest.to_vec());
                }
                Err(error) => panic!("request {req_id}: {error}"),
            }
        }
    }
    unreachable!("requests are numbered without end")
}

#[test]
fn a_client_that_does_not_read_its_replies_is_paused_and_loses_none() {
    let mut daemon = Daemon::start(Backend::Ours);
    let value = vec![b'v'; 4000];
    daemon.connect().write("/t", &value);
    let memory = daemon.anonymous_kib();
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.connect()).collect();
    let sent: Vec<(u32, Vec<u8>)> = thread::scope(|scope| {
        let senders: Vec<_> =
            clients.iter().map(|client| scope.spawn(move || send_until_paused(client, "/t"))).collect();
        senders.into_iter().map(|sender| sender.join().expect("a sender")).collect()
    });
    let grown = daemon.anonymous_kib().saturating_sub(memory);
    assert!(grown < 2048, "{grown} KiB for four clients that do not read");
    daemon.assert_alive();
    for (client, (whole, rest)) in clients.iter_mut().zip(sent) {
        // Reading makes room; then the last request can be finished.
        for req_id in 0..whole {
            let reply = client.reply().unwrap_or_else(|e| panic!("reply {req_id} of {whole}: {e}"));
            assert_eq!((reply.header.req_id, reply.payload.len()), (req_id, value.len()));
        }
        client.send_raw(&rest).expect("the daemon takes requests again");
        assert_eq!(client.reply().map(|reply| reply.header.req_id), Ok(whole));
        assert_eq!(client.settled_events(), []);
    }
}

#[test]
fn a_client_that_sends_without_end_leaves_room_for_others() {
    let mut daemon = Daemon::start(Backend::Ours);
    daemon.connect().write("/t", b"v");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = daemon.connect();
                let batch = requests(Op::Read, b"/t\0", 0, 500);
                while !stop.load(Ordering::Relaxed) {
                    client.send_raw(&batch).expect("the daemon takes requests");
                    for _ in 0..500 {
                        assert_eq!(client.reply().expect("a reply").payload, b"v");
                    }
                }
            });
        }
        let mut client = daemon.connect();
        client.set_patience(Duration::from_secs(2));
        for i in 0..300 {
            assert_eq!(client.read("/t"), Ok(b"v".to_vec()), "read {i}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    daemon.assert_alive();
}

#[test]
fn a_watcher_that_never_reads_is_closed_with_one_log_line() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut deaf = daemon.connect();
    let mut reader = daemon.connect();
    let mut writer = daemon.connect();
    deaf.watch("/t", &"d".repeat(2000));
    reader.watch("/t", "r");
    let lines = daemon.log().lines().count();
    let memory = daemon.anonymous_kib();
    let descriptors = daemon.descriptors();
    let mut written = 0;
    // Every path is another, so that no event falls together with one that waits.
    while daemon.descriptors() == descriptors {
        assert!(written < 100_000, "{written} events wait for one watcher");
        for _ in 0..100 {
            writer.write(&format!("/t/{written}"), b"");
            assert_eq!(reader.event().map(|event| event.path), Ok(format!("/t/{written}")));
            written += 1;
        }
    }
    let grown = daemon.anonymous_kib().saturating_sub(memory);
    assert!(grown < 24 << 10, "{grown} KiB after {written} events");
    // What was sent before can still be read, and then the connection is at its end.
    let first = deaf.event().map(|event| event.path);
    assert_eq!(first, Ok("/t/0".into()));
    assert_eq!(deaf.closed(), Ok(()));
    let log = daemon.log();
    let new: Vec<&str> = log.lines().skip(lines).collect();
    assert_eq!(new.len(), 1, "{log}");
    writer.write("/t", b"again");
    assert_eq!(reader.event().map(|event| event.path), Ok("/t".into()));
    daemon.assert_alive();
}

#[test]
fn with_all_buffers_in_use_newcomers_are_refused_and_the_others_served() {
    // The cap follows from the limit of descriptors, so that a low limit makes it easy to reach.
    let mut daemon = Starter::new(Backend::Ours).descriptors(64, 64).start();
    let mut writer = daemon.connect();
    let mut deaf: Vec<Client> = (0..20).map(|_| daemon.connect()).collect();
    for client in &mut deaf {
        client.watch("/t", &"d".repeat(2000));
    }
    let lines = daemon.log().lines().count();
    let refused = |daemon: &Daemon| {
        let mut newcomer = daemon.connect();
        newcomer.try_request(Op::Read, 0, b"/\0") == Err(ClientError::Closed)
    };
    let mut written = 0;
    while !refused(&daemon) {
        assert!(written < 1000, "{written} events wait for each of 20 watchers");
        for _ in 0..10 {
            writer.write(&format!("/t/{written}"), b"");
            written += 1;
        }
    }
    assert!((0..200).all(|_| refused(&daemon)));
    assert_eq!(writer.read("/t/0"), Ok(Vec::new()), "those who are there are served");
    let log = daemon.log();
    let new = log.lines().count() - lines;
    assert!((1..50).contains(&new), "{new} lines for more than 200 refusals:\n{log}");
    drop(deaf);
    wait::until("newcomers are taken in again", || !refused(&daemon));
    daemon.assert_alive();
}

#[test]
fn equal_events_that_wait_are_one_event() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut deaf = daemon.connect();
    let mut writer = daemon.connect();
    deaf.watch("/t", &"d".repeat(2000));
    let memory = daemon.anonymous_kib();
    for first in (0..200_000).step_by(500) {
        writer.send_raw(&requests(Op::Write, b"/t\0v", first, 500)).expect("the daemon takes requests");
        for _ in 0..500 {
            assert_eq!(writer.reply().expect("a reply").payload, b"OK\0");
        }
    }
    let grown = daemon.anonymous_kib().saturating_sub(memory);
    assert!(grown < 2048, "{grown} KiB for a watcher of one node");
    writer.write("/t/last", b"");
    let events = deaf.settled_events();
    assert_eq!(events.last().map(|event| event.path.as_str()), Some("/t/last"));
    assert!(events.len() < 10_000, "{} events", events.len());
    daemon.assert_alive();
}

#[test]
fn failing_requests_do_not_fill_the_log() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let lines = daemon.log().lines().count();
    for _ in 0..100 {
        let mut batch = requests(Op::Read, b"/missing\0", 0, 250);
        batch.extend((0..250).flat_map(|i| {
            let mut bytes = Vec::new();
            put_message(&mut bytes, 999, i, 0, b"x");
            bytes
        }));
        client.send_raw(&batch).expect("the daemon takes requests");
        for _ in 0..500 {
            assert!(client.reply().expect("a reply").error().is_some());
        }
    }
    let more = daemon.log().lines().count() - lines;
    assert!(more < 100, "{more} lines for 50000 failures");
}

#[test]
fn oversized_headers_from_many_clients_do_not_fill_the_log() {
    let mut daemon = Daemon::start(Backend::Ours);
    let lines = daemon.log().lines().count();
    for _ in 0..1000 {
        let mut client = daemon.connect();
        client.send_raw(&[0xff; 16]).expect("the daemon takes a header");
        assert_eq!(client.arrival(), Err(ClientError::Closed));
    }
    let more = daemon.log().lines().count() - lines;
    assert!(more < 100, "{more} lines for 1000 broken clients");
    daemon.assert_alive();
}
