//! Transactions: all, nothing, and again.

use crate::{open, store};
use rstest::rstest;
use std::thread;
use xenstore_client::{Commit, Error, Nodes, XsError};
use xenstore_wire::Op;
use xenstored_tests::{Backend, Daemon, Scripted};

#[test]
fn a_commit_makes_all_changes_and_a_drop_none() {
    let (_daemon, client) = store();
    let transaction = client.transaction().unwrap();
    transaction.write("/a", "1").unwrap();
    assert_eq!(transaction.read("/a").unwrap(), b"1");
    assert_eq!(client.exists("/a"), Ok(false));
    assert_eq!(transaction.commit(), Ok(Commit::Done));
    assert_eq!(client.read("/a").unwrap(), b"1");

    let transaction = client.transaction().unwrap();
    transaction.write("/a", "2").unwrap();
    drop(transaction);
    let transaction = client.transaction().unwrap();
    transaction.write("/a", "3").unwrap();
    transaction.abort().unwrap();
    assert_eq!(client.read("/a").unwrap(), b"1");
}

#[test]
fn a_transaction_that_is_dropped_ends_at_the_daemon() {
    let server = Scripted::start();
    let socket = server.socket();
    let client = thread::spawn(move || drop(open(&socket).transaction().unwrap()));
    let mut line = server.accept();
    let (header, _) = line.request();
    line.reply(&header, b"7\0");
    let (header, payload) = line.request();
    assert_eq!((header.op, header.tx_id, payload.as_slice()), (Op::TransactionEnd.number(), 7, &b"F\0"[..]));
    line.reply(&header, b"OK\0");
    client.join().unwrap();
}

#[rstest]
fn a_conflict_is_no_error(#[values(Backend::Ours, Backend::C)] backend: Backend) {
    let daemon = Daemon::start(backend);
    let (client, other) = (open(&daemon.socket()), open(&daemon.socket()));
    client.write("/a", "1").unwrap();
    let transaction = client.transaction().unwrap();
    transaction.read("/a").unwrap();
    transaction.write("/b", "1").unwrap();
    other.write("/a", "2").unwrap();
    assert_eq!(transaction.commit(), Ok(Commit::Conflict));
    assert_eq!(client.exists("/b"), Ok(false));
}

#[test]
fn transact_runs_the_work_again_after_a_conflict() {
    let (daemon, client) = store();
    let other = open(&daemon.socket());
    client.write("/count", "1").unwrap();
    let mut runs = 0;
    let seen = client.transact(|t| -> Result<String, Error> {
        runs += 1;
        let seen = t.read_text("/count")?;
        if runs < 3 {
            other.write("/count", format!("{}", runs + 1))?;
        }
        t.write("/count", format!("{seen} and mine"))?;
        Ok(seen)
    });
    assert_eq!((runs, seen), (3, Ok("3".to_owned())));
    assert_eq!(client.read("/count").unwrap(), b"3 and mine");
}

#[test]
fn transact_gives_up_what_never_comes_through() {
    let (daemon, client) = store();
    let other = open(&daemon.socket());
    let mut runs = 0u32;
    let result = client.transact(|t| -> Result<(), Error> {
        runs += 1;
        let _before = t.exists("/busy")?;
        other.write("/busy", runs.to_string())?;
        t.write("/mine", "1")
    });
    assert_eq!((runs, result), (100, Err(Error::Conflict)));
    assert_eq!(client.exists("/mine"), Ok(false));
}

#[test]
fn an_error_of_the_work_ends_the_transaction() {
    let (_daemon, client) = store();
    let result = client.transact(|t| {
        t.write("/a", "1")?;
        t.read("/missing/node")
    });
    assert_eq!(result, Err(Error::Refused(XsError::NoEnt)));
    assert_eq!(client.exists("/a"), Ok(false));
}
