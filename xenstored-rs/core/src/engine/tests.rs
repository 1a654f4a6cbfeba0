//! The engine as its clients see it, without a shell.

use xenstore_wire::{Decoder, Op, XsError, put_message};

use super::*;
use crate::{Effect, Existence};

/// An engine with helpers to speak to it.
pub(super) struct World {
    pub(super) engine: Engine,
}

/// What came back on a connection: replies and events, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Reply(u32, Vec<u8>),
    Error(String),
    Event(String, String),
}

impl World {
    pub(super) fn new() -> Self {
        Self { engine: Engine::new(Config::default()) }
    }

    pub(super) fn socket(&mut self) -> ConnId {
        self.engine.open_socket().unwrap()
    }

    pub(super) fn send(&mut self, conn: ConnId, op: Op, tx_id: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op.number(), 7, tx_id, payload);
        self.engine.receive(conn, &bytes, Time::default());
    }

    /// Takes everything that waits for a connection.
    pub(super) fn take(&mut self, conn: ConnId) -> Vec<Got> {
        let mut decoder = Decoder::new();
        decoder.push(self.engine.output(conn));
        let all = self.engine.output(conn).len();
        self.engine.sent(conn, all);
        let mut got = Vec::new();
        while let Some(Message { header, payload }) = decoder.next_message().unwrap() {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            got.push(if header.op == Op::Error.number() {
                Got::Error(text(&payload[..payload.len() - 1]))
            } else if header.op == Op::WatchEvent.number() {
                let mut parts = payload.split(|&byte| byte == 0);
                Got::Event(text(parts.next().unwrap()), text(parts.next().unwrap()))
            } else {
                Got::Reply(header.op, payload.to_vec())
            });
        }
        got
    }

    pub(super) fn call(&mut self, conn: ConnId, op: Op, tx_id: u32, payload: &[u8]) -> Result<Vec<u8>, String> {
        self.send(conn, op, tx_id, payload);
        match self.take(conn).into_iter().find(|got| !matches!(got, Got::Event(..))) {
            Some(Got::Reply(_, payload)) => Ok(payload),
            Some(Got::Error(name)) => Err(name),
            other => panic!("{other:?} in place of a reply to {op:?}"),
        }
    }

    /// Takes turns until nothing is left to do.
    pub(super) fn settle(&mut self) {
        while self.engine.has_work() {
            self.engine.step(Time::default());
        }
    }

    pub(super) fn start(&mut self, conn: ConnId) -> u32 {
        let id = self.call(conn, Op::TransactionStart, 0, b"\0").unwrap();
        String::from_utf8(id).unwrap().trim_end_matches('\0').parse().unwrap()
    }
}

pub(super) fn event(path: &str, token: &str) -> Got {
    Got::Event(path.to_owned(), token.to_owned())
}

#[test]
fn a_reply_comes_before_the_events_that_its_request_caused() {
    let mut world = World::new();
    let conn = world.socket();
    world.call(conn, Op::Watch, 0, b"/a\0t\0").unwrap();
    world.take(conn);
    world.send(conn, Op::Write, 0, b"/a\0v");
    let ok = Got::Reply(Op::Write.number(), b"OK\0".to_vec());
    assert_eq!(world.take(conn), [ok, event("/a", "t")]);
}

#[test]
fn a_turn_serves_no_more_than_the_budget() {
    let mut world = World::new();
    let conn = world.socket();
    let mut bytes = Vec::new();
    for _ in 0..3 * BUDGET {
        put_message(&mut bytes, Op::GetDomainPath.number(), 1, 0, b"1\0");
    }
    world.engine.receive(conn, &bytes, Time::default());
    assert_eq!(world.take(conn).len(), BUDGET);
    assert!(world.engine.has_work());
    assert!(!world.engine.wants_input(conn));
    world.engine.step(Time::default());
    assert_eq!(world.take(conn).len(), BUDGET);
    world.engine.step(Time::default());
    assert_eq!(world.take(conn).len(), BUDGET);
    assert!(!world.engine.has_work());
    assert!(world.engine.wants_input(conn));
}

#[test]
fn a_client_that_does_not_read_is_served_no_further_and_then_goes_on() {
    let mut world = World::new();
    let conn = world.socket();
    world.call(conn, Op::Write, 0, &[b"/big\0".as_slice(), &[b'x'; 4000]].concat()).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..20 {
        put_message(&mut bytes, Op::Read.number(), 1, 0, b"/big\0");
    }
    world.engine.receive(conn, &bytes, Time::default());
    let held = world.engine.output(conn).len();
    assert!((OUTPUT_PAUSE..OUTPUT_PAUSE + 5000).contains(&held), "{held}");
    let mut replies = 0;
    while !world.engine.output(conn).is_empty() {
        replies += world.take(conn).len();
        world.engine.step(Time::default());
    }
    assert_eq!(replies, 20);
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    let mut world = World::new();
    let conns: Vec<_> = (0..10).map(|_| world.socket()).collect();
    for &conn in &conns {
        world.call(conn, Op::Read, 0, b"/\0").unwrap();
        world.engine.receive(conn, b"half", Time::default());
    }
    assert!(world.engine.pool.figures().0 > 0, "half a message is held");
    for &conn in &conns {
        world.engine.receive(conn, &[0; 12], Time::default());
        world.engine.step(Time::default());
        assert_eq!(world.take(conn), [Got::Error("ENOSYS".to_owned())]);
    }
    assert_eq!(world.engine.pool.figures().0, 0);
}

/// Makes events for a reader until more than `bytes` wait for it.
fn flood(world: &mut World, reader: ConnId, bytes: usize) {
    let writer = world.socket();
    let long = "n".repeat(2900);
    for number in 0.. {
        world.call(writer, Op::Mkdir, 0, format!("/{long}{number}\0").as_bytes()).unwrap();
        world.engine.sent(reader, 0);
        if world.engine.output(reader).len() > bytes {
            break;
        }
    }
}

fn given_up(world: &mut World, conn: ConnId) -> bool {
    let mut effects = std::iter::from_fn(|| world.engine.next_effect());
    effects.any(|effect| matches!(effect, Effect::Close { conn: closed, reason: CloseReason::OutputFull { .. } } if closed == conn))
}

#[test]
#[cfg_attr(miri, ignore = "a million events")]
fn a_receiver_of_events_that_never_reads_is_given_up_after_a_while() {
    let mut world = World::new();
    let reader = world.socket();
    world.call(reader, Op::Watch, 0, b"/\0t\0").unwrap();
    flood(&mut world, reader, OUTPUT_CAP);
    assert!(!given_up(&mut world, reader), "it may be about to read");
    let deadline = world.engine.next_deadline().unwrap();
    assert_eq!(deadline, Time(OUTPUT_PATIENCE));
    world.engine.step(deadline);
    assert!(given_up(&mut world, reader));
}

#[test]
fn a_receiver_that_reads_slowly_is_kept() {
    let mut world = World::new();
    let reader = world.socket();
    world.call(reader, Op::Watch, 0, b"/\0t\0").unwrap();
    flood(&mut world, reader, 2 * OUTPUT_CAP);
    for round in 1..100 {
        world.engine.step(Time(OUTPUT_PATIENCE * round / 2));
        world.engine.sent(reader, 100);
        assert!(!given_up(&mut world, reader));
    }
}

#[test]
fn an_open_transaction_keeps_nothing_back_once_it_ends() {
    let mut world = World::new();
    let conn = world.socket();
    let nodes = world.engine.store.nodes.len();
    for ending in ["T", "F", "reset", "close", "conflict"] {
        let other = world.socket();
        let tx = world.start(other);
        world.call(other, Op::Write, tx, b"/t/a/b\0v").unwrap();
        world.call(other, Op::Rm, tx, b"/t/a/b\0").unwrap();
        world.call(other, Op::Write, tx, b"/t/a/c\0v").unwrap();
        world.call(conn, Op::Write, 0, b"/x\0v").unwrap();
        match ending {
            "reset" => drop(world.call(other, Op::ResetWatches, tx, b"\0").unwrap()),
            "close" => {}
            "conflict" => {
                world.call(conn, Op::Mkdir, 0, b"/t\0").unwrap();
                assert_eq!(world.call(other, Op::TransactionEnd, tx, b"T\0"), Err("EAGAIN".to_owned()));
            }
            flag => drop(world.call(other, Op::TransactionEnd, tx, format!("{flag}\0").as_bytes()).unwrap()),
        }
        world.engine.close(other);
        assert_eq!(world.call(conn, Op::Read, 0, b"/t/a/c\0").is_ok(), ending == "T", "{ending}");
        for path in ["/t\0", "/x\0"] {
            world.call(conn, Op::Rm, 0, path.as_bytes()).unwrap();
        }
        assert_eq!(world.engine.store.nodes.len(), nodes, "{ending}");
        assert_eq!(world.engine.store.snapshots.kept(), 0, "{ending}");
        assert_eq!(world.engine.store.mend_accounts(), None, "{ending}");
    }
}

#[test]
fn a_panic_costs_its_connection_and_nothing_else() {
    let mut world = World::new();
    let (victim, other) = (world.socket(), world.socket());
    let tx = world.start(victim);
    world.call(victim, Op::Write, tx, b"/in-hand\0v").unwrap();
    world.engine.fail_at = Some(Op::Read);
    world.send(victim, Op::Read, tx, b"/\0");
    world.engine.fail_at = None;
    let effects: Vec<_> = std::iter::from_fn(|| world.engine.next_effect()).collect();
    let failed = |effect: &Effect| {
        matches!(effect, Effect::Close { conn, reason: CloseReason::Failed { what, op } }
            if *conn == victim && what == "told to fail" && *op == Op::Read.number())
    };
    assert!(effects.iter().any(failed), "{effects:?}");
    world.engine.close(victim);
    assert_eq!(world.call(other, Op::Read, 0, b"/\0"), Ok(Vec::new()));
    assert_eq!(world.call(other, Op::Read, 0, b"/in-hand\0"), Err("ENOENT".to_owned()));
    assert_eq!(world.engine.store.snapshots.kept(), 0);
    assert_eq!(world.engine.store.mend_accounts(), None);
}

#[test]
fn requests_wait_while_the_shell_looks_for_an_answer() {
    let mut world = World::new();
    let conn = world.socket();
    world.send(conn, Op::Introduce, 0, &[b"5".as_slice(), b"1", b"3", b""].join(&0));
    world.send(conn, Op::Read, 0, b"/\0");
    assert_eq!(world.take(conn), []);
    let effect = world.engine.next_effect().unwrap();
    assert!(matches!(effect, Effect::Ask { conn: asker, .. } if asker == conn));
    world.engine.answer(conn, Err(XsError::Inval));
    world.engine.step(Time::default());
    let read = Got::Reply(Op::Read.number(), Vec::new());
    assert_eq!(world.take(conn), [Got::Error("EINVAL".to_owned()), read]);
}

#[test]
fn at_the_cap_of_all_buffers_a_new_connection_is_refused() {
    let buffers = crate::BufferCap { bytes: 1000, source: "the test".to_owned() };
    let mut world = World { engine: Engine::new(Config { buffers, ..Config::default() }) };
    let conn = world.socket();
    world.engine.receive(conn, &[0; 15], Time::default());
    let more = world.socket();
    let mut bytes = Vec::new();
    put_message(&mut bytes, 2, 1, 0, &[0; 2000]);
    world.engine.receive(more, &bytes[..1990], Time::default());
    assert_eq!(world.engine.open_socket(), Err(Refused));
    world.engine.close(more);
    assert!(world.engine.open_socket().is_ok());
}

#[test]
fn told_domains_exist_only_when_told() {
    let config = Config { existence: Existence::Told, ..Config::default() };
    let mut world = World { engine: Engine::new(config) };
    let conn = world.socket();
    assert_eq!(world.call(conn, Op::GetFeature, 0, b"5\0"), Err("ENOENT".to_owned()));
    world.engine.domain_event(crate::DomainEvent::Appeared(DomId(5)));
    assert!(world.call(conn, Op::GetFeature, 0, b"5\0").is_ok());
    world.engine.domain_event(crate::DomainEvent::Gone(vec![DomId(5)]));
    world.settle();
    assert_eq!(world.call(conn, Op::GetFeature, 0, b"5\0"), Err("ENOENT".to_owned()));
}

#[test]
fn crossing_the_soft_limit_of_memory_is_noted_once_each_way() {
    let mut world = World::new();
    let conn = world.socket();
    world.call(conn, Op::SetQuota, 0, b"5\0soft-memory\x001000\0").unwrap();
    world.call(conn, Op::Mkdir, 0, b"/d\0").unwrap();
    world.call(conn, Op::SetPerms, 0, b"/d\0n5\0").unwrap();
    for size in [500, 1500, 1600, 10] {
        world.call(conn, Op::Write, 0, &[b"/d\0".as_slice(), &vec![b'x'; size]].concat()).unwrap();
    }
    let notes: Vec<bool> = std::iter::from_fn(|| world.engine.next_effect())
        .filter_map(|effect| match effect {
            Effect::Note(Note::SoftMemory { domid: DomId(5), limit: 1000, over, .. }) => Some(over),
            _ => None,
        })
        .collect();
    assert_eq!(notes, [true, false]);
}

#[test]
fn a_guest_hears_of_its_own_watch_and_writes() {
    let mut world = World::new();
    let guest = world.engine.introduce(DomId(5));
    world.send(guest, Op::Watch, 0, b"x\0t\0");
    assert_eq!(world.take(guest), [Got::Reply(Op::Watch.number(), b"OK\0".to_vec()), event("x", "t")]);
}

#[test]
fn room_for_many_nodes_is_given_up_when_they_are_gone() {
    let mut world = World::new();
    let conn = world.socket();
    let many = if cfg!(miri) { 100 } else { 10_000 };
    for number in 0..many {
        world.call(conn, Op::Mkdir, 0, format!("/many/{number}\0").as_bytes()).unwrap();
    }
    let litter = world.engine.litter();
    world.call(conn, Op::Rm, 0, b"/many\0").unwrap();
    assert!(world.engine.litter() > litter + 100 * many);
    world.engine.clear_litter();
    assert_eq!(world.engine.litter(), 0);
    assert_eq!(world.call(conn, Op::Directory, 0, b"/\0"), Ok(b"tool\0".to_vec()));
    world.call(conn, Op::Mkdir, 0, b"/again/and/again\0").unwrap();
    assert_eq!(world.engine.store.mend_accounts(), None);
}
