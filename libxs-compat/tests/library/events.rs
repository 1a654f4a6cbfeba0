//! Events that nobody takes for long, and events that nobody wants any more.

use crate::alone::is_alone;
use crate::{is_readable, open, open_with};
use nix::errno::Errno;
use xenstore::XS_UNWATCH_FILTER;
use xenstore_wire::Op;
use xenstored_tests::process::anonymous_kib;
use xenstored_tests::{Backend, Daemon, Scripted};

/// They are kept, all of them and in order, and requests go on meanwhile.
#[test]
fn two_hundred_thousand_events_wait() {
    let server = Scripted::start();
    let handle = open(&server.socket());
    let daemon = std::thread::spawn(move || {
        let mut line = server.accept();
        line.expect_ok(Op::Watch);
        let mut next = 0..200_000;
        while let Some((header, _)) = line.next_request() {
            for n in next.by_ref().take(1000) {
                line.event(&format!("/storm/{n}"), "t");
            }
            line.reply(&header, b"value");
        }
    });
    handle.watch("/storm", "t").unwrap();
    for round in 0..200 {
        assert_eq!(handle.read("/storm").unwrap(), b"value", "in round {round}");
    }
    assert!(is_readable(handle.descriptor(), 0));
    for n in 0..200_000 {
        assert_eq!(handle.check().unwrap(), format!("/storm/{n}"));
    }
    assert_eq!(handle.check(), Err(Errno::EAGAIN));
    assert!(!is_readable(handle.descriptor(), 0));
    drop(handle);
    daemon.join().unwrap();
}

/// They should leave it alone. The library does not hang if they do not.
#[test]
fn programs_may_take_the_byte_out_of_the_descriptor() {
    let daemon = Daemon::start(Backend::Ours);
    let handle = open(&daemon.socket());
    let descriptor = handle.descriptor();
    handle.watch("/a", "t").unwrap();
    assert!(is_readable(descriptor, 20_000));
    let mut byte = 0u8;
    // SAFETY: there is room for one byte.
    assert_eq!(unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) }, 1);
    assert_eq!(handle.check().unwrap(), "/a");
    assert_eq!(handle.check(), Err(Errno::EAGAIN));
    handle.write("/a/x", "").unwrap();
    assert!(is_readable(descriptor, 20_000));
    assert_eq!(handle.wait().unwrap(), "/a/x");
}

#[test]
fn events_of_a_removed_watch_are_dropped_if_that_is_wanted() {
    let daemons = [Daemon::start(Backend::Ours), Daemon::start(Backend::Ours)];
    let filtering = open_with(&daemons[0].socket(), XS_UNWATCH_FILTER, &[]).unwrap();
    let plain = open(&daemons[1].socket());
    for handle in [&filtering, &plain] {
        handle.watch("/a", "t").unwrap();
        handle.watch("/b", "t").unwrap();
        for path in ["/a/1", "/a/2", "/b/1", "/ab"] {
            handle.write(path, "").unwrap();
        }
        handle.read("/").unwrap();
        assert!(is_readable(handle.descriptor(), 0));
        handle.unwatch("/a", "t").unwrap();
    }
    let rest = |handle: &crate::Handle| std::iter::from_fn(|| handle.check().ok()).collect::<Vec<_>>();
    assert_eq!(rest(&filtering), ["/b", "/b/1"]);
    assert_eq!(rest(&plain), ["/a", "/b", "/a/1", "/a/2", "/b/1"]);
    filtering.unwatch("/b", "t").unwrap();
    assert!(!is_readable(filtering.descriptor(), 0));
    assert_eq!(filtering.check(), Err(Errno::EAGAIN));
}

#[test]
fn dropped_events_leave_no_memory_behind() {
    if !is_alone("events::dropped_events_leave_no_memory_behind") {
        return;
    }
    let server = Scripted::start();
    let socket = server.socket();
    let daemon = std::thread::spawn(move || {
        let mut line = server.accept();
        while let Some((header, _)) = line.next_request() {
            if header.op == Op::Watch.number() {
                for _ in 0..5 {
                    line.event("/watched/path/of/some/length", "token");
                }
            }
            line.reply(&header, b"OK\0");
        }
    });
    let handle = open_with(&socket, XS_UNWATCH_FILTER, &[]).unwrap();
    let rounds = |count: usize| {
        for _ in 0..count {
            handle.watch("/watched/path", "token").unwrap();
            handle.unwatch("/watched/path", "token").unwrap();
        }
    };
    rounds(1000);
    let before = anonymous_kib(std::process::id());
    rounds(20_000);
    let grown = anonymous_kib(std::process::id()).saturating_sub(before);
    // What is not freed of 100 000 events is more than 6 MiB.
    assert!(grown < 1024, "{grown} KiB");
    assert_eq!(handle.check(), Err(Errno::EAGAIN));
    drop(handle);
    daemon.join().unwrap();
}
