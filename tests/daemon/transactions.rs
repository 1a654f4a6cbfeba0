//! Transactions between socket clients.

use std::collections::BTreeSet;
use xenstore_wire::{Op, put_message};
use xenstored_tests::{Backend, Client, Daemon};

const OK: &[u8] = b"OK\0";

/// Sends writes in one go and takes their answers.
fn write_all(client: &mut Client, tx_id: u32, nodes: &[String]) {
    let mut bytes = Vec::new();
    for node in nodes {
        put_message(&mut bytes, Op::Write.number(), 0, tx_id, format!("{node}\0v").as_bytes());
    }
    client.send_raw(&bytes).expect("the daemon takes requests");
    for node in nodes {
        assert_eq!(client.reply().expect("a reply").result(), Ok(OK), "{node}");
    }
}

/// The nodes that a toolstack makes for one guest.
fn nodes_of_guest(i: usize) -> Vec<String> {
    let frontend = (0..12).map(|n| format!("/local/domain/{i}/device/{n}/state"));
    let backend = (0..12).map(|n| format!("/local/domain/0/backend/vif/{i}/{n}"));
    let rest = (0..16).map(|n| format!("/vm/{i}/{n}"));
    frontend.chain(backend).chain(rest).collect()
}

#[test]
fn hundreds_of_transactions_that_share_parents_all_commit() {
    const GUESTS: usize = 300;
    let mut daemon = Daemon::start(Backend::Ours);
    let mut reader = daemon.connect();
    reader.write("/local/domain/0/backend/vif", b"");
    reader.write("/vm", b"");
    let mut clients: Vec<(Client, u32)> = (0..GUESTS)
        .map(|_| {
            let mut client = daemon.connect();
            let tx = client.start_transaction();
            (client, tx)
        })
        .collect();
    for (i, (client, tx)) in clients.iter_mut().enumerate() {
        write_all(client, *tx, &nodes_of_guest(i + 1));
    }
    for (i, (client, tx)) in clients.iter_mut().enumerate() {
        assert_eq!(client.commit(*tx), Ok(()), "guest {}", i + 1);
    }
    for i in [1, GUESTS / 2, GUESTS] {
        for node in nodes_of_guest(i) {
            assert_eq!(reader.read(&node), Ok(b"v".to_vec()), "{node}");
        }
    }
    for (client, tx) in &mut clients {
        *tx = client.start_transaction();
    }
    for (i, (client, tx)) in clients.iter_mut().enumerate() {
        let guest = i + 1;
        for top in
            [format!("/local/domain/{guest}"), format!("/local/domain/0/backend/vif/{guest}"), format!("/vm/{guest}")]
        {
            assert_eq!(client.request_in(*tx, Op::Rm, format!("{top}\0").as_bytes()), Ok(OK.into()), "{top}");
        }
    }
    for (client, tx) in &mut clients {
        assert_eq!(client.commit(*tx), Ok(()));
    }
    assert_eq!(reader.request(Op::Directory, b"/vm\0"), Ok(Vec::new()));
    daemon.assert_alive();
}

#[test]
fn two_that_make_the_same_child_do_conflict() {
    let daemon = Daemon::start(Backend::Ours);
    let (mut a, mut b) = (daemon.connect(), daemon.connect());
    a.write("/t", b"");
    let (tx_a, tx_b) = (a.start_transaction(), b.start_transaction());
    assert_eq!(a.request_in(tx_a, Op::Mkdir, b"/t/same\0"), Ok(OK.into()));
    assert_eq!(b.request_in(tx_b, Op::Mkdir, b"/t/same\0"), Ok(OK.into()));
    assert_eq!(a.commit(tx_a), Ok(()));
    assert_eq!(b.commit(tx_b), Err("EAGAIN".into()));
    assert_eq!(b.request_in(tx_b, Op::Read, b"/t\0"), Err("ENOENT".into()), "it is gone with the conflict");
}

#[test]
fn a_read_only_transaction_sees_one_moment_and_commits() {
    let daemon = Daemon::start(Backend::Ours);
    let (mut reader, mut writer) = (daemon.connect(), daemon.connect());
    let nodes: Vec<String> = (0..50).map(|i| format!("/t/{i}")).collect();
    for node in &nodes {
        writer.write(node, b"before");
    }
    let tx = reader.start_transaction();
    for (i, node) in nodes.iter().enumerate() {
        writer.write(&nodes[49 - i], b"after");
        assert_eq!(reader.request_in(tx, Op::Read, format!("{node}\0").as_bytes()), Ok(b"before".to_vec()), "{node}");
    }
    assert_eq!(writer.request(Op::Rm, b"/t\0"), Ok(OK.into()));
    let listed = reader.request_in(tx, Op::Directory, b"/t\0").expect("still there");
    assert_eq!(listed.iter().filter(|&&byte| byte == 0).count(), 50);
    assert_eq!(reader.commit(tx), Ok(()));
    assert_eq!(reader.read("/t"), Err("ENOENT".into()));
}

#[test]
fn a_conflict_applies_nothing_and_the_second_attempt_succeeds() {
    let daemon = Daemon::start(Backend::Ours);
    let (mut a, mut b) = (daemon.connect(), daemon.connect());
    a.write("/counter", b"1");
    let tx = a.start_transaction();
    assert_eq!(a.request_in(tx, Op::Read, b"/counter\0"), Ok(b"1".to_vec()));
    b.write("/counter", b"2");
    assert_eq!(a.request_in(tx, Op::Write, b"/counter\x002"), Ok(OK.into()));
    assert_eq!(a.request_in(tx, Op::Write, b"/other\0v"), Ok(OK.into()));
    assert_eq!(a.commit(tx), Err("EAGAIN".into()));
    assert_eq!(a.commit(tx), Err("ENOENT".into()));
    assert_eq!(a.read("/other"), Err("ENOENT".into()));
    let tx = a.start_transaction();
    assert_eq!(a.request_in(tx, Op::Read, b"/counter\0"), Ok(b"2".to_vec()));
    assert_eq!(a.request_in(tx, Op::Write, b"/counter\x003"), Ok(OK.into()));
    assert_eq!(a.commit(tx), Ok(()));
    assert_eq!(b.read("/counter"), Ok(b"3".to_vec()));
}

#[test]
fn a_transaction_belongs_to_its_connection_and_ends_with_it() {
    let daemon = Daemon::start(Backend::Ours);
    let (mut a, mut b) = (daemon.connect(), daemon.connect());
    let tx = a.start_transaction();
    assert_eq!(a.request_in(tx, Op::Write, b"/t\0v"), Ok(OK.into()));
    assert_eq!(b.request_in(tx, Op::Read, b"/t\0"), Err("ENOENT".into()));
    assert_eq!(b.request_in(tx, Op::TransactionEnd, b"T\0"), Err("ENOENT".into()));
    drop(a);
    assert_eq!(b.read("/t"), Err("ENOENT".into()));
    let own = b.start_transaction();
    assert_eq!(b.request_in(own, Op::TransactionStart, b"\0"), Err("EBUSY".into()));
    for flag in [&b"X\0"[..], b"", b"T", b"TF\0", b"t\0"] {
        assert_eq!(b.request_in(own, Op::TransactionEnd, flag), Err("EINVAL".into()), "{}", flag.escape_ascii());
    }
    assert_eq!(b.request_in(9999, Op::Watch, b"/t\0w\0"), Ok(OK.into()), "watches are in no transaction");
    assert_eq!(b.request_in(9999, Op::Unwatch, b"/t\0w\0"), Ok(OK.into()));
    assert_eq!(b.request_in(own, Op::ResetWatches, b"\0"), Ok(OK.into()));
    assert_eq!(b.commit(own), Err("ENOENT".into()), "a reset ends it");
}

#[test]
fn open_transactions_have_ids_of_their_own() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let open: BTreeSet<u32> = (0..1000).map(|_| client.start_transaction()).collect();
    assert_eq!(open.len(), 1000);
    for &tx in &open {
        assert_eq!(client.request_in(tx, Op::TransactionEnd, b"F\0"), Ok(OK.into()));
    }
}
