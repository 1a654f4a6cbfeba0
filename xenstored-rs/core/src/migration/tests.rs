use proptest::prelude::*;

use super::*;
use crate::{
    config::Config,
    engine::Engine,
    id::{DomId, Time},
    permission::{Access, Permission},
};
use xenstore_wire::{Op, put_message};

fn entry(letter: u8, domid: u16) -> Permission {
    Permission { domid: DomId(domid), access: Access::from_letter(letter).unwrap(), ignored: false }
}

fn node(path: &str, value: &[u8], permissions: &[Permission]) -> SavedNode {
    SavedNode { path: path.as_bytes().into(), value: value.into(), permissions: permissions.to_vec() }
}

/// A state with something of everything.
fn rich() -> State {
    let watch = |path: &str, token: &str, depth| SavedWatch {
        path: path.as_bytes().into(),
        token: token.as_bytes().into(),
        depth,
    };
    let ring = Peer::Ring { domid: DomId(7), target: Some(DomId(9)), local_port: 21, remote_port: None, gfn: None };
    State {
        listener: Some(4),
        event_channels: Some(11),
        domain_state_port: None,
        connections: vec![
            SavedConnection {
                conn: None,
                peer: ring,
                unique_id: Some(0x1234_5678_9abc_def0),
                watches: vec![watch("data", "t", None), watch("/local/domain/7/x", "token 2", Some(1))],
                input: b"half".to_vec(),
                output: b"rest of a message".to_vec(),
                partial: 4,
            },
            SavedConnection {
                conn: None,
                peer: Peer::Socket { fd: 33 },
                unique_id: None,
                watches: vec![watch("@releaseDomain", "", Some(0))],
                input: Vec::new(),
                output: Vec::new(),
                partial: 0,
            },
        ],
        nodes: vec![
            node("/", b"", &[entry(b'n', 0)]),
            node("/a", b"value\0with\xff", &[entry(b'r', 7), Permission { ignored: true, ..entry(b'b', 3) }]),
            node("@releaseDomain", b"", &[entry(b'n', 0), entry(b'r', 0x7ff5)]),
        ],
        quotas: vec![(b"nodes"[..].into(), 1000), (b"soft-memory"[..].into(), 5)],
        domains: vec![SavedDomain { domid: DomId(7), features: Some(14), quotas: vec![(b"watches"[..].into(), 9)] }],
    }
}

#[test]
fn a_state_goes_through_the_stream() {
    let state = rich();
    assert_eq!(read_stream(&write_stream(&state, 2).unwrap()), Ok(state.clone()));
    let mut older = state.clone();
    older.domains[0].features = None;
    older.connections.iter_mut().flat_map(|connection| &mut connection.watches).for_each(|watch| watch.depth = None);
    assert_eq!(read_stream(&write_stream(&state, 1).unwrap()), Ok(older));
}

#[test]
fn the_layout_is_that_of_the_document() {
    let state = State { nodes: vec![node("/a", b"v", &[entry(b'n', 3)])], ..State::default() };
    let mut want = b"xenstore\0\0\0\x02\0\0\0\0".to_vec();
    let number = |bytes: &mut Vec<u8>, number: u32| bytes.extend_from_slice(&number.to_ne_bytes());
    for word in [1, 8, u32::MAX, u32::MAX] {
        number(&mut want, word);
    }
    for word in [5, 24, 0, 0] {
        number(&mut want, word);
    }
    for half in [3u16, 1, 2, 1] {
        want.extend_from_slice(&half.to_ne_bytes());
    }
    want.extend_from_slice(b"n\0");
    want.extend_from_slice(&3u16.to_ne_bytes());
    want.extend_from_slice(b"/a\0v");
    for word in [0, 0] {
        number(&mut want, word);
    }
    assert_eq!(write_stream(&state, 2).unwrap(), want);
}

#[test]
fn a_watch_that_is_four_bytes_short_is_understood() {
    let mut stream = b"xenstore\0\0\0\x02\0\0\0\0".to_vec();
    let mut state = rich();
    state.connections.truncate(1);
    state.connections[0].watches.clear();
    let whole = write_stream(&state, 2).unwrap();
    // The record of the connection follows that of the quotas.
    let kinds: Vec<(usize, u32)> = records(&whole);
    let connection = kinds.iter().position(|(_, kind)| *kind == 2).unwrap();
    let (from, to) = (kinds[connection].0, kinds[connection + 1].0);
    stream.extend_from_slice(&whole[from..to]);
    // As C daemons write it: the length of the full record, and only 8 bytes of its 12 before the strings.
    let (path, token) = (b"/deep\0", b"tok\0");
    for word in [8u32, 24, 1] {
        stream.extend_from_slice(&word.to_ne_bytes());
    }
    for half in [6u16, 4] {
        stream.extend_from_slice(&half.to_ne_bytes());
    }
    stream.extend_from_slice(path);
    stream.extend_from_slice(token);
    stream.resize(stream.len().next_multiple_of(8), 0);
    stream.extend_from_slice(&whole[kinds[kinds.len() - 1].0..]);
    let read = read_stream(&stream).unwrap();
    let watches = &read.connections[0].watches;
    assert_eq!(watches.len(), 1);
    assert_eq!((&*watches[0].path, &*watches[0].token), (&b"/deep"[..], &b"tok"[..]));
}

/// Where the records of a stream begin, and of which kind they are.
fn records(stream: &[u8]) -> Vec<(usize, u32)> {
    let word = |at: usize| u32::from_ne_bytes(stream[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (16, Vec::new());
    while at < stream.len() {
        found.push((at, word(at)));
        at += 8 + (word(at + 4) as usize).next_multiple_of(8);
    }
    found
}

#[test]
fn every_prefix_is_refused() {
    let stream = write_stream(&rich(), 2).unwrap();
    for cut in 0..stream.len() {
        assert!(read_stream(&stream[..cut]).is_err(), "{cut}");
    }
    assert_eq!(read_stream(&[&stream[..], b"x"].concat()).unwrap_err().fault, Fault::Long);
}

#[test]
fn what_is_no_stream_is_refused_with_where() {
    let stream = write_stream(&rich(), 2).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = stream.clone();
        bytes[at] = byte;
        let error = read_stream(&bytes).unwrap_err();
        (error.offset, error.fault)
    };
    assert_eq!(with(0, b'X'), (0, Fault::NotAStream));
    assert_eq!(with(11, 3), (8, Fault::Version(3)));
    assert_eq!(with(16, 99), (16, Fault::Type(99)));
    let other = if cfg!(target_endian = "big") { 0 } else { 1 };
    assert_eq!(with(15, other), (12, Fault::ByteOrder));
}

/// So many times as many changed streams are read as other properties have cases: a hundred thousand.
const CHANGED: u32 = 400;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { CHANGED * ProptestConfig::default().cases }))]

    #[test]
    fn damage_is_never_worse_than_an_error(
        version in 1..=2_u32,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut stream = write_stream(&rich(), version).unwrap();
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        match read_stream(&stream) {
            Ok(state) => drop(Engine::load(Config::default(), &state)),
            Err(error) => prop_assert!(error.offset <= stream.len()),
        }
    }
}

fn ask(engine: &mut Engine, conn: crate::ConnId, op: Op, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_message(&mut bytes, op.number(), 1, 0, payload);
    engine.receive(conn, &bytes, Time::default());
    let reply = engine.output(conn).to_vec();
    engine.sent(conn, reply.len());
    reply
}

#[test]
fn a_store_is_the_same_in_another_engine() {
    let mut one = Engine::new(Config::default());
    let conn = one.open_socket().unwrap();
    for (path, value) in [("/local/domain/7/a", "1"), ("/local/domain/7/b", ""), ("/tool/x", "y"), ("/z/q/w/e", "r")] {
        ask(&mut one, conn, Op::Write, [path.as_bytes(), b"\0", value.as_bytes()].concat().as_slice());
    }
    ask(&mut one, conn, Op::SetPerms, b"/local/domain/7/a\0n7\0r9\0");
    ask(&mut one, conn, Op::SetPerms, b"@introduceDomain\0n0\0r7\0");
    ask(&mut one, conn, Op::Rm, b"/tool/xenstored\0");
    ask(&mut one, conn, Op::Watch, b"/z\0deep\x001\0");
    ask(&mut one, conn, Op::SetQuota, b"nodes\x00123\0");
    let guest = one.introduce(DomId(7));
    ask(&mut one, guest, Op::Watch, b"a\0relative\0");
    one.receive(guest, b"half a request", Time::default());
    let state = read_stream(&write_stream(&one.unload(), 2).unwrap()).unwrap();
    let Loaded { mut engine, connections } = Engine::load(Config::default(), &state).unwrap();
    let mut again = engine.unload();
    for (one, other) in again.connections.iter_mut().zip(&state.connections) {
        one.conn = other.conn;
    }
    assert_eq!(again, state);
    engine.resume();
    let (socket, guest) = (connections[0], connections[1]);
    assert_eq!(engine.guest_connection(DomId(7)), Some(guest));
    ask(&mut engine, socket, Op::Write, b"/local/domain/7/a\x002");
    assert!(engine.output(guest).ends_with(b"a\0relative\0"), "a relative watch stays relative");
    assert!(ask(&mut engine, socket, Op::GetPerms, b"@introduceDomain\0").ends_with(b"n0\0r7\0"));
    assert!(ask(&mut engine, socket, Op::Read, b"/tool/xenstored\0").ends_with(b"ENOENT\0"));
    assert!(ask(&mut engine, socket, Op::GetQuota, b"nodes\0").ends_with(b"123\0"));
}

#[test]
fn more_than_a_quota_is_loaded_and_only_more_is_refused() {
    let mut state = State { quotas: vec![(b"nodes"[..].into(), 100)], ..State::default() };
    state.nodes.push(node("/", b"", &[entry(b'n', 0)]));
    state.nodes.push(node("/d", b"", &[entry(b'n', 1)]));
    state.nodes.extend((0..150).map(|number| node(&format!("/d/{number}"), b"", &[entry(b'n', 1)])));
    let peer = Peer::Ring { domid: DomId(1), target: None, local_port: 1, remote_port: None, gfn: None };
    let (watches, input, output) = (Vec::new(), Vec::new(), Vec::new());
    state.connections.push(SavedConnection { conn: None, peer, unique_id: None, watches, input, output, partial: 0 });
    let Loaded { mut engine, connections } = Engine::load(Config::default(), &state).unwrap();
    assert!(ask(&mut engine, connections[0], Op::Mkdir, b"/d/more\0").ends_with(b"ENOSPC\0"));
    assert!(ask(&mut engine, connections[0], Op::Rm, b"/d/7\0").ends_with(b"OK\0"));
}

#[test]
fn states_that_cannot_be_are_refused() {
    let with = |node| Engine::load(Config::default(), &State { nodes: vec![node], ..State::default() }).unwrap_err();
    for path in ["relative", "/a//b", "/a/", "", "@other"] {
        assert!(with(node(path, b"", &[entry(b'n', 0)])).name == path.as_bytes(), "{path}");
    }
    assert_eq!(with(node("/a", b"", &[])).what, "no permissions at");
    let mut twice = rich();
    twice.connections[1] = twice.connections[0].clone();
    assert!(Engine::load(Config::default(), &twice).is_err());
}

#[test]
fn the_text_of_oxenstored_is_read() {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = format!(
        "$xenstored-dump-format\nglobal,3\nevtchn-dev,8,2\nsocket,12\ndom,7,4096,5,6\nwatch,7,{},{}\n\
         watch,-12,{},{},2\nwatch,99,{},{}\nstore,{},{},\nstore,{},{},{}\nstore,{},{},\nlater,1,2\n",
        hex("data"),
        hex("t"),
        hex("/x"),
        hex("y"),
        hex("/"),
        hex("nobody"),
        hex("/"),
        hex("n0"),
        hex("/local"),
        hex("n0\0r7"),
        hex("value"),
        hex("/@releaseDomain"),
        hex("n0"),
    );
    let state = read_text(text.as_bytes()).unwrap();
    assert_eq!((state.listener, state.event_channels, state.domain_state_port), (Some(3), Some(8), Some(2)));
    assert_eq!(state.connections[0].peer, Peer::Socket { fd: 12 });
    assert_eq!(state.connections[0].watches[0].depth, Some(2));
    let (remote_port, gfn) = (Some(5), Some(4096));
    assert_eq!(
        state.connections[1].peer,
        Peer::Ring { domid: DomId(7), target: None, local_port: 6, remote_port, gfn }
    );
    assert_eq!(state.nodes[1], node("/local", b"value", &[entry(b'n', 0), entry(b'r', 7)]));
    assert_eq!(&*state.nodes[2].path, b"@releaseDomain");
    for (text, line) in [
        ("", 1),
        ("something", 1),
        ("$xenstored-dump-format\nsocket,x", 2),
        ("$xenstored-dump-format\nglobal,3\nstore,2f", 3),
        ("$xenstored-dump-format\nstore,2,6e30,", 2),
        ("$xenstored-dump-format\nstore,2f,,", 2),
        ("$xenstored-dump-format\nsocket,1\nsocket,1", 3),
    ] {
        assert_eq!(read_text(text.as_bytes()).unwrap_err().line, line, "{text}");
    }
}
