//! Daemons that take over from others.

use crate::running::{PATIENCE, Peer, Running, spawn, until};
use rstest::rstest;
use std::env;
use xen_sim::Host;
use xenstore_wire::Op;

#[test]
fn a_daemon_that_executes_another_keeps_its_event_channels() {
    let running = Running::start(Peer::C, 2);
    running.tool("xenstore-write", &["/local/domain/1/data", ""]);
    running.tool("xenstore-chmod", &["/local/domain/1/data", "n1"]);
    let mut guest = running.guest(1);
    assert_eq!(guest.request(Op::Watch, 0, b"data\0token\0").unwrap().error(), None);
    guest.event(PATIENCE).unwrap().expect("the first event comes by itself");
    let pid = running.daemon.id();
    running.tool("xenstore-control", &["live-update", "-f", Peer::C.program().to_str().unwrap()]);
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it is the same process");
    assert!(command.ends_with(b"\0-U\0"), "another program runs in it now: {}", String::from_utf8_lossy(&command));
    running.tool("xenstore-write", &["/local/domain/1/data", "x"]);
    let event = guest.event(PATIENCE).unwrap();
    assert_eq!(event, Some(("data".into(), "token".into())), "the watch is there, and so is the event channel");
    running.assert_served(2);
    running.host.destroy(2).unwrap();
    until("the interrupt arrives too", || !running.is_introduced(2));
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn after_a_daemon_was_killed_another_can_bind_the_same_ports(#[case] next: Peer) {
    let mut running = Running::start(Peer::C, 3);
    running.assert_served(3);
    running.replace(next);
    running.host.introduce_all(&[1, 2, 3]).unwrap();
    for domid in 0..=3 {
        assert!(running.host.guest(domid).unwrap().is_bound(), "domain {domid}");
        running.assert_served(domid);
    }
}

#[test]
fn the_wrappers_of_the_xen_libraries_work_on_a_simulated_host() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).unwrap();
    host.create(1).unwrap();
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/ring_floor");
    let mut daemon = spawn(&host, &program, &[]);
    host.introduce(1).unwrap();
    let mut guest = xen_sim::GuestClient::new(host.guest(1).unwrap());
    for _ in 0..100 {
        assert_eq!(guest.request(Op::Read, 0, b"/some/where\0").unwrap().payload, b"OK\0");
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
