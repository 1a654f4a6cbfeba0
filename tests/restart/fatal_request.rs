//! A request that ends the daemon each time it is executed.

use nix::sys::signal::Signal;
use xenstore_journal::{Directory, LogFile};
use xenstore_wire::Op;
use xenstored_tests::{Backend, Client, Daemon, Starter, wait};

fn starter() -> Starter {
    Starter::new(Backend::Ours).arg("--keep").arg("10")
}

/// A daemon, and a client's subtree that takes a while to remove.
fn with_large_subtree(nodes: usize) -> (Daemon, Client) {
    let daemon = starter().start();
    let mut client = daemon.connect();
    assert_eq!(client.request(Op::Watch, b"/w\0t\0"), Ok(b"OK\0".to_vec()));
    assert!(client.event().is_ok());
    for some in (0..nodes).collect::<Vec<_>>().chunks(100) {
        for number in some {
            client.send(Op::Write.number(), 0, format!("/large/{}/{number}\0v", number % 40).as_bytes()).unwrap();
        }
        some.iter().for_each(|_| drop(client.reply().unwrap()));
    }
    daemon.await_kept(1);
    (daemon, client)
}

/// Kills the daemon as soon as it executes a request. Tells whether it was still at it then.
fn kill_in_execution(daemon: &mut Daemon) -> bool {
    wait::until_busily("a request is executed", || executing(daemon).is_some());
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    executing(daemon).is_some()
}

/// Which request is executed at this moment, or was at the death.
fn executing(daemon: &Daemon) -> Option<u64> {
    LogFile::executing_now(&daemon.dir().join("journal/log.1")).unwrap()
}

/// As the first two daemons leave it that the request met, whose client still waits for an answer.
fn killed_twice() -> (Daemon, Client) {
    // Where the machine stalls in between, the request is over before its daemon is dead.
    for nodes in [10_000, 20_000, 40_000, 80_000] {
        let (mut daemon, mut client) = with_large_subtree(nodes);
        client.send(Op::Rm.number(), 0, b"/large\0").unwrap();
        if kill_in_execution(&mut daemon) {
            daemon.start_another(&starter());
            wait::until_busily("that death is counted", || executing(&daemon).is_none());
            if kill_in_execution(&mut daemon) {
                return (daemon, client);
            }
        }
    }
    panic!("no request was slow enough to be met");
}

#[test]
fn a_request_that_ends_the_daemon_twice_is_refused_and_not_executed() {
    let (mut daemon, mut client) = killed_twice();
    daemon.restart(&starter());
    let reply = client.reply().unwrap();
    assert_eq!((reply.header.op, &reply.payload[..]), (Op::Error.number(), &b"EIO\0"[..]));
    assert_eq!(client.request(Op::Read, b"/large/3/3\0"), Ok(b"v".to_vec()));
    let said = daemon.log();
    assert!(said.contains("died while it executed a request"), "{said}");
    assert!(said.contains("it is answered EIO from now on"), "{said}");
    // It stays refused, whichever way the store is had back.
    for _ in 0..2 {
        daemon.restart(&starter());
        assert_eq!(client.request(Op::Read, b"/large/3/3\0"), Ok(b"v".to_vec()));
    }
    assert_eq!(client.request(Op::Rm, b"/large\0"), Ok(b"OK\0".to_vec()), "another one may");
}

#[test]
fn a_request_that_met_one_death_is_executed_again() {
    for nodes in [10_000, 20_000, 40_000, 80_000] {
        let (mut daemon, mut client) = with_large_subtree(nodes);
        client.send(Op::Rm.number(), 0, b"/large\0").unwrap();
        if kill_in_execution(&mut daemon) {
            daemon.restart(&starter());
            assert_eq!(client.reply().unwrap().payload, b"OK\0");
            assert_eq!(client.request(Op::Read, b"/large\0"), Err("ENOENT".into()));
            return;
        }
    }
    panic!("no request was slow enough to be met");
}

#[test]
fn nothing_is_suspected_of_a_death_between_requests() {
    let (mut daemon, mut client) = with_large_subtree(100);
    for _ in 0..3 {
        daemon.restart(&starter());
        assert_eq!(client.request(Op::Write, b"/large/more\0v"), Ok(b"OK\0".to_vec()));
    }
    let journal = Directory::open(&daemon.dir().join("journal")).unwrap();
    let last = journal.newest().unwrap().plan.unwrap().logs.pop().unwrap();
    let log = LogFile::open(&journal, last).unwrap();
    assert_eq!((log.suspect(), log.convicts().count()), (None, 0));
    assert!(!daemon.log().contains("while it executed"), "{}", daemon.log());
}
