//! All of the protocol, against a scripted daemon; and what programs do most, over each of the daemons.

use crate::open;
use rstest::rstest;
use std::collections::BTreeSet;
use std::thread;
use xenstore_client::{Access, Client, Commit, Features, Nodes, Options, Permission, WatchOptions};
use xenstore_wire::Op;
use xenstored_tests::scene::Scene;
use xenstored_tests::{Scripted, Store};

/// Makes each request once; a daemon that refuses everything but a transaction has been asked all the same.
fn ask_everything(client: &Client) {
    let mut refused = 0;
    let mut ask = |failed: bool| refused += usize::from(failed);
    ask(client.control("print", &[b"a b"]).is_err());
    ask(client.list("/a").is_err());
    ask(client.read("/a").is_err());
    ask(client.permissions("/a").is_err());
    ask(client.watch_with("/a", WatchOptions::new().token("t")).is_err());
    ask(client.watch_with("/a", WatchOptions::new().token("t").depth(3)).is_err());
    let transaction = client.transaction().unwrap();
    ask(transaction.write("/a/b", b"\0v\0").is_err());
    ask(transaction.commit().is_err());
    ask(client.introduce(7, 8, 9).is_err());
    ask(client.release(7).is_err());
    ask(client.domain_path(7).is_err());
    ask(client.mkdir("/a").is_err());
    ask(client.remove("/a").is_err());
    ask(client.set_permissions("/a", &[Permission::new(0, Access::None), Permission::new(7, Access::Both)]).is_err());
    ask(client.is_introduced(7).is_err());
    ask(client.resume(7).is_err());
    ask(client.set_target(7, 6).is_err());
    ask(client.reset_watches().is_err());
    ask(client.features().is_err());
    ask(client.domain_features(7).is_err());
    ask(client.set_domain_features(7, Features::ERROR | Features::WATCH_DEPTH).is_err());
    ask(client.quota_names().is_err());
    ask(client.quota("nodes").is_err());
    ask(client.set_quota("nodes", 5).is_err());
    ask(client.domain_quota(7, "nodes").is_err());
    ask(client.set_domain_quota(7, "nodes", 5).is_err());
    ask(client.request(Op::Unwatch, b"/a\0t\0").is_err());
    assert_eq!(refused, 27);
}

#[test]
fn every_request_is_sent_as_the_protocol_has_it() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let daemon = thread::spawn(move || {
        let mut line = server.accept();
        let mut seen = Vec::new();
        while let Some((header, payload)) = line.next_request() {
            let op = Op::from_number(header.op).expect("a known request");
            // What follows a request without payload is no request of the program's.
            let follower = seen.last().is_some_and(|(_, _, before): &(Op, u32, Vec<u8>)| before.is_empty());
            match op {
                Op::TransactionStart => line.reply(&header, b"17\0"),
                Op::Directory => line.error(&header, "E2BIG"),
                _ => line.error(&header, "EIO"),
            }
            if follower && op == Op::GetDomainPath && payload == b"0\0" {
                seen.last_mut().expect("there is one").2 = b"(none)".to_vec();
            } else {
                seen.push((op, header.tx_id, payload));
            }
        }
        seen
    });
    ask_everything(&client);
    drop(client);
    let seen = daemon.join().unwrap();
    let expected: [(Op, u32, &[u8]); 28] = [
        (Op::Control, 0, b"print\0a b\0"),
        (Op::Directory, 0, b"/a\0"),
        (Op::DirectoryPart, 0, b"/a\x000\0"),
        (Op::Read, 0, b"/a\0"),
        (Op::GetPerms, 0, b"/a\0"),
        (Op::Watch, 0, b"/a\0t\0"),
        (Op::Watch, 0, b"/a\0t\x003\0"),
        (Op::TransactionStart, 0, b"\0"),
        (Op::Write, 17, b"/a/b\0\0v\0"),
        (Op::TransactionEnd, 17, b"T\0"),
        (Op::Introduce, 0, b"7\x008\x009\0"),
        (Op::Release, 0, b"7\0"),
        (Op::GetDomainPath, 0, b"7\0"),
        (Op::Mkdir, 0, b"/a\0"),
        (Op::Rm, 0, b"/a\0"),
        (Op::SetPerms, 0, b"/a\0n0\0b7\0"),
        (Op::IsDomainIntroduced, 0, b"7\0"),
        (Op::Resume, 0, b"7\0"),
        (Op::SetTarget, 0, b"7\x006\0"),
        (Op::ResetWatches, 0, b"\0"),
        (Op::GetFeature, 0, b"(none)"),
        (Op::GetFeature, 0, b"7\0"),
        (Op::SetFeature, 0, b"7\x006\0"),
        (Op::GetQuota, 0, b"(none)"),
        (Op::GetQuota, 0, b"nodes\0"),
        (Op::SetQuota, 0, b"nodes\x005\0"),
        (Op::GetQuota, 0, b"7\0nodes\0"),
        (Op::SetQuota, 0, b"7\0nodes\x005\0"),
    ];
    // Several parts of a long list are asked for at once; the last word is the request by its number.
    let first_parts = seen.iter().filter(|(op, _, payload)| *op != Op::DirectoryPart || payload == b"/a\x000\0");
    let mut seen: Vec<_> = first_parts.map(|(op, tx_id, payload)| (*op, *tx_id, &payload[..])).collect();
    assert_eq!(seen.pop(), Some((Op::Unwatch, 0, &b"/a\0t\0"[..])));
    assert_eq!(seen, expected);
    let asked: BTreeSet<Op> = seen.into_iter().map(|(op, _, _)| op).chain([Op::Unwatch]).collect();
    let all: BTreeSet<Op> = Op::ALL.iter().copied().filter(|op| ![Op::WatchEvent, Op::Error].contains(op)).collect();
    assert_eq!(asked, all);
}

#[rstest]
fn programs_do_the_same_over_each_daemon(#[values(Store::Ours, Store::C, Store::Ocaml)] store: Store) {
    let mut scene = Scene::of(store, &[4]);
    scene.host.create(5).unwrap();
    let (new, socket) = (scene.host.domain(5).expect("the domain was made"), scene.host.socket());
    let client = Options::new().place(&socket).open().unwrap();

    client.write("/a/b", [0, 0xff, b'v']).unwrap();
    assert_eq!(client.read("/a/b").unwrap(), [0, 0xff, b'v']);
    client.mkdir("/a/c").unwrap();
    let mut names = client.list("/a").unwrap();
    names.sort();
    assert_eq!(names, [b"b", b"c"]);
    client.remove("/a/b").unwrap();
    assert_eq!(client.exists("/a/b"), Ok(false));
    let permissions = [Permission::new(0, Access::None), Permission::new(4, Access::Read)];
    client.set_permissions("/a", &permissions).unwrap();
    assert_eq!(client.permissions("/a").unwrap(), permissions);

    let transaction = client.transaction().unwrap();
    transaction.read("/a/c").unwrap();
    transaction.write("/mine", "1").unwrap();
    client.write("/a/c", "changed").unwrap();
    assert_eq!(transaction.commit(), Ok(Commit::Conflict));
    client.transact(|transaction| transaction.write("/mine", "2")).unwrap();
    assert_eq!(client.read("/mine").unwrap(), b"2");

    let watch = client.watch("/w").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/w");
    client.write("/w/x", "").unwrap();
    assert_eq!(watch.wait().unwrap().path(), b"/w/x");
    watch.unwatch().unwrap();

    assert_eq!((client.is_introduced(4), client.is_introduced(5)), (Ok(true), Ok(false)));
    client.introduce(5, new.gfn, new.port).unwrap();
    assert_eq!(client.is_introduced(5), Ok(true));
    client.release(5).unwrap();
    assert_eq!(client.domain_path(5).unwrap(), b"/local/domain/5");
    scene.assert_alive();
}
