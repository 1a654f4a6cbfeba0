//! Transactions of guests, and guests in the way of transactions.

use crate::scene::{OK, Scene, ask, nodes_of, refused, set_perms, write, write_in};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use xen_sim::Word;
use xenstore_wire::{Header, Op, put_message};
use xenstored_tests::wait::{AtEnd, PATIENCE, until};
use xenstored_tests::{Setting, process};

#[test]
fn a_guest_that_rewrites_its_node_does_not_starve_the_toolstack() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut guest = scene.ring_client(1);
            while !over.load(SeqCst) {
                assert_eq!(guest.request(Op::Write, 0, b"data\0again").unwrap().payload, OK);
            }
        });
        let at_end = AtEnd(&over);
        until("the guest writes", || dom0.read("/local/domain/1/data").is_ok());
        let (mut first_try, mut most) = (0, 0);
        let rounds = 100;
        for round in 0..rounds {
            for attempt in 0.. {
                let tx = dom0.start_transaction();
                dom0.request_in(tx, Op::Read, b"/local/domain/1/data\0").unwrap();
                write_in(&mut dom0, tx, &format!("/tool/{round}"), b"").unwrap();
                match dom0.commit(tx) {
                    Ok(()) if attempt == 0 => first_try += 1,
                    Err(name) if name == "EAGAIN" => {
                        most = most.max(attempt + 1);
                        continue;
                    }
                    other => other.unwrap(),
                }
                break;
            }
        }
        drop(at_end);
        assert!(most <= 5, "a commit failed {most} times");
        assert!(first_try >= rounds * 95 / 100, "only {first_try} of {rounds} at the first try");
        let told = scene.log().lines().any(|line| line.contains("spoil the transactions") && line.contains("domid=1"));
        assert!(told || first_try == rounds, "the log names the guest: {}", scene.log());
    });
    // With the guest quiet there is nothing to wake up for.
    let wakings = || process::status(scene.pid(), "voluntary_ctxt_switches");
    let before = wakings();
    thread::sleep(Duration::from_secs(2));
    assert!(wakings() - before < 20, "woken {} times in two seconds", wakings() - before);
}

#[test]
fn the_kernel_of_the_privileged_domain_is_never_slowed() {
    let scene = Scene::with(&[1]);
    let mut kernel = scene.ring_client(0);
    let mut other = scene.dom0();
    let mut spoilt = 0;
    for round in 0..300 {
        let tx = other.start_transaction();
        other.request_in(tx, Op::Read, b"/tool/xenstored\0").unwrap();
        write_in(&mut other, tx, "/tool/other", b"").unwrap();
        let replies = kernel.guest().word(Word::RspProd);
        kernel.send(Op::Write, 0, b"/tool/xenstored\0x").unwrap();
        // Who is slowed waits for as long as hundreds of requests of others take.
        let others = (0..100).take_while(|_| {
            other.read("/tool").unwrap();
            kernel.guest().word(Word::RspProd) == replies
        });
        assert!(others.count() < 100, "round {round}");
        assert_eq!(kernel.reply().unwrap().payload, OK);
        spoilt += u32::from(other.commit(tx) == refused("EAGAIN"));
    }
    assert_eq!(spoilt, 300);
    assert!(!scene.log().contains("spoil the transactions"), "{}", scene.log());
    // What a guest is held to does not hold for it either.
    for number in 0..50 {
        kernel.send(Op::TransactionStart, 0, b"\0").unwrap();
        assert!(kernel.reply().unwrap().error().is_none(), "transaction {number}");
    }
}

#[test]
fn a_transaction_in_which_a_create_failed_changes_nothing() {
    let scene = Scene::with_settings(&[Setting::Nodes(4)], &[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for name in ["a", "x"] {
        assert_eq!(write(&mut guest, name, b""), Ok(OK.to_vec()));
    }
    let tx = guest.start_transaction();
    assert_eq!(write_in(&mut guest, tx, "x/1", b""), Ok(OK.to_vec()));
    assert_eq!(write_in(&mut guest, tx, "x/2", b""), refused("ENOSPC"));
    let name = guest.commit(tx).unwrap_err();
    assert!(["ENOSPC", "ENOMEM"].contains(&name.as_str()), "{name}");
    assert_eq!(ask(&mut guest, Op::Directory, &["x"]), Ok(vec![]));
    assert_eq!(nodes_of(&mut dom0, 1), 3);
    assert_eq!(write(&mut guest, "x/1", b""), Ok(OK.to_vec()));
}

#[test]
fn a_transaction_touches_as_many_nodes_as_its_quota_and_each_any_number_of_times() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    let tx = guest.start_transaction();
    let read = |node: usize| format!("n{node}\0");
    for node in 0..1024 {
        assert_eq!(guest.request_in(tx, Op::Read, read(node).as_bytes()), refused("ENOENT"), "node {node}");
    }
    assert_eq!(guest.request_in(tx, Op::Read, read(1024).as_bytes()), refused("ENOSPC"));
    for _ in 0..5000 {
        assert_eq!(guest.request_in(tx, Op::Read, read(7).as_bytes()), refused("ENOENT"));
    }
    assert_eq!(guest.request_in(tx, Op::TransactionEnd, b"F\0"), Ok(OK.to_vec()));
}

#[test]
fn values_that_transactions_hold_count_towards_the_memory_quota() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    let before = process::anonymous_kib(scene.pid());
    let (mut held, value) = (0, [b'v'; 2000]);
    for _ in 0..10 {
        let tx = guest.start_transaction();
        for node in 0..900 {
            match write_in(&mut guest, tx, &format!("d{}/{node}", node % 9), &value) {
                Ok(_) => held += value.len(),
                Err(name) => assert!(["ENOMEM", "EIO"].contains(&name.as_str()), "{name}"),
            }
        }
    }
    let after = process::anonymous_kib(scene.pid());
    assert!((1_000_000..2_621_440).contains(&held), "{held} bytes of values are held");
    assert!(after < before + 6144, "{before} KiB before, {after} KiB after");
    scene.assert_alive();
}

#[test]
fn transactions_that_touch_the_longest_paths_are_held_by_the_memory_quota() {
    let mut scene = Scene::with(&[1, 2]);
    let mut guest = scene.ring_client(1);
    let before = process::anonymous_kib(scene.pid());
    let below = ["d".repeat(500), "e".repeat(500), "f".repeat(500), "g".repeat(500)].join("/");
    for number in 0..10 {
        let id = guest.request(Op::TransactionStart, 0, b"\0").unwrap().payload;
        let tx: u32 = String::from_utf8(id).unwrap().trim_end_matches('\0').parse().unwrap();
        for node in 0..1024 {
            let path = format!("{below}/{number}-{node}\0");
            guest.send(Op::Read, tx, path.as_bytes()).unwrap();
            let reply = guest.reply().unwrap();
            let name = String::from_utf8_lossy(reply.error().unwrap()).into_owned();
            assert!(["ENOENT", "ENOMEM"].contains(&name.as_str()), "{name}");
        }
    }
    let after = process::anonymous_kib(scene.pid());
    // A domain may hold 2.5 MiB, and what is noted about each path comes on top.
    assert!(after < before + 4096, "{before} KiB, then {after}");
    assert_eq!(scene.guest(2).read("/nowhere"), refused("EACCES"));
    scene.assert_alive();
}

#[test]
fn resetting_watches_inside_a_transaction_ends_it() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    let tx = guest.start_transaction();
    assert_eq!(guest.request_in(tx, Op::ResetWatches, b"\0"), Ok(OK.to_vec()));
    assert_eq!(guest.request_in(tx, Op::TransactionEnd, b"F\0"), refused("ENOENT"));
    scene.assert_alive();
}

#[test]
fn a_ring_given_up_while_requests_of_a_transaction_are_served_takes_it_along() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.ring_client(1);
    let id = guest.request(Op::TransactionStart, 0, b"\0").unwrap().payload;
    let tx: u32 = String::from_utf8(id).unwrap().trim_end_matches('\0').parse().unwrap();
    let mut bytes = Vec::new();
    for req_id in 0..10 {
        put_message(&mut bytes, Op::Write.number(), req_id, tx, format!("n{req_id}\0x").as_bytes());
    }
    bytes.extend_from_slice(&Header { op: Op::Write.number(), req_id: 10, tx_id: tx, len: 5000 }.encode());
    guest.guest().send(&bytes, PATIENCE).unwrap();
    until("the ring is given up", || guest.guest().word(Word::Error) != 0);
    let mut dom0 = scene.dom0();
    assert_eq!(ask(&mut dom0, Op::Directory, &["/local/domain/1"]), Ok(vec![]));
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    let line = usage.lines().find(|line| line.starts_with("transactions ")).unwrap();
    assert_eq!(line.split_whitespace().nth(2), Some("0"), "{line}");
    scene.assert_alive();
}

#[test]
fn nodes_made_outside_meanwhile_are_counted_with_those_of_the_commit() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(ask(&mut dom0, Op::Rm, &["/local/domain/1"]), Ok(OK.to_vec()));
    dom0.write("/local/domain/1", b"");
    set_perms(&mut dom0, "/local/domain/1", &["b0"]);
    let tx = guest.start_transaction();
    for name in ["t1", "t2", "t3"] {
        assert_eq!(write_in(&mut guest, tx, name, b""), Ok(OK.to_vec()));
    }
    for name in ["o1", "o2", "o3", "o4", "o5"] {
        assert_eq!(write(&mut guest, name, b""), Ok(OK.to_vec()));
    }
    assert_eq!(guest.commit(tx), Ok(()));
    assert_eq!(nodes_of(&mut dom0, 1), 8);
}

#[test]
fn a_domains_very_first_nodes_may_come_with_a_commit() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    scene.add(1);
    dom0.write("/local/domain/1", b"");
    set_perms(&mut dom0, "/local/domain/1", &["b0"]);
    let mut guest = scene.guest(1);
    let tx = guest.start_transaction();
    assert_eq!(write_in(&mut guest, tx, "a/b", b""), Ok(OK.to_vec()));
    assert_eq!(guest.commit(tx), Ok(()));
    assert_eq!(nodes_of(&mut dom0, 1), 2);
}

#[test]
fn nodes_removed_in_a_transaction_make_room_for_as_many_new_ones() {
    let scene = Scene::with_settings(&[Setting::Nodes(21)], &[1]);
    let mut guest = scene.guest(1);
    for node in 0..20 {
        assert_eq!(write(&mut guest, &format!("old{node}"), b""), Ok(OK.to_vec()));
    }
    assert_eq!(write(&mut guest, "more", b""), refused("ENOSPC"));
    let tx = guest.start_transaction();
    for node in 0..10 {
        let path = format!("old{node}\0");
        assert_eq!(guest.request_in(tx, Op::Rm, path.as_bytes()), Ok(OK.to_vec()));
    }
    for node in 0..10 {
        assert_eq!(write_in(&mut guest, tx, &format!("new{node}"), b""), Ok(OK.to_vec()), "node {node}");
    }
    assert_eq!(guest.commit(tx), Ok(()));
    let tx = guest.start_transaction();
    assert_eq!(write_in(&mut guest, tx, "one more", b""), refused("EINVAL"), "no blank in a path");
    assert_eq!(write_in(&mut guest, tx, "one-more", b""), refused("ENOSPC"), "at the create, not at the end");
}

#[test]
fn a_transaction_that_makes_more_than_the_quota_is_refused_at_the_node_that_is_too_many() {
    const LIMIT: u32 = 20;
    let scene = Scene::with_settings(&[Setting::Nodes(LIMIT)], &[1]);
    let mut guest = scene.guest(1);
    let tx = guest.start_transaction();
    // The home is one.
    for node in 1..LIMIT + 5 {
        let wanted = if node < LIMIT { Ok(OK.to_vec()) } else { refused("ENOSPC") };
        assert_eq!(write_in(&mut guest, tx, &format!("n{node}"), b""), wanted, "node {node}");
    }
    assert!(guest.commit(tx).is_err());
    assert_eq!(ask(&mut guest, Op::Directory, &["/local/domain/1"]), Ok(vec![]));
}

#[test]
fn a_domain_over_its_quota_can_still_be_told_to_shut_down() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for node in 0..20 {
        assert_eq!(write(&mut guest, &format!("n{node}"), b""), Ok(OK.to_vec()));
    }
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nodes", "10"]), Ok(OK.to_vec()));
    let tx = dom0.start_transaction();
    assert_eq!(write_in(&mut dom0, tx, "/local/domain/1/control/shutdown", b"poweroff"), Ok(OK.to_vec()));
    assert_eq!(dom0.commit(tx), Ok(()));
    assert_eq!(write(&mut guest, "n3", b"new value"), Ok(OK.to_vec()));
    let tx = guest.start_transaction();
    assert_eq!(guest.request_in(tx, Op::Read, b"n4\0"), Ok(vec![]));
    assert_eq!(write_in(&mut guest, tx, "n5", b"in it"), Ok(OK.to_vec()));
    assert_eq!(guest.commit(tx), Ok(()));
    assert_eq!(write(&mut guest, "new", b""), refused("ENOSPC"));
}

#[test]
fn a_transaction_does_not_survive_a_release_and_a_new_introduction() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.ring_client(1);
    let tx = guest.request(Op::TransactionStart, 0, b"\0").unwrap().payload;
    let tx: u32 = String::from_utf8(tx).unwrap().trim_end_matches('\0').parse().unwrap();
    assert_eq!(ask(&mut dom0, Op::Release, &["1"]), Ok(OK.to_vec()));
    scene.host.introduce(1).unwrap();
    let mut guest = scene.ring_client(1);
    assert_eq!(guest.request(Op::TransactionEnd, tx, b"T\0").unwrap().error(), Some(&b"ENOENT"[..]));
}
