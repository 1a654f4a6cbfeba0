//! Guests that `xl` creates, whose kernel leads a conversation of its own.

use crate::dom0::{Dom0, run, xl};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::fs;
use std::time::Duration;
use xenstored_tests::wait::{until, until_some};
use xenstored_tests::{Client, Event};

/// Writes a configuration for `xl` and gives its path.
pub(crate) fn configuration(name: &str, kind: &str, more: &str) -> String {
    let path = format!("/tmp/{name}.cfg");
    let text = format!(
        "name = \"{name}\"\ntype = \"{kind}\"\nkernel = \"/rig/guest-kernel\"\nmemory = 4\nvcpus = 1\n{more}\n"
    );
    fs::write(&path, text).expect("a file");
    path
}

/// The id of the domain of that name, if there is one.
fn domid(name: &str) -> Option<u16> {
    // Its name and id begin its line.
    xl(&["list"]).lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// Waits until the guest has said hello in its home, and gives its domid.
fn await_hello(dom0: &mut Client, name: &str, kind: &str) -> u16 {
    let domid = domid(name).unwrap_or_else(|| panic!("xl lists {name}"));
    let hello =
        until_some("the guest writes to its home", || dom0.read(&format!("/local/domain/{domid}/data/hello")).ok());
    assert_eq!(String::from_utf8_lossy(&hello), format!("{kind} guest, domain {domid}"));
    domid
}

/// Has a guest do something, and waits for its answer.
fn command(dom0: &mut Client, domid: u16, command: &str, answer: &str) {
    dom0.write(&format!("/local/domain/{domid}/data/command"), command.as_bytes());
    until("the guest has done it", || {
        dom0.read(&format!("/local/domain/{domid}/data/answer")) == Ok(answer.as_bytes().to_vec())
    });
}

/// Waits until nothing of a domain is left.
fn await_end(dom0: &mut Client, name: &str, old: u16) {
    until("xl lists it no more", || domid(name) != Some(old));
    until("its home is gone", || dom0.read(&format!("/local/domain/{old}")) == Err("ENOENT".into()));
}

#[rstest]
fn a_guest_talks_is_watched_shuts_down_and_leaves_nothing(#[values("pv", "pvh")] kind: &str) {
    let dom0 = Dom0::start();
    let (mut client, mut watcher) = (dom0.connect(), dom0.connect());
    watcher.watch("@introduceDomain", "come");
    watcher.watch("@releaseDomain", "gone");
    xl(&["create", "-q", &configuration("guest", kind, "")]);
    assert_eq!(watcher.event(), Ok(Event::new("@introduceDomain", "come")));
    let domid = await_hello(&mut client, "guest", kind);

    let listing = run("xenstore-ls", &["-fp", &format!("/local/domain/{domid}")]);
    let hello = format!("/local/domain/{domid}/data/hello = \"{kind} guest, domain {domid}\"   (n{domid})");
    assert!(listing.lines().any(|line| line == hello), "no line {hello:?} in\n{listing}");
    let name = format!("/local/domain/{domid}/name = \"guest\"   (n0,r{domid})");
    assert!(listing.lines().any(|line| line == name), "no line {name:?} in\n{listing}");

    command(&mut client, domid, "echo over the ring", "over the ring");
    let mut counts = dom0.connect();
    let counter = format!("/local/domain/{domid}/data/counter");
    counts.watch(&counter, "count");
    command(&mut client, domid, "count 100", "100");
    assert_eq!(client.read(&counter), Ok(b"100".to_vec()));
    // Those that wait for us may have been drawn together, but some came.
    assert!(!counts.settled_events().is_empty());

    xl(&["shutdown", "-w", "guest"]);
    assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")), "it shut down");
    assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")), "it was destroyed");
    await_end(&mut client, "guest", domid);
    assert!(!run("xenstore-ls", &["-fp"]).contains(&format!("n{domid}")), "nothing is left that it owned");
}

#[test]
fn a_guest_that_is_destroyed_makes_room_for_the_next() {
    let dom0 = Dom0::start();
    let mut client = dom0.connect();
    let configuration = configuration("guest", "pv", "");
    let mut last = 0;
    for _ in 0..3 {
        xl(&["create", "-q", &configuration]);
        let domid = await_hello(&mut client, "guest", "pv");
        assert!(domid > last, "{domid} after {last}");
        last = domid;
        command(&mut client, domid, "count 20", "20");
        xl(&["destroy", "guest"]);
        await_end(&mut client, "guest", domid);
    }
}

#[test]
fn a_guest_that_restarts_comes_back_as_another_domain() {
    let dom0 = Dom0::start();
    let mut client = dom0.connect();
    xl(&["create", "-q", &configuration("guest", "pv", "on_reboot = \"restart\"")]);
    let old = await_hello(&mut client, "guest", "pv");
    xl(&["reboot", "guest"]);
    until("xl lists its next life", || domid("guest").is_some_and(|domid| domid != old));
    let new = await_hello(&mut client, "guest", "pv");
    await_end(&mut client, "guest", old);
    command(&mut client, new, "echo again", "again");
    xl(&["destroy", "guest"]);
    await_end(&mut client, "guest", new);
}

#[rstest]
fn a_guest_that_crashes_is_told_of(#[values("pv", "pvh")] kind: &str) {
    let dom0 = Dom0::start();
    let (mut client, mut watcher) = (dom0.connect(), dom0.connect());
    xl(&["create", "-q", &configuration("guest", kind, "on_crash = \"destroy\"")]);
    let domid = await_hello(&mut client, "guest", kind);
    watcher.watch("@releaseDomain", "gone");
    client.write(&format!("/local/domain/{domid}/data/command"), b"crash");
    assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")));
    await_end(&mut client, "guest", domid);
}

#[test]
fn two_guests_meet_in_the_store() {
    let dom0 = Dom0::start();
    let mut client = dom0.connect();
    xl(&["create", "-q", &configuration("one", "pv", "")]);
    xl(&["create", "-q", &configuration("two", "pvh", "")]);
    let one = await_hello(&mut client, "one", "pv");
    let two = await_hello(&mut client, "two", "pvh");
    for (domid, count) in [(one, "count 300"), (two, "count 200")] {
        client.write(&format!("/local/domain/{domid}/data/command"), count.as_bytes());
    }
    for (domid, answer) in [(one, "300"), (two, "200")] {
        until("both get on at the same time", || {
            client.read(&format!("/local/domain/{domid}/data/answer")) == Ok(answer.as_bytes().to_vec())
        });
    }
    client.set_patience(Duration::from_secs(5));
    for name in ["one", "two"] {
        let old = domid(name).unwrap();
        xl(&["destroy", name]);
        await_end(&mut client, name, old);
    }
}

#[rstest]
fn guests_outlive_the_daemon_and_their_deaths_are_noticed(#[values(Signal::SIGKILL, Signal::SIGTERM)] by: Signal) {
    let mut dom0 = Dom0::start();
    let mut client = dom0.connect();
    xl(&["create", "-q", &configuration("one", "pv", "")]);
    xl(&["create", "-q", &configuration("two", "pvh", "")]);
    let guests = [("one", "pv"), ("two", "pvh")].map(|(name, kind)| (name, await_hello(&mut client, name, kind)));
    for round in 1..=3 {
        // Their kernels wait for an event of the watch on their commands.
        dom0.replace_daemon(by);
        client = dom0.connect();
        for (name, domid) in guests {
            let word = format!("{name} in round {round}");
            command(&mut client, domid, &format!("echo {word}"), &word);
            command(&mut client, domid, "count 20", "20");
        }
    }
    let mut watcher = dom0.connect();
    watcher.watch("@releaseDomain", "gone");
    for (name, old) in guests {
        xl(&["destroy", name]);
        assert_eq!(watcher.event(), Ok(Event::new("@releaseDomain", "gone")), "{name}");
        await_end(&mut client, name, old);
    }
}
