//! Watches: what they yield, what they keep, how they end.

use crate::{open, store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use xenstore_client::{Error, Features, Nodes, WatchOptions, XsError};
use xenstore_wire::Op;
use xenstored_tests::{Line, Scripted, wait};

#[test]
fn a_watch_yields_its_path_first_and_then_each_change() {
    let (daemon, client) = store();
    let other = open(&daemon.socket());
    let watch = client.watch("/a").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/a");
    other.write("/a/b", "1").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/a/b");
    client.write("/a", "2").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/a", "one's own changes, too");
    assert_eq!(watch.try_next(), Ok(None));
    assert_eq!(watch.wait_for(Duration::from_millis(1)), Err(Error::TimedOut));
    client.write("/a/c", "").unwrap();
    let paths: Vec<_> = watch.take(1).map(|event| event.unwrap().path_text()).collect();
    assert_eq!(paths, ["/a/c"]);
}

#[test]
fn watches_do_not_hear_each_other() {
    let (_daemon, client) = store();
    let (a, b, all) = (client.watch("/a").unwrap(), client.watch("/b").unwrap(), client.watch("/").unwrap());
    for watch in [&a, &b, &all] {
        assert_eq!(watch.wait().unwrap().path(), watch.path());
    }
    client.write("/b/x", "").unwrap();
    assert_eq!(b.wait().unwrap().path(), b"/b/x");
    assert_eq!(all.wait().unwrap().path(), b"/b/x");
    assert_eq!(a.try_next(), Ok(None));
}

#[test]
fn depth_limits_what_is_seen() {
    let (_daemon, client) = store();
    assert!(client.features().unwrap().contains(Features::WATCH_DEPTH));
    let watch = client.watch_with("/a", WatchOptions::new().depth(1)).unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/a");
    client.write("/a/b/c", "").unwrap();
    client.write("/a/b", "").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/a/b");
}

#[test]
fn the_same_path_and_token_are_refused() {
    let (_daemon, client) = store();
    let named = || WatchOptions::new().token("mine");
    let first = client.watch_with("/a", named()).unwrap();
    assert_eq!(first.wait().unwrap().path(), b"/a");
    assert_eq!(client.watch_with("/a", named()).unwrap_err(), Error::Refused(XsError::Exist));
    client.write("/a", "").unwrap();
    assert_eq!(first.wait().unwrap().path(), b"/a", "the first goes on");
    assert_eq!(client.watch("/a b").unwrap_err(), Error::Refused(XsError::Inval));
}

#[test]
fn unwatching_what_the_daemon_forgot_is_an_error_value() {
    let (_daemon, client) = store();
    let watch = client.watch("/a").unwrap();
    client.reset_watches().unwrap();
    assert_eq!(watch.unwatch(), Err(Error::Refused(XsError::NoEnt)));
    client.write("/a", "1").unwrap();
}

#[test]
fn a_storm_is_kept_up_to_the_bound_and_requests_go_on() {
    let (daemon, client) = store();
    let other = open(&daemon.socket());
    let watch = client.watch_with("/", WatchOptions::new().bound(1000)).unwrap();
    for n in 0..5000 {
        other.write(format!("/storm/{n}"), "").unwrap();
        if n % 500 == 0 {
            client.read("/").unwrap();
        }
    }
    // All that the writes caused stands in front of this answer.
    client.read("/").unwrap();
    let mut paths = 0;
    let lost = loop {
        match watch.wait() {
            Ok(_) => paths += 1,
            Err(Error::Overflow { lost }) => break lost,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((paths, lost), (1000, 5001 - 1000));
    other.write("/after", "").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/after");
}

/// Neither the number of watches nor the storm that they are in keeps them from going, each unregistered once.
#[test]
fn five_hundred_watches_are_dropped_in_a_storm() {
    let (daemon, client) = store();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (other, stop) = (open(&daemon.socket()), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                other.write("/a/x", "1").unwrap();
            }
        }
    });
    let watches: Vec<_> = (0..500).map(|_| client.watch("/a").unwrap()).collect();
    watches[0].wait().unwrap();
    drop(watches);
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    for n in 1..=500 {
        let again = client.request(Op::Unwatch, format!("/a\0watch-{n}\0").as_bytes());
        assert_eq!(again, Err(Error::Refused(XsError::NoEnt)), "watch {n}");
    }
}

#[test]
fn dropping_a_watch_does_not_wait_for_a_daemon_that_hangs() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || {
        let client = open(&socket);
        drop(client.watch("/a").unwrap());
    });
    let mut line = server.accept();
    line.expect_ok(Op::Watch);
    client.join().unwrap();
    assert_eq!(line.request().1, b"/a\0watch-1\0");
    assert_eq!(line.next_request(), None);
}

#[test]
fn each_dropped_watch_is_unregistered_once() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || {
        let client = open(&socket);
        let watches: Vec<_> = (0..50).map(|n| client.watch(format!("/{n}")).unwrap()).collect();
        drop(watches);
    });
    let mut line = server.accept();
    let (mut registered, mut removed) = (Vec::new(), Vec::new());
    while let Some((header, payload)) = line.next_request() {
        match Op::from_number(header.op) {
            Some(Op::Watch) => registered.push(payload),
            Some(Op::Unwatch) => removed.push(payload),
            other => panic!("{other:?}"),
        }
        for _ in 0..10 {
            line.event("/0", "watch-1");
        }
        line.reply(&header, b"OK\0");
    }
    client.join().unwrap();
    registered.sort();
    removed.sort();
    assert_eq!(registered.len(), 50);
    assert_eq!(registered, removed);
}

/// The thread that receives in the background drains the daemon while the program does something else.
#[test]
fn events_are_taken_from_the_daemon_while_nobody_waits() {
    let server = Scripted::start();
    let socket = server.socket();
    let (send, receive) = std::sync::mpsc::channel();
    let client = thread::spawn(move || {
        let client = open(&socket);
        let watch = client.watch("/a").unwrap();
        send.send(watch).unwrap();
    });
    let mut line = server.accept();
    line.expect_ok(Op::Watch);
    let watch = receive.recv().unwrap();
    client.join().unwrap();
    // Far more than a socket holds: this ends only if somebody receives.
    for n in 0..40_000 {
        line.event(&format!("/a/{n}"), "watch-1");
    }
    for n in 0..40_000 {
        assert_eq!(watch.wait().unwrap().path_text(), format!("/a/{n}"));
    }
}

/// Events that nobody waits for inside a call are received by the client's own thread, after some time without looking
/// for others. Whoever comes then gets his answer all the same, or the end of his time.
#[test]
fn those_who_come_after_many_events_are_served() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let daemon = thread::spawn(move || {
        let mut line = server.accept();
        line.expect_ok(Op::Watch);
        line
    });
    let watch = client.watch("/a").unwrap();
    let mut line = daemon.join().unwrap();
    let storm = |line: &mut Line, from: u32| {
        for n in from..from + 50 {
            line.event(&format!("/a/{n}"), "watch-1");
            let event = wait::until_some("an event", || watch.try_next().unwrap());
            assert_eq!(event.path_text(), format!("/a/{n}"));
        }
    };
    storm(&mut line, 0);
    assert_eq!(watch.wait_for(Duration::from_millis(10)), Err(Error::TimedOut));
    storm(&mut line, 50);
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.read("/a"));
        let (request, _) = line.request();
        line.event("/a/x", "watch-1");
        line.reply(&request, b"value");
        assert_eq!(reading.join().unwrap().unwrap(), b"value");
    });
    assert_eq!(watch.wait().unwrap().path(), b"/a/x");
    storm(&mut line, 100);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.wait());
        line.event("/a/y", "watch-1");
        assert_eq!(waiting.join().unwrap().unwrap().path(), b"/a/y");
    });
    storm(&mut line, 150);
    drop(line);
    wait::until("the end is known", || watch.try_next() == Err(Error::Closed));
}

#[test]
fn a_request_between_events_finds_its_answer() {
    let (daemon, client) = store();
    let other = open(&daemon.socket());
    let watch = client.watch("/a").unwrap();
    for n in 0..500 {
        other.write("/a/n", n.to_string()).unwrap();
        assert_eq!(client.read_text("/a/n").unwrap(), n.to_string());
        if n % 3 == 0 {
            watch.wait().unwrap();
        }
    }
}

#[test]
fn several_threads_may_wait_for_one_watch() {
    let (_daemon, client) = store();
    let watch = Arc::new(client.watch("/a").unwrap());
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let watch = Arc::clone(&watch);
            thread::spawn(move || watch.wait().map(|event| event.path_text()))
        })
        .collect();
    for n in 0..7 {
        client.write(format!("/a/{n}"), "").unwrap();
    }
    let mut paths: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    paths.sort();
    assert_eq!(paths, ["/a", "/a/0", "/a/1", "/a/2", "/a/3", "/a/4", "/a/5", "/a/6"]);
}

#[test]
fn a_watch_ends_with_an_error_when_the_daemon_is_gone() {
    let (daemon, client) = store();
    let watch = client.watch("/a").unwrap();
    drop(daemon);
    let all: Vec<_> = watch.collect();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].as_ref().unwrap().path(), b"/a", "what had come is not lost");
    assert_eq!(all[1], Err(Error::Closed));
}

/// Whoever takes events may ask for more meanwhile, and may fail: that is no matter of the others.
#[test]
fn a_taker_that_panics_costs_its_own_watch_alone() {
    let (_daemon, client) = store();
    let other = client.watch("/b").unwrap();
    let watch = client.watch("/a").unwrap();
    let taker = thread::spawn({
        let client = client.clone();
        move || {
            for event in watch {
                let path = event.unwrap().path_text();
                let value = client.read(&path).unwrap_or_default();
                let inner = client.watch("/a/inner").unwrap();
                inner.wait().unwrap();
                inner.unwatch().unwrap();
                assert!(value.is_empty(), "taken");
            }
        }
    });
    client.write("/a", "value").unwrap();
    assert!(taker.join().is_err());
    client.write("/b/x", "").unwrap();
    let paths = [other.wait().unwrap(), other.wait().unwrap()].map(|event| event.path_text());
    assert_eq!(paths, ["/b", "/b/x"]);
    let again = client.watch("/a").unwrap();
    assert_eq!(again.wait().unwrap().path(), b"/a");
}
