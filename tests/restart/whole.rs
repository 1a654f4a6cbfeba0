//! What is in a store is the same after a death, a stop, a live update, and for a daemon that reads a stream of it.

use std::collections::BTreeSet;
use std::fs;

use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Client, Event, our_binary};

use crate::scene::{OK, Scene, ask, perms, set_perms, write};
use crate::take_over::program;
use crate::trial::say;

/// How another daemon comes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kill,
    Stop,
    Update,
    /// A live update to a program that is not known for ours, by a stream of this version.
    Stream(u32),
}

const KEPT: &[&str] = &["--keep", "5"];

/// Has another daemon come to the store of a scene, with these arguments more.
fn go(way: Way, scene: &mut Scene, more: &[&str]) {
    let mut updater = scene.dom0();
    let mut update = |program: &str, version: &str| {
        assert_eq!(say(&mut updater, &["live-update", "-f", program]), "OK");
        if !more.is_empty() {
            let pid_file = scene.host.dir().join("pid");
            let own = ["-N", "--pid-file", pid_file.to_str().unwrap(), "--keep", "5"];
            let words: Vec<&str> = own.into_iter().chain(more.iter().copied()).collect();
            assert_eq!(say(&mut updater, &[&["live-update", "-c"], &words[..]].concat()), "OK");
        }
        assert_eq!(say(&mut updater, &["live-update", "-s", "-v", version]), "OK");
    };
    match way {
        Way::Kill => scene.kill(),
        Way::Stop => scene.stop(),
        Way::Update => update(our_binary().to_str().unwrap(), "1"),
        Way::Stream(version) => {
            let script = format!("#!/bin/sh\ntest \"$1\" = --help && exit\nexec {} \"$@\"\n", our_binary().display());
            update(program(scene, "other", &script).to_str().unwrap(), &version.to_string());
        }
    }
    if matches!(way, Way::Kill | Way::Stop) {
        scene.add_args(more);
        scene.start_again();
    }
}

#[rstest]
fn a_watch_keeps_its_depth(#[values(Way::Kill, Way::Stop, Way::Update, Way::Stream(2))] way: Way) {
    let mut scene = Scene::with_args(KEPT, &[1]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    dom0.write("/local/domain/1/a/b", b"");
    ask(&mut dom0, Op::Watch, &["/local/domain/1/a", "dom0's", "1"]).unwrap();
    ask(&mut guest, Op::Watch, &["a", "own", "1"]).unwrap();
    assert_eq!(dom0.event(), Ok(Event::new("/local/domain/1/a", "dom0's")));
    assert_eq!(guest.event(), Ok(Event::new("a", "own")));

    go(way, &mut scene, &[]);

    let mut other = scene.dom0();
    other.write("/local/domain/1/a/b/c", b"deeper");
    other.write("/local/domain/1/a/b", b"not deeper");
    assert_eq!(dom0.event(), Ok(Event::new("/local/domain/1/a/b", "dom0's")), "{}", scene.log());
    assert_eq!(guest.event(), Ok(Event::new("a/b", "own")));
}

#[rstest]
fn long_paths_many_permissions_and_special_nodes_stay(
    #[values(Way::Kill, Way::Stop, Way::Update, Way::Stream(1), Way::Stream(2))] way: Way,
) {
    let domids: Vec<u16> = (1..=100).collect();
    let mut scene = Scene::with_args(KEPT, &domids);
    let mut dom0 = scene.dom0();
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["path-max", "0"]), Ok(OK.to_vec()));
    // The longest that the protocol has (docs/misc/xenstore.txt, XENSTORE_ABS_PATH_MAX).
    let long = format!("{}/{}", "/123456789".repeat(306), "x".repeat(11));
    assert_eq!(long.len(), 3072);
    dom0.write(&long, b"far down");
    dom0.write("/binary", b"\0\x01\xff\n,");
    dom0.write("/empty", b"");
    let many: Vec<String> =
        domids.iter().map(|domid| format!("{}{domid}", ["r", "w", "b", "n"][usize::from(domid % 4)])).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    set_perms(&mut dom0, "/empty", &many);
    set_perms(&mut dom0, "@introduceDomain", &["n0", "r7"]);
    set_perms(&mut dom0, "@releaseDomain", &["n0", "r8"]);
    let mut told = [scene.guest(7), scene.guest(8)];

    go(way, &mut scene, &[]);

    let mut dom0 = scene.dom0();
    assert_eq!(dom0.read(&long), Ok(b"far down".to_vec()), "{}", scene.log());
    assert_eq!(dom0.read("/binary"), Ok(b"\0\x01\xff\n,".to_vec()));
    assert_eq!(perms(&mut dom0, "/empty"), Ok(many.join(" ")));
    assert_eq!(perms(&mut dom0, "@introduceDomain"), Ok("n0 r7".into()));
    assert_eq!(perms(&mut dom0, "@releaseDomain"), Ok("n0 r8".into()));
    for guest in &mut told {
        for special in ["@introduceDomain", "@releaseDomain"] {
            guest.watch(special, "t");
        }
    }
    scene.add(101);
    scene.destroy(101);
    assert_eq!(told[0].event(), Ok(Event::new("@introduceDomain", "t")));
    assert_eq!(told[1].event(), Ok(Event::new("@releaseDomain", "t")), "of the other it is told nothing");
}

#[rstest]
fn a_quota_below_what_is_there_refuses_only_more(
    // A stream tells the quotas too, and they come before the command line's.
    #[values(Way::Kill, Way::Stop, Way::Update)] way: Way,
) {
    let mut scene = Scene::with_args(KEPT, &[1]);
    let mut guest = scene.guest(1);
    for number in 0..30 {
        write(&mut guest, &number.to_string(), b"value").unwrap();
        guest.watch(&number.to_string(), "token");
    }

    go(way, &mut scene, &["-Q", "nodes=20", "-Q", "watches=10"]);

    let all_there = |guest: &mut Client| (0..30).all(|number| guest.read(&number.to_string()).is_ok());
    assert!(all_there(&mut guest), "{}", scene.log());
    assert_eq!(write(&mut guest, "more", b""), Err("ENOSPC".into()));
    assert_eq!(ask(&mut guest, Op::Watch, &["more", "token"]), Err("ENOSPC".into()));
    assert_eq!(write(&mut guest, "7", b"other"), Ok(OK.to_vec()));
    assert_eq!(guest.event(), Ok(Event::new("7", "token")));
    assert_eq!(ask(&mut guest, Op::Rm, &["7"]), Ok(OK.to_vec()));
}

#[rstest]
fn event_channels_stay_bound(#[values(Way::Kill, Way::Update, Way::Stream(1))] way: Way) {
    let mut scene = Scene::with_args(KEPT, &[1]);
    // A simulated host's event channels are a pipe; the other one is that by which signals come.
    let (mut guest, before) = (scene.guest(1), pipes(&scene));
    go(way, &mut scene, &[]);
    assert_eq!(write(&mut guest, "a", b""), Ok(OK.to_vec()), "{}", scene.log());
    assert_ne!(
        pipes(&scene).intersection(&before).count(),
        0,
        "what is bound by one handle is not bound again by another"
    );
}

/// The pipes that the daemon has open.
fn pipes(scene: &Scene) -> BTreeSet<std::path::PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", scene.pid())).unwrap();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("pipe:")).collect()
}

#[test]
fn a_stop_with_open_transactions_and_unread_answers_loses_nothing() {
    let mut scene = Scene::with_args(KEPT, &[1, 2]);
    let (mut client, mut guest, mut deaf) = (scene.dom0(), scene.guest(1), scene.ring_client(2));
    client.write("/value", b"old");
    let open = [client.start_transaction(), client.start_transaction(), guest.start_transaction()];
    client.request_in(open[0], Op::Write, b"/first\x001").unwrap();
    client.request_in(open[1], Op::Write, b"/second\x002").unwrap();
    guest.request_in(open[2], Op::Write, b"third\x003").unwrap();
    // Answers of a socket that nobody reads, and of a ring, more than they hold.
    let value = vec![b'v'; 3000];
    client.request(Op::Write, &[b"/long\0", &value[..]].concat()).unwrap();
    set_perms(&mut client, "/long", &["n0", "r2"]);
    let mut unread = scene.dom0();
    let asked: Vec<u32> = (0..200).map(|_| unread.send(Op::Read.number(), 0, b"/long\0").unwrap()).collect();
    let asked_deaf: Vec<_> = (0..3).map(|_| deaf.send(Op::Read, 0, b"/long\0").unwrap()).collect();

    scene.stop();
    scene.start_again();

    for id in asked {
        let reply = unread.reply().unwrap_or_else(|error| panic!("{error}: {}", scene.log()));
        assert_eq!((reply.header.req_id, reply.payload.len()), (id, value.len()));
    }
    for id in asked_deaf {
        let reply = deaf.reply().unwrap();
        assert_eq!((reply.header.req_id, reply.payload.len()), (id, value.len()));
    }
    assert_eq!([client.commit(open[0]), client.commit(open[1]), guest.commit(open[2])], [Ok(()), Ok(()), Ok(())]);
    assert_eq!((client.read("/first"), client.read("/second")), (Ok(b"1".to_vec()), Ok(b"2".to_vec())));
    assert_eq!(guest.read("third"), Ok(b"3".to_vec()));
}
