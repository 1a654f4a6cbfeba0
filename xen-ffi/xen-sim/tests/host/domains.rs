//! Domains that come and go.

use crate::running::{Client, Peer, Running};
use rstest::rstest;
use xen_sim::ShutdownReason;
use xenstore_wire::Op;

/// A client that watches both special nodes, its first events taken.
fn watcher(running: &Running) -> Client {
    let mut client = running.client();
    for path in ["@introduceDomain", "@releaseDomain"] {
        assert_eq!(client.request(Op::Watch, format!("{path}\0t\0").as_bytes()).0, Op::Watch);
        assert_eq!(client.event(), path);
    }
    client
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn creation_shutdown_and_destruction_are_told_of(#[case] peer: Peer) {
    let running = Running::start(peer, 1);
    let mut watcher = watcher(&running);
    running.host.create(2).unwrap();
    running.host.introduce(2).unwrap();
    assert_eq!(watcher.event(), "@introduceDomain");
    running.host.shutdown(2, ShutdownReason::Poweroff).unwrap();
    assert_eq!(watcher.event(), "@releaseDomain");
    running.host.destroy(2).unwrap();
    assert_eq!(watcher.event(), "@releaseDomain");
    assert!(running.is_introduced(1) && !running.is_introduced(2));
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn a_dying_domain_is_told_of(#[case] peer: Peer) {
    let running = Running::start(peer, 1);
    let mut watcher = watcher(&running);
    running.host.begin_destroy(1).unwrap();
    assert_eq!(watcher.event(), "@releaseDomain");
    assert!(running.host.domain(1).unwrap().dying);
    running.host.destroy(1).unwrap();
    assert_eq!(running.host.domain(1), None);
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn a_domain_id_is_used_again_with_a_ring_of_its_own(#[case] peer: Peer) {
    let running = Running::start(peer, 1);
    let mut watcher = watcher(&running);
    let before = running.host.domain(1).unwrap();
    let mut old = running.guest(1);
    running.host.destroy(1).unwrap();
    assert_eq!(watcher.event(), "@releaseDomain");
    let after = running.host.create(1).unwrap();
    running.host.introduce(1).unwrap();
    assert!(before.unique_id < after.unique_id && before.handle != after.handle && before.gfn != after.gfn);
    assert!(!old.guest().exists() && !old.guest().is_bound());
    running.assert_served(1);
    assert_eq!(old.guest().word(xen_sim::Word::ReqProd), 0, "the old page is nobody's");
}

#[test]
fn a_domain_that_is_introduced_again_with_a_new_port_goes_on() {
    let running = Running::start(Peer::C, 1);
    running.assert_served(1);
    let port = running.host.renew_port(1).unwrap();
    assert_ne!(port, 1);
    running.host.introduce(1).unwrap();
    let guest = running.host.guest(1).unwrap();
    assert_eq!(guest.port(), port);
    assert!(guest.is_bound());
    running.assert_served(1);
}

#[test]
fn four_thousand_domains_are_carried() {
    let running = Running::start(Peer::C, 4000);
    for domid in [1, 1999, 4000] {
        running.assert_served(domid);
    }
    assert_eq!(running.host.domains().len(), 4001);
}
