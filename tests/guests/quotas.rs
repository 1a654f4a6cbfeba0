//! What a guest may use, and how it is counted.

use crate::scene::{OK, Scene, ask, nodes_of, pipeline, refused, set_perms, try_set_perms, write, write_in};
use rstest::rstest;
use xen_sim::Word;
use xenstore_wire::{Op, put_message};
use xenstored_tests::wait::PATIENCE;
use xenstored_tests::{Client, Setting, process};

#[test]
fn one_deep_write_does_not_pass_the_node_quota() {
    let scene = Scene::with_settings(&[Setting::Nodes(12)], &[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for node in 0..9 {
        assert_eq!(write(&mut guest, &format!("n{node}"), b""), Ok(OK.to_vec()));
    }
    let before = nodes_of(&mut dom0, 1);
    let deep = vec!["a"; 1000].join("/");
    assert_eq!(write(&mut guest, &deep, b"x"), refused("ENOSPC"));
    assert_eq!(dom0.read("/local/domain/1/a"), refused("ENOENT"));
    assert_eq!(nodes_of(&mut dom0, 1), before);
    assert_eq!(write(&mut guest, "a/b", b"x"), Ok(OK.to_vec()), "as many as are left");
    assert_eq!(write(&mut guest, "c", b"x"), refused("ENOSPC"));
}

#[test]
fn transactions_over_the_quota_are_refused_at_once_and_work_again_after_an_end() {
    let mut scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for _ in 0..25 {
        guest.send(Op::TransactionStart.number(), 0, b"\0").unwrap();
    }
    let mut open = Vec::new();
    for number in 0..25 {
        let reply = guest.reply().unwrap();
        match reply.result() {
            Ok(id) => open.push(String::from_utf8_lossy(id).trim_end_matches('\0').parse::<u32>().unwrap()),
            Err(name) => assert_eq!((name.as_str(), open.len()), ("ENOSPC", 10), "number {number}"),
        }
    }
    assert_eq!(open.len(), 10);
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    let line = usage.lines().find(|line| line.starts_with("transactions")).unwrap();
    assert!(line.contains("10 (max"), "{line}");
    let log = scene.log();
    let told = log.lines().filter(|line| line.contains("domid=1") && line.contains("\"transactions\"")).count();
    assert!((1..10).contains(&told), "a few lines say which domain, which quota: {log}");
    for (number, tx) in open.into_iter().enumerate() {
        for name in ["a", "b", "c"] {
            assert_eq!(write_in(&mut guest, tx, &format!("n{number}/{name}"), b""), Ok(OK.to_vec()));
        }
        assert_eq!(guest.commit(tx), Ok(()));
    }
    let tx = guest.start_transaction();
    assert_eq!(guest.commit(tx), Ok(()));
    scene.assert_alive();
}

#[test]
fn a_guest_removes_its_node_below_a_parent_that_is_too_large() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "mine/child", b""), Ok(OK.to_vec()));
    for node in 0..100 {
        dom0.write(&format!("/local/domain/1/mine/{}{node}", "x".repeat(40)), b"");
    }
    assert_eq!(write(&mut guest, "mine/another", b""), refused("ENOSPC"), "it is full");
    assert_eq!(ask(&mut guest, Op::Rm, &["mine/child"]), Ok(OK.to_vec()));
    assert_eq!(dom0.read("/local/domain/1/mine/child"), refused("ENOENT"));
}

#[test]
fn creates_that_fail_and_writes_of_what_is_there_are_not_counted() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    dom0.write("/ro", b"");
    set_perms(&mut dom0, "/ro", &["r0"]);
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "there", b""), Ok(OK.to_vec()));
    drop(guest);
    let before = nodes_of(&mut dom0, 1);
    let large = [&b"too/large\0"[..], &[b'x'; 3000]].concat();
    let requests: [(Op, Vec<u8>, &[u8]); 4] = [
        (Op::Write, b"/ro/a/b/c\0".to_vec(), b"EACCES\0"),
        (Op::Write, large, b"ENOSPC\0"),
        (Op::Mkdir, b"there\0".to_vec(), OK),
        (Op::Write, b"there\0again".to_vec(), OK),
    ];
    let mut guest = scene.ring_client(1);
    for (op, payload, wanted) in requests {
        pipeline(&mut guest, std::iter::repeat_n((op, payload.clone()), 10_000), |number, reply| {
            assert_eq!(reply.payload, wanted, "number {number} of {op:?}");
        });
        assert_eq!(nodes_of(&mut dom0, 1), before, "{op:?}");
    }
    // What is left of the quota is what it was.
    let made = (before + 4..1000).map(|node| (Op::Mkdir, format!("d{}/n{node}\0", node % 4).into_bytes()));
    pipeline(&mut guest, made, |number, reply| assert_eq!(reply.payload, OK, "number {number}"));
    assert_eq!(nodes_of(&mut dom0, 1), 1000);
    assert_eq!(guest.request(Op::Mkdir, 0, b"one-more\0").unwrap().error(), Some(&b"ENOSPC"[..]));
}

#[rstest]
#[case::nodes("nodes", 7)]
#[case::watches("watches", 5)]
#[case::transactions("transactions", 3)]
#[case::nodes_of_a_transaction("transaction-nodes", 9)]
#[case::permissions("node-permissions", 2)]
#[case::path_length("path-max", 40)]
#[case::node_size("node-size", 200)]
fn a_quota_of_so_many_allows_so_many(#[case] quota: &str, #[case] limit: u32) {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", quota, &limit.to_string()]), Ok(OK.to_vec()));
    assert_eq!(ask(&mut dom0, Op::GetQuota, &["1", quota]), Ok(format!("{limit}\0").into_bytes()));
    let tx = if quota == "transaction-nodes" { guest.start_transaction() } else { 0 };
    // Uses the quota up to so much in all.
    let use_up = |guest: &mut Client, used: u32| match quota {
        // The home is one.
        "nodes" if used < 2 => Ok(OK.to_vec()),
        "nodes" => write(guest, &format!("n{used}"), b""),
        "watches" => ask(guest, Op::Watch, &[&format!("n{used}"), "t"]),
        "transactions" => guest.request(Op::TransactionStart, b"\0").map(|_| OK.to_vec()),
        "transaction-nodes" => match guest.request_in(tx, Op::Read, format!("n{used}\0").as_bytes()) {
            Err(name) if name == "ENOENT" => Ok(OK.to_vec()),
            other => other,
        },
        "node-permissions" if used == 1 => write(guest, "x", b""),
        "node-permissions" => try_set_perms(guest, "x", &[&["n1"][..], &vec!["r0"; used as usize - 1]].concat()),
        "path-max" => write(guest, &"p".repeat(used as usize), b""),
        // A node counts for 16 and for 8 a permission beside its value.
        "node-size" if used < 25 => Ok(OK.to_vec()),
        "node-size" => write(guest, "x", &vec![b'v'; used as usize - 24]),
        other => panic!("no quota {other}"),
    };
    for used in 1..=limit {
        assert_eq!(use_up(&mut guest, used), Ok(OK.to_vec()), "{used} of {limit}");
    }
    let name = if quota == "path-max" { "EINVAL" } else { "ENOSPC" };
    assert_eq!(use_up(&mut guest, limit + 1), refused(name));
}

#[test]
fn nodes_left_behind_by_devices_fill_the_quota_until_somebody_removes_them() {
    const DEVICES: usize = 1000;
    let scene = Scene::with(&[5]);
    let mut dom0 = scene.dom0();
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["5", "nodes", "1003"]), Ok(OK.to_vec()));
    for number in 1..=DEVICES {
        dom0.send(Op::Write.number(), 0, format!("/local/domain/5/backend/vif/{number}\0").as_bytes()).unwrap();
        let payload = format!("/local/domain/5/backend/vif/{number}\0n5\0");
        dom0.send(Op::SetPerms.number(), 0, payload.as_bytes()).unwrap();
        for _ in 0..2 {
            assert_eq!(dom0.reply().unwrap().payload, OK);
        }
    }
    assert_eq!(nodes_of(&mut dom0, 5), 1003, "with its home, and the two above that it inherited");
    let mut guest = scene.guest(5);
    assert_eq!(ask(&mut guest, Op::Mkdir, &["backend/vbd"]), refused("ENOSPC"));
    let mut listed = 0;
    let mut offset = 0;
    loop {
        let part = ask(&mut guest, Op::DirectoryPart, &["backend/vif", &offset.to_string()]).unwrap();
        let names = &part[part.iter().position(|&byte| byte == 0).unwrap() + 1..];
        let last = names.ends_with(b"\0\0") || names == b"\0";
        listed += names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).count();
        if last {
            break;
        }
        offset += names.len();
    }
    assert_eq!(listed, DEVICES);
    assert_eq!(ask(&mut guest, Op::Rm, &["backend/vif/7"]), Ok(OK.to_vec()), "its owner removes one");
    assert_eq!(nodes_of(&mut dom0, 5), 1002);
    assert_eq!(ask(&mut dom0, Op::Rm, &["/local/domain/5/backend/vif/8"]), Ok(OK.to_vec()));
    assert_eq!(nodes_of(&mut dom0, 5), 1001);
    for path in ["backend/vbd", "backend/vbd/1"] {
        assert_eq!(ask(&mut guest, Op::Mkdir, &[path]), Ok(OK.to_vec()), "{path}");
    }
    assert_eq!(ask(&mut guest, Op::Mkdir, &["backend/vbd/2"]), refused("ENOSPC"));
}

#[test]
fn who_starts_over_while_it_has_a_transaction_open_leaves_nothing() {
    const ROUNDS: usize = 10_000;
    let mut scene = Scene::with(&[1]);
    let mut first = 0;
    for round in 0..ROUNDS {
        let mut guest = scene.ring_client(1);
        assert!(guest.request(Op::TransactionStart, 0, b"\0").unwrap().error().is_none());
        pipeline(&mut guest, std::iter::repeat_n((Op::Write, b"data\0value".to_vec()), 100), |number, reply| {
            assert_eq!(reply.payload, OK, "round {round}, number {number}");
        });
        guest.guest().set_word(Word::Connection, 1);
        guest.guest().notify();
        while guest.guest().word(Word::Connection) != 0 {
            assert!(guest.guest().wait(PATIENCE), "round {round}: no new connection");
        }
        if round == ROUNDS / 10 {
            first = process::anonymous_kib(scene.pid());
        }
    }
    // And writes beside no transaction at all.
    let mut guest = scene.ring_client(1);
    pipeline(&mut guest, std::iter::repeat_n((Op::Write, b"data\0value".to_vec()), 1_000_000), |number, reply| {
        assert_eq!(reply.payload, OK, "number {number}");
    });
    let last = process::anonymous_kib(scene.pid());
    assert!(last <= first + first / 10, "{first} KiB, {last} after the last");
    scene.assert_alive();
}

#[test]
fn a_guest_fills_no_log_whatever_it_asks_for() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let before = scene.log().lines().count();
    pipeline(&mut guest, std::iter::repeat_n((Op::Read, b"missing\0".to_vec()), 1_000_000), |_, reply| {
        assert_eq!(reply.error(), Some(&b"ENOENT"[..]));
    });
    let mut bytes = Vec::new();
    (0..16).for_each(|req_id| put_message(&mut bytes, 999, req_id, 0, b"\0"));
    for _ in 0..62_500 {
        guest.guest().send(&bytes, PATIENCE).unwrap();
        for _ in 0..16 {
            assert_eq!(guest.reply().unwrap().error(), Some(&b"ENOSYS"[..]));
        }
    }
    // What it may not do is told of, but not each time.
    let large = [&b"x\0"[..], &[b'v'; 3000]].concat();
    pipeline(&mut guest, std::iter::repeat_n((Op::Write, large), 10_000), |_, reply| {
        assert_eq!(reply.error(), Some(&b"ENOSPC"[..]));
    });
    let log = scene.log();
    let lines: Vec<&str> = log.lines().skip(before).collect();
    assert!((1..100).contains(&lines.len()), "{} lines", lines.len());
    let warnings = lines.iter().filter(|line| line.contains("WARN"));
    assert!(warnings.clone().all(|line| line.contains("domid=1")), "{lines:?}");
    assert!(warnings.count() < 10, "{lines:?}");
    scene.assert_alive();
}

#[test]
fn a_guest_gives_as_many_permissions_as_its_quota_and_the_privileged_domain_any_number() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "x", b""), Ok(OK.to_vec()));
    // Entries of domains that do not exist would be as many.
    assert_eq!(try_set_perms(&mut guest, "x", &["n1", "r0", "r0", "r0", "r0", "r0"]), refused("ENOSPC"));
    assert_eq!(try_set_perms(&mut guest, "x", &["n1", "r0", "r0", "r0", "r0"]), Ok(OK.to_vec()));
    let many: Vec<&str> = std::iter::once("n1").chain(std::iter::repeat_n("r0", 999)).collect();
    set_perms(&mut dom0, "/local/domain/1/x", &many);
    let read = ask(&mut dom0, Op::GetPerms, &["/local/domain/1/x"]).unwrap();
    assert_eq!(read.split(|&byte| byte == 0).count(), 1001, "and the end");
}

#[test]
fn a_value_larger_than_a_node_may_be_is_the_privileged_domains_only() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    let value = vec![b'v'; 3000];
    assert_eq!(write(&mut guest, "x", &value), refused("ENOSPC"));
    assert_eq!(guest.read("x"), refused("ENOENT"));
    dom0.write("/local/domain/1/x", &value);
    assert_eq!(guest.read("x"), Ok(value));
}

#[test]
fn a_quota_of_one_domain_is_set_while_it_is_over_it() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for node in 0..59 {
        assert_eq!(write(&mut guest, &format!("n{node}"), b""), Ok(OK.to_vec()));
    }
    let names = dom0.request(Op::GetQuota, b"").unwrap();
    let names = String::from_utf8_lossy(&names).into_owned();
    for name in ["nodes", "watches", "transactions", "node-size", "node-permissions"] {
        assert!(names.trim_end_matches('\0').split(' ').any(|known| known == name), "{name} in {names}");
    }
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nodes", "50"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "new", b""), refused("ENOSPC"));
    assert_eq!(write(&mut guest, "n1", b"other"), Ok(OK.to_vec()));
    for node in 0..9 {
        assert_eq!(ask(&mut guest, Op::Rm, &[&format!("n{node}")]), Ok(OK.to_vec()));
    }
    assert_eq!(write(&mut guest, "new", b""), refused("ENOSPC"), "51 are left");
    assert_eq!(ask(&mut guest, Op::Rm, &["n9"]), Ok(OK.to_vec()));
    assert_eq!(ask(&mut guest, Op::Rm, &["n10"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "new", b""), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "newer", b""), refused("ENOSPC"));
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nodes", "0"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "newer", b""), Ok(OK.to_vec()), "0 is no limit");
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nonsense", "1"]), refused("EINVAL"));
    assert_eq!(write(&mut scene.guest(2), "x", b""), Ok(OK.to_vec()));
}

#[test]
fn watches_of_the_deepest_paths_take_memory_for_their_length_not_for_their_depth() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let before = process::anonymous_kib(scene.pid());
    for watch in 0..100 {
        // As many levels as a path can have, none of them shared with another.
        let payload = format!("w{watch:03}{}\0t\0", "/a".repeat(1000));
        assert_eq!(guest.request(Op::Watch, 0, payload.as_bytes()).unwrap().payload, OK, "watch {watch}");
        guest.event(PATIENCE).unwrap().unwrap();
    }
    let after = process::anonymous_kib(scene.pid());
    // The paths are a quarter of a mebibyte, each there a few times.
    assert!(after < before + 3072, "{before} KiB before, {after} KiB after");
    scene.assert_alive();
}

#[test]
fn what_open_transactions_of_guests_see_takes_no_more_memory_than_they_may_have_together() {
    const GUESTS: u16 = 6;
    const ROUNDS: usize = 60;
    let domids: Vec<u16> = (1..=GUESTS).collect();
    let mut scene = Scene::with(&domids);
    let mut dom0 = scene.dom0();
    let mut guests: Vec<Client> = domids.iter().map(|&domid| scene.guest(domid)).collect();
    // Two megabytes of nodes become others after each start of a transaction, and it still sees what they were.
    let rewrite = |dom0: &mut Client, round: usize| {
        for node in 0..500 {
            let payload = [format!("/tool/n{node}\0").as_bytes(), format!("{round:04000}").as_bytes()].concat();
            dom0.send(Op::Write.number(), 0, &payload).unwrap();
        }
        (0..500).for_each(|_| assert_eq!(dom0.reply().unwrap().payload, OK));
    };
    rewrite(&mut dom0, 0);
    let before = process::anonymous_kib(scene.pid());
    let mut open = Vec::new();
    for round in 0..ROUNDS {
        let guest = round % guests.len();
        open.push((guest, guests[guest].start_transaction()));
        rewrite(&mut dom0, round);
    }
    let after = process::anonymous_kib(scene.pid());
    assert!(after < before + (80 << 10), "{before} KiB before, {after} KiB after");
    let results: Vec<_> = open.into_iter().map(|(guest, tx)| guests[guest].commit(tx)).collect();
    let lost = results.iter().take_while(|result| **result == refused("EAGAIN")).count();
    assert!((20..40).contains(&lost), "{lost} of {ROUNDS} have to begin again");
    assert!(results[lost..].iter().all(|result| *result == Ok(())), "the youngest go on: {results:?}");
    assert!(scene.log().contains("a domain's transaction fails"), "{}", scene.log());
    scene.assert_alive();
}
