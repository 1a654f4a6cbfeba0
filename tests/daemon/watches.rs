//! Watches and events as socket clients see them.

use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Backend, Daemon, Event, Wire};

const OK: &[u8] = b"OK\0";

fn paths(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.path.as_str()).collect()
}

#[test]
fn registration_is_answered_first_and_then_gives_one_event_even_for_nothing() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    for path in ["/nope", "relative/nope", "@releaseDomain", "@other"] {
        client.send(Op::Watch.number(), 0, format!("{path}\0tok\0").as_bytes()).expect("sent");
        assert!(matches!(client.arrival(), Ok(Wire::Reply(_))), "{path}");
        assert_eq!(client.arrival(), Ok(Wire::Event(Event::new(path, "tok"))), "{path}");
        assert_eq!(client.settled_events(), [], "{path}");
    }
}

#[test]
fn the_writer_hears_its_own_write_after_the_reply() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.watch("/a", "t");
    client.send(Op::Write.number(), 0, b"/a\0v").expect("sent");
    assert!(matches!(client.arrival(), Ok(Wire::Reply(_))));
    assert_eq!(client.arrival(), Ok(Wire::Event(Event::new("/a", "t"))));
    let tx = client.start_transaction();
    assert_eq!(client.request_in(tx, Op::Write, b"/a\0w"), Ok(OK.into()));
    client.send(Op::TransactionEnd.number(), tx, b"T\0").expect("sent");
    assert!(matches!(client.arrival(), Ok(Wire::Reply(_))));
    assert_eq!(client.arrival(), Ok(Wire::Event(Event::new("/a", "t"))));
}

#[test]
fn watches_are_told_apart_by_path_and_token_bytes() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut writer = daemon.connect();
    client.watch("/a", "t");
    assert_eq!(client.request(Op::Watch, b"/a\0t\0"), Err("EEXIST".into()));
    client.watch("/a", "T");
    client.watch("/a", "t ");
    client.watch("/a", "");
    assert_eq!(client.request(Op::Unwatch, b"/a\0t\0"), Ok(OK.into()));
    assert_eq!(client.request(Op::Unwatch, b"/a\0t\0"), Err("ENOENT".into()));
    writer.write("/a", b"v");
    let mut events = client.settled_events();
    events.sort();
    assert_eq!(events, [Event::new("/a", ""), Event::new("/a", "T"), Event::new("/a", "t ")]);
    let mut other = daemon.connect();
    assert_eq!(other.request(Op::Unwatch, b"/a\0T\0"), Err("ENOENT".into()), "somebody else's watch");
}

#[test]
fn devices_come_and_go_and_a_second_unwatch_is_only_an_error() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    for round in 0..64 {
        let device = format!("/local/domain/0/backend/vif/{round}/0");
        client.write(&format!("{device}/state"), b"1");
        client.watch(&device, "device");
        client.write(&format!("{device}/state"), b"4");
        assert_eq!(client.event(), Ok(Event::new(&format!("{device}/state"), "device")));
        assert_eq!(client.request(Op::Rm, format!("{device}\0").as_bytes()), Ok(OK.into()));
        assert_eq!(client.event(), Ok(Event::new(&device, "device")));
        let payload = format!("{device}\0device\0");
        assert_eq!(client.request(Op::Unwatch, payload.as_bytes()), Ok(OK.into()));
        assert_eq!(client.request(Op::Unwatch, payload.as_bytes()), Err("ENOENT".into()));
    }
    assert_eq!(client.settled_events(), []);
}

#[test]
fn parents_made_on_the_way_give_no_event_of_their_own() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/a", b"");
    client.watch("/a", "t");
    client.write("/a/b/c/d", b"v");
    assert_eq!(paths(&client.settled_events()), ["/a/b/c/d"]);
    let tx = client.start_transaction();
    assert_eq!(client.request_in(tx, Op::Write, b"/a/x/y/z\0v"), Ok(OK.into()));
    assert_eq!(client.settled_events(), []);
    assert_eq!(client.commit(tx), Ok(()));
    assert_eq!(paths(&client.settled_events()), ["/a/x/y/z"]);
}

#[test]
fn a_commit_tells_each_changed_node_once_and_anything_else_tells_nothing() {
    let daemon = Daemon::start(Backend::Ours);
    let mut watcher = daemon.connect();
    let mut client = daemon.connect();
    watcher.watch("/t", "w");
    let tx = client.start_transaction();
    for (path, value) in
        [("/t/a", "1"), ("/t/b", "1"), ("/t/a", "2"), ("/t/c", "1"), ("/t/a", "3"), ("/t/a", "4"), ("/t/a", "5")]
    {
        let write = format!("{path}\0{value}");
        assert_eq!(client.request_in(tx, Op::Write, write.as_bytes()), Ok(OK.into()));
    }
    assert_eq!(client.request_in(tx, Op::Write, b"/t/gone\0v"), Ok(OK.into()));
    assert_eq!(client.request_in(tx, Op::Rm, b"/t/gone\0"), Ok(OK.into()));
    assert_eq!(watcher.settled_events(), []);
    assert_eq!(client.commit(tx), Ok(()));
    assert_eq!(paths(&watcher.settled_events()), ["/t/a", "/t/b", "/t/c"]);
    let aborted = client.start_transaction();
    assert_eq!(client.request_in(aborted, Op::Write, b"/t/a\0v"), Ok(OK.into()));
    assert_eq!(client.request_in(aborted, Op::TransactionEnd, b"F\0"), Ok(OK.into()));
    let conflicting = client.start_transaction();
    assert_eq!(client.request_in(conflicting, Op::Read, b"/t/a\0"), Ok(b"5".to_vec()));
    assert_eq!(client.request_in(conflicting, Op::Write, b"/t/b\0v"), Ok(OK.into()));
    client.write("/t/a", b"6");
    assert_eq!(paths(&watcher.settled_events()), ["/t/a"]);
    assert_eq!(client.commit(conflicting), Err("EAGAIN".into()));
    assert_eq!(watcher.settled_events(), []);
}

#[rstest]
#[case::only_itself("0", &["/a"])]
#[case::children("1", &["/a", "/a/b"])]
#[case::grandchildren("2", &["/a", "/a/b", "/a/b/c"])]
#[case::most("65534", &["/a", "/a/b", "/a/b/c", "/a/b/c/d"])]
fn a_watch_depth_limits_what_is_seen_and_must_be_a_number(#[case] depth: &str, #[case] want: &[&str]) {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    assert_eq!(client.request(Op::Watch, format!("/a\0t\0{depth}\0").as_bytes()), Ok(OK.into()));
    assert_eq!(client.event(), Ok(Event::new("/a", "t")));
    for path in ["/a", "/a/b", "/a/b/c", "/a/b/c/d"] {
        client.write(path, b"v");
    }
    assert_eq!(paths(&client.settled_events()), want);
    for path in ["/a/b/c/d", "/a"] {
        assert_eq!(client.request(Op::Rm, format!("{path}\0").as_bytes()), Ok(OK.into()));
    }
    assert!(paths(&client.settled_events()).ends_with(&["/a"]));
    for bad in ["-1", "x", "", "65536", "1 ", "+1", "65535"] {
        let payload = format!("/a\0bad\0{bad}\0");
        assert_eq!(client.request(Op::Watch, payload.as_bytes()), Err("EINVAL".into()), "{bad:?}");
    }
    assert_eq!(client.request(Op::Watch, b"/a\0t\x001\0extra\0"), Err("EINVAL".into()));
    assert_eq!(client.settled_events(), [], "nothing was registered");
}

#[test]
fn an_event_that_fits_no_message_is_left_out_and_nothing_else() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let token = "t".repeat(4000);
    client.watch("/t", &token);
    let long = format!("/t/{}", "n".repeat(200));
    client.write(&long, b"v");
    client.write("/t/short", b"v");
    assert_eq!(paths(&client.settled_events()), ["/t/short"]);
    assert_eq!(client.read(&long), Ok(b"v".to_vec()));
    daemon.assert_alive();
}

#[test]
fn watches_end_with_their_connection_and_with_a_reset() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut other = daemon.connect();
    let mut writer = daemon.connect();
    for i in 0..2000 {
        client.watch("/t", &format!("{i}"));
    }
    other.watch("/t", "mine");
    writer.write("/t", b"1");
    assert_eq!(client.settled_events().len(), 2000);
    assert_eq!(client.request(Op::ResetWatches, b"\0"), Ok(OK.into()));
    writer.write("/t", b"2");
    assert_eq!(client.settled_events(), []);
    assert_eq!(other.settled_events().len(), 2, "another's watch stays");
    client.watch("/t", "again");
    drop(client);
    writer.write("/t", b"3");
    assert_eq!(other.settled_events().len(), 1);
}
