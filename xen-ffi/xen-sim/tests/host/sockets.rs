//! Unix sockets that carry guests' rings.

use crate::running::{Client, Peer, Running};
use rstest::rstest;
use xenstore_wire::{Op, put_message};

fn offered(peer: Peer) -> (Running, impl Fn() -> Client) {
    let running = Running::start(peer, 1);
    running.tool("xenstore-write", &["/local/domain/1/data", ""]);
    running.tool("xenstore-chmod", &["/local/domain/1/data", "n1"]);
    running.host.offer(1).unwrap();
    let path = running.dir.path().join("guest-1.sock");
    (running, move || Client::connect(&path))
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn a_client_speaks_as_the_guest(#[case] peer: Peer) {
    let (running, connect) = offered(peer);
    let mut client = connect();
    let value = "v".repeat(1500);
    assert_eq!(client.request(Op::Write, format!("data/long\0{value}").as_bytes()), (Op::Write, b"OK\0".to_vec()));
    assert_eq!(
        client.request(Op::Read, b"data/long\0"),
        (Op::Read, value.clone().into_bytes()),
        "longer than the ring"
    );
    let (_, perms) = running.client().request(Op::GetPerms, b"/local/domain/1/data/long\0");
    assert_eq!(perms, b"n1\0");
    assert_eq!(client.request(Op::Introduce, b"9\x001\x001\0"), (Op::Error, b"EACCES\0".to_vec()));
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn the_next_client_gets_a_clean_line(#[case] peer: Peer) {
    let (running, connect) = offered(peer);
    let mut first = connect();
    assert_eq!(first.request(Op::Watch, b"data\0old\0").0, Op::Watch);
    assert_eq!(first.event(), "data");
    let mut half = Vec::new();
    put_message(&mut half, Op::Write.number(), 7, 0, b"data/half\0said");
    first.write(&half[..20]);
    drop(first);
    running.tool("xenstore-write", &["/local/domain/1/data", "changed while nobody listens"]);
    for round in 0..20 {
        let mut next = connect();
        assert_eq!(next.request(Op::Read, b"data\0").0, Op::Read, "round {round}: no event or reply of another");
        assert_eq!(next.request(Op::Unwatch, b"data\0old\0"), (Op::Error, b"ENOENT\0".to_vec()), "its watch is gone");
    }
}

#[test]
fn the_socket_goes_with_the_domain() {
    let (running, connect) = offered(Peer::C);
    let mut client = connect();
    client.assert_served();
    running.host.destroy(1).unwrap();
    assert!(!running.dir.path().join("guest-1.sock").exists());
}
