//! Socket clients and the store, over a SIGKILL of the daemon.

use xenstore_wire::Op;
use xenstored_tests::{Backend, Client, Daemon, Event, Starter, wait};

/// With a keeper, so that sockets outlive the daemon.
fn kept() -> Starter {
    Starter::new(Backend::Ours).arg("--keep").arg("5")
}

/// Without, so that clients have to connect again.
fn unkept() -> Starter {
    Starter::new(Backend::Ours)
}

fn ok(client: &mut Client, op: Op, payload: &[u8]) -> Vec<u8> {
    client.request(op, payload).unwrap_or_else(|error| panic!("{op:?}: {error}"))
}

#[test]
fn what_was_written_is_there_after_a_kill() {
    let starter = unkept();
    let mut daemon = unkept().start();
    let mut client = daemon.connect();
    for number in 0..500 {
        ok(&mut client, Op::Write, format!("/a/{}/{number}\0value {number}", number % 7).as_bytes());
    }
    ok(&mut client, Op::Rm, b"/a/3\0");
    ok(&mut client, Op::SetPerms, b"/a/5\0n7\0r9\0");
    let before = ok(&mut client, Op::Directory, b"/a/4\0");
    daemon.restart(&starter);
    let mut client = daemon.connect();
    assert_eq!(ok(&mut client, Op::Directory, b"/a/4\0"), before);
    assert_eq!(ok(&mut client, Op::Read, b"/a/4/494\0"), b"value 494");
    assert_eq!(client.request(Op::Read, b"/a/3/3\0"), Err("ENOENT".into()));
    assert_eq!(ok(&mut client, Op::GetPerms, b"/a/5\0"), b"n7\0r9\0");
    daemon.restart(&starter);
    let mut client = daemon.connect();
    assert_eq!(ok(&mut client, Op::Read, b"/a/4/494\0"), b"value 494", "a second time");
}

#[test]
fn a_kept_client_goes_on_with_its_watches_and_transactions() {
    let starter = kept();
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Write, b"/x\x000");
    ok(&mut client, Op::Watch, b"/x\0token\0");
    assert_eq!(client.event(), Ok(Event::new("/x", "token")));
    let id = client.start_transaction();
    assert_eq!(client.request_in(id, Op::Write, b"/y\0inside"), Ok(b"OK\0".to_vec()));
    daemon.await_kept(1);
    daemon.restart(&starter);
    assert_eq!(client.request_in(id, Op::Read, b"/y\0"), Ok(b"inside".to_vec()));
    assert_eq!(client.request(Op::Read, b"/y\0"), Err("ENOENT".into()));
    assert_eq!(client.request_in(id, Op::TransactionEnd, b"T\0"), Ok(b"OK\0".to_vec()));
    let mut other = daemon.connect();
    ok(&mut other, Op::Write, b"/x\x001");
    assert_eq!(client.event(), Ok(Event::new("/x", "token")));
    assert_eq!(ok(&mut other, Op::Read, b"/y\0"), b"inside");
}

#[test]
fn half_a_request_is_finished_after_a_kill() {
    let starter = kept();
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    daemon.await_kept(1);
    let mut bytes = Vec::new();
    xenstore_wire::put_message(&mut bytes, Op::Write.number(), 77, 0, b"/half\0whole");
    client.send_raw(&bytes[..21]).unwrap();
    // Another's request after it shows that the half was taken.
    ok(&mut daemon.connect(), Op::Read, b"/\0");
    daemon.restart(&starter);
    client.send_raw(&bytes[21..]).unwrap();
    assert_eq!(client.reply().unwrap().header.req_id, 77);
    assert_eq!(ok(&mut client, Op::Read, b"/half\0"), b"whole");
}

#[test]
fn a_daemon_that_dies_is_replaced_by_its_keeper() {
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    ok(&mut client, Op::Write, b"/before\0value");
    daemon.await_kept(1);
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    assert_eq!(ok(&mut client, Op::Read, b"/before\0"), b"value", "{}", daemon.log());
}

#[test]
fn a_keeper_that_dies_is_replaced_by_its_daemon() {
    let starter = kept();
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    daemon.await_kept(1);
    let first = daemon.keepers();
    for &pid in &first {
        let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    wait::until("another keeper is there", || daemon.keepers().iter().any(|pid| !first.contains(pid)));
    daemon.await_kept(1);
    daemon.restart(&starter);
    ok(&mut client, Op::Write, b"/w\0after");
}

#[test]
fn a_keeper_that_cannot_begin_is_tried_again_later() {
    let starter = kept();
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    wait::until("a keeper ends at once", || {
        for pid in daemon.keepers() {
            let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGABRT);
        }
        daemon.log().contains("the keeper ended at once")
    });
    ok(&mut client, Op::Write, b"/w\0meanwhile");
    daemon.await_kept(1);
    daemon.restart(&starter);
    ok(&mut client, Op::Write, b"/w\0after");
}

#[test]
fn a_client_that_goes_is_let_go() {
    let daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    daemon.await_kept(1);
    let held = |daemon: &Daemon| daemon.keepers().iter().map(|pid| xenstored_tests::process::descriptors(*pid)).max();
    let with = held(&daemon);
    drop(client);
    wait::until("the keeper lets go", || held(&daemon) < with);
}

#[test]
fn with_no_recovery_the_store_is_fresh() {
    let mut daemon = unkept().start();
    ok(&mut daemon.connect(), Op::Write, b"/old\0value");
    daemon.restart(&unkept().arg("--no-recovery"));
    assert_eq!(daemon.connect().request(Op::Read, b"/old\0"), Err("ENOENT".into()));
}

#[test]
fn an_orderly_stop_and_a_start_lose_nothing() {
    let starter = kept();
    let mut daemon = kept().start();
    let mut client = daemon.connect();
    ok(&mut client, Op::Watch, b"/w\0t\0");
    assert_eq!(client.event(), Ok(Event::new("/w", "t")));
    daemon.await_kept(1);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait();
    // Nobody answers, and nothing is refused.
    client.send(Op::Write.number(), 0, b"/w\0meanwhile").unwrap();
    let mut late = daemon.connect();
    late.send(Op::Read.number(), 0, b"/w\0").unwrap();
    daemon.restart(&starter);
    assert_eq!(client.reply().unwrap().payload, b"OK\0");
    assert_eq!(client.event(), Ok(Event::new("/w", "t")));
    assert!(late.reply().is_ok());
}

#[test]
fn many_requests_between_two_kills_and_a_short_journal() {
    let starter = unkept();
    let mut daemon = unkept().start();
    for round in 0..3 {
        let mut client = daemon.connect();
        let value = vec![b'v'; 3000];
        for number in 0..200u32 {
            ok(&mut client, Op::Write, &[format!("/big/{number}\0").as_bytes(), &value].concat());
        }
        ok(&mut client, Op::Write, format!("/round\0{round}").as_bytes());
        daemon.restart(&starter);
        assert_eq!(ok(&mut daemon.connect(), Op::Read, b"/round\0"), round.to_string().as_bytes());
    }
}

#[test]
fn a_changed_command_line_counts_and_what_was_set_meanwhile_stays() {
    let limits = |nodes: &str| unkept().arg("-Q").arg(format!("nodes={nodes}"));
    let get = |daemon: &Daemon, name: &str| {
        let value = daemon.connect().request(Op::GetQuota, format!("{name}\0").as_bytes()).unwrap();
        String::from_utf8(value).unwrap()
    };
    let mut daemon = limits("700").start();
    ok(&mut daemon.connect(), Op::SetQuota, b"nodes\x00800\0");
    ok(&mut daemon.connect(), Op::SetQuota, b"watches\x0033\0");
    daemon.restart(&limits("700"));
    assert_eq!((get(&daemon, "nodes"), get(&daemon, "watches")), ("800\0".into(), "33\0".into()));
    daemon.restart(&limits("900"));
    assert_eq!((get(&daemon, "nodes"), get(&daemon, "watches")), ("900\0".into(), "33\0".into()));
    daemon.restart(&limits("900"));
    assert_eq!((get(&daemon, "nodes"), get(&daemon, "watches")), ("900\0".into(), "33\0".into()));
}

#[test]
fn a_journal_can_be_read_by_a_person() {
    let daemon = unkept().start();
    ok(&mut daemon.connect(), Op::Write, b"/a/path\0and a value");
    let log = daemon.dir().join("journal/log.1");
    let output =
        std::process::Command::new(xenstored_tests::our_binary()).arg("--dump-journal").arg(log).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("/a/path\\x00and a value"), "{text}");
    let none =
        std::process::Command::new(xenstored_tests::our_binary()).args(["--dump-journal", "/etc/passwd"]).output();
    let none = none.unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/etc/passwd is not a log"), "{none:?}");
}

#[test]
fn a_damaged_journal_is_refused_and_a_fresh_store_can_be_had() {
    let daemon = unkept().start();
    for number in 0..50 {
        ok(&mut daemon.connect(), Op::Write, format!("/a/{number}\0value").as_bytes());
    }
    let dir = daemon.kill();
    let log = dir.path().join("journal/log.1");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(6).rposition(|part| part == b"/a/20\0").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let output = unkept().command(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("log.1 is damaged at byte") && said.contains("--no-recovery"), "{said}");
    assert_eq!(std::fs::read(&log).unwrap().len(), bytes.len(), "it is left as it was");
    let mut daemon = unkept().arg("--no-recovery").start_in(dir);
    assert_eq!(daemon.connect().read("/a"), Err("ENOENT".into()));
    daemon.assert_alive();
}

#[test]
fn the_journal_of_a_daemon_at_work_is_not_touched() {
    let daemon = unkept().start();
    ok(&mut daemon.connect(), Op::Write, b"/a\0value");
    let mut second = unkept().command(daemon.dir());
    let output = second.arg("--pid-file").arg(daemon.dir().join("another-pid")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another daemon answers at") && !said.contains("the store is as it was"), "{said}");
    assert_eq!(ok(&mut daemon.connect(), Op::Read, b"/a\0"), b"value");
}

#[test]
fn a_journal_without_room_costs_nobody_anything() {
    let limited = || unkept().file_size(3 << 20);
    let mut daemon = limited().start();
    let mut client = daemon.connect();
    let value = vec![b'v'; 3900];
    for number in 0..1000u32 {
        ok(&mut client, Op::Write, &[format!("/big/{}\0", number % 100).as_bytes(), &value].concat());
    }
    assert!(daemon.log().contains("the journal cannot be written"), "{}", daemon.log());
    daemon.assert_alive();
    assert!(client.read("/big/7") == Ok(value.clone()), "{}", daemon.log());
    // By then the journal is whole again, or it is given up: an old store is never taken for that of before.
    daemon.restart(&limited());
    daemon.assert_alive();
    let found = [7, 99].map(|number| daemon.connect().read(&format!("/big/{number}")));
    let all = found.iter().all(|read| *read == Ok(value.clone()));
    assert!(all || found == [Err("ENOENT".into()), Err("ENOENT".into())], "{}", daemon.log());
}

#[test]
fn without_a_place_for_a_journal_the_store_is_served() {
    let mut daemon = unkept().arg("--state-dir").arg("/proc/no/such/place").start();
    assert!(daemon.log().contains("there is no journal"), "{}", daemon.log());
    ok(&mut daemon.connect(), Op::Write, b"/a\0b");
    daemon.assert_alive();
}
