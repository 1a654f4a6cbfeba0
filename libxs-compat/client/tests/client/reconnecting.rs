//! A daemon that comes back.

use crate::store;
use std::thread;
use xenstore_client::{Client, Commit, Error, Event, Nodes, Options, XsError};
use xenstore_wire::Op;
use xenstored_tests::{Backend, Daemon, Scripted, Starter, wait};

fn reconnecting(daemon: &Daemon) -> Client {
    Options::new().place(daemon.socket()).reconnect(true).open().unwrap()
}

/// Ends a daemon and starts another in its place.
fn replace(daemon: Daemon) -> Daemon {
    Starter::new(Backend::Ours).start_in(daemon.kill())
}

#[test]
fn without_being_asked_a_client_stays_closed() {
    let (daemon, client) = store();
    client.write("/a", "1").unwrap();
    let _daemon = replace(daemon);
    assert!(matches!(client.read("/"), Err(Error::Broken(_))));
    assert_eq!(client.read("/"), Err(Error::Closed));
}

#[test]
fn the_next_request_reaches_the_new_daemon() {
    let daemon = Daemon::start(Backend::Ours);
    let client = reconnecting(&daemon);
    client.write("/a", "1").unwrap();
    let daemon = replace(daemon);
    // The first may find the connection broken; it is not sent again.
    let _first = client.write("/a", "2");
    client.write("/a", "3").unwrap();
    assert_eq!(client.read("/a").unwrap(), b"3");
    drop(daemon);
    let errors = [client.read("/"), client.read("/"), client.read("/")].map(Result::unwrap_err);
    assert_eq!(errors[2], Error::Closed);
}

#[test]
fn watches_are_registered_with_the_new_daemon_and_fire() {
    let daemon = Daemon::start(Backend::Ours);
    let client = reconnecting(&daemon);
    let (a, b) = (client.watch("/a").unwrap(), client.watch("/b").unwrap());
    let gone = client.watch("/gone").unwrap();
    a.wait().unwrap();
    b.wait().unwrap();
    gone.unwatch().unwrap();
    let daemon = replace(daemon);
    // Nobody makes a request: the background reader does it alone.
    assert_eq!(a.wait().unwrap().path(), b"/a");
    assert_eq!(b.wait().unwrap().path(), b"/b");
    daemon.connect().write("/b/x", b"");
    assert_eq!(b.wait().unwrap().path(), b"/b/x");
    let unwatch = |payload: &[u8]| client.request(Op::Unwatch, payload);
    assert_eq!(unwatch(b"/gone\0watch-3\0"), Err(Error::Refused(XsError::NoEnt)));
    assert_eq!(unwatch(b"/a\0watch-1\0"), Ok(b"OK\0".to_vec()));
}

#[test]
fn a_transaction_of_the_old_daemon_ends_in_a_conflict() {
    let daemon = Daemon::start(Backend::Ours);
    let client = reconnecting(&daemon);
    let (old, other) = (client.transaction().unwrap(), client.transaction().unwrap());
    old.write("/a", "old").unwrap();
    let _daemon = replace(daemon);
    let _first = client.read("/");
    client.read("/").unwrap();
    // The new daemon counts from the beginning: this one has the old one's number there.
    let new = client.transaction().unwrap();
    assert_eq!(old.write("/b", "old"), Err(Error::TransactionLost));
    assert_eq!(old.commit(), Ok(Commit::Conflict));
    other.abort().unwrap();
    new.write("/a", "new").unwrap();
    assert_eq!(new.commit(), Ok(Commit::Done));
    assert_eq!(client.read("/a").unwrap(), b"new");
    assert_eq!(client.exists("/b"), Ok(false));
}

#[test]
fn transact_starts_again_at_the_new_daemon() {
    let daemon = Daemon::start(Backend::Ours);
    let client = reconnecting(&daemon);
    let mut daemon = Some(daemon);
    let mut runs = 0;
    let result = client.transact(|t| -> Result<(), Error> {
        runs += 1;
        t.write("/a", "1")?;
        if runs == 1 {
            daemon = daemon.take().map(replace);
        }
        t.write("/b", "1")
    });
    assert_eq!((runs, result), (2, Ok(())));
    assert_eq!(client.list("/").unwrap().iter().filter(|name| name.len() == 1).count(), 2);
}

/// Requests that were out when the connection broke fail, and the new daemon never hears of them.
#[test]
fn requests_in_flight_are_not_sent_again() {
    let server = Scripted::start();
    let client = Options::new().place(server.socket()).reconnect(true).open().unwrap();
    let mut line = server.accept();
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let client = client.clone();
            thread::spawn(move || client.write(format!("/w/{n}"), ""))
        })
        .collect();
    for _ in 0..8 {
        line.request();
    }
    drop(line);
    for writer in writers {
        assert!(matches!(writer.join().unwrap(), Err(Error::Broken(_))));
    }
    let reader = thread::spawn(move || client.read("/new"));
    let mut line = server.accept();
    let (header, payload) = line.request();
    assert_eq!((header.op, payload.as_slice()), (Op::Read.number(), &b"/new\0"[..]));
    line.reply(&header, b"value");
    assert_eq!(reader.join().unwrap().unwrap(), b"value");
    assert_eq!(line.next_request(), None);
}

#[test]
fn a_watch_that_the_new_daemon_refuses_keeps_the_client_off() {
    let server = Scripted::start();
    let client = Options::new().place(server.socket()).reconnect(true).open().unwrap();
    let mut line = server.accept();
    let watching = thread::spawn({
        let client = client.clone();
        move || client.watch("/a").unwrap()
    });
    let first = line.expect_ok(Op::Watch);
    let watch = watching.join().unwrap();
    drop(line);
    let mut line = server.accept();
    let (header, again) = line.request();
    assert_eq!(again, first);
    line.error(&header, "ENOSPC");
    assert_eq!(line.next_request(), None, "it tries again later");
    let mut line = server.accept();
    assert_eq!(line.expect_ok(Op::Watch), first);
    line.event("/a", "watch-1");
    assert_eq!(watch.wait().as_ref().map(Event::path), Ok(&b"/a"[..]));
    // Ends without an answer to its UNWATCH.
    drop(line);
    drop(watch);
}

/// Restarts beside requests and watches: nothing hangs, nothing is mixed up.
#[test]
fn restarts_under_load() {
    let mut daemon = Daemon::start(Backend::Ours);
    let client = reconnecting(&daemon);
    let watch = client.watch("/load").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..4 {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let path = format!("/load/{n}");
                    if client.write(&path, n.to_string()).is_ok()
                        && let Ok(value) = client.read(&path)
                    {
                        assert_eq!(value, n.to_string().as_bytes());
                    }
                }
            });
        }
        for _ in 0..10 {
            daemon = replace(daemon);
            wait::until("the client reaches the new daemon", || client.read("/load/0").is_ok());
            watch.wait().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(daemon);
    });
}
