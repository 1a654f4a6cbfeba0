//! Which calls need to be remembered, and which requests are told of and refused.

use std::{cell::RefCell, rc::Rc};

use rstest::rstest;
use xenstore_wire::Op;

use super::tests::{Got, World};
use super::*;

fn altered(world: &mut World, what: impl FnOnce(&mut World)) -> bool {
    let before = world.engine.alterations();
    what(world);
    world.engine.alterations() != before
}

#[rstest]
#[case::read(Op::Read, b"/\0")]
#[case::read_of_nothing(Op::Read, b"/none\0")]
#[case::read_of_nonsense(Op::Read, b"//\0")]
#[case::directory(Op::Directory, b"/\0")]
#[case::directory_part(Op::DirectoryPart, b"/\x000\0")]
#[case::get_perms(Op::GetPerms, b"/\0")]
#[case::get_domain_path(Op::GetDomainPath, b"5\0")]
#[case::is_domain_introduced(Op::IsDomainIntroduced, b"5\0")]
#[case::get_feature(Op::GetFeature, b"")]
#[case::get_quota(Op::GetQuota, b"nodes\0")]
fn reading_alters_nothing_once_the_reply_has_left(#[case] op: Op, #[case] payload: &[u8]) {
    let mut world = World::new();
    let (socket, guest) = (world.socket(), world.engine.introduce(DomId(5)));
    for conn in [socket, guest] {
        let alters = altered(&mut world, |world| {
            world.send(conn, op, 0, payload);
            assert!(!world.engine.is_settled(conn), "the reply waits");
            assert_eq!(world.take(conn).len(), 1);
        });
        assert!(!alters && world.engine.is_settled(conn));
    }
}

#[rstest]
#[case::write(Op::Write, b"/a\0v")]
#[case::mkdir(Op::Mkdir, b"/a\0")]
#[case::mkdir_of_what_is_there(Op::Mkdir, b"/\0")]
#[case::watch(Op::Watch, b"/\0t\0")]
#[case::start(Op::TransactionStart, b"\0")]
#[case::set_quota(Op::SetQuota, b"nodes\x009\0")]
#[case::asking_the_shell(Op::Control, b"turns\0")]
fn all_else_alters(#[case] op: Op, #[case] payload: &[u8]) {
    let mut world = World::new();
    let conn = world.socket();
    assert!(altered(&mut world, |world| world.send(conn, op, 0, payload)));
}

#[test]
fn reading_in_a_transaction_alters() {
    let mut world = World::new();
    let conn = world.socket();
    let tx = world.start(conn);
    assert!(altered(&mut world, |world| world.send(conn, Op::Read, tx, b"/\0")));
}

#[test]
fn input_that_stays_alters_and_so_does_what_takes_it() {
    let mut world = World::new();
    let conn = world.socket();
    assert!(altered(&mut world, |world| world.engine.receive(conn, &[0; 5], Time::default())));
    assert!(!world.engine.is_settled(conn));
    let mut many = Vec::new();
    for _ in 0..=BUDGET {
        put_message(&mut many, Op::Read.number(), 1, 0, b"/\0");
    }
    let other = world.socket();
    assert!(altered(&mut world, |world| world.engine.receive(other, &many, Time::default())));
    world.take(other);
    assert!(!world.engine.is_settled(other), "a request is left");
    assert!(altered(&mut world, |world| world.engine.step(Time::default())));
}

#[test]
fn a_reply_that_leaves_in_pieces_or_later_alters() {
    let mut world = World::new();
    let conn = world.socket();
    let read = |world: &mut World| world.send(conn, Op::Read, 0, b"/\0");
    assert!(altered(&mut world, |world| {
        read(world);
        world.engine.sent(conn, 3);
    }));
    assert!(altered(&mut world, |world| drop(world.take(conn))), "the rest of a reply that left in part");
    read(&mut world);
    world.engine.keep();
    assert!(!altered(&mut world, read));
    assert!(altered(&mut world, |world| drop(world.take(conn))), "one of the replies is remembered as unsent");
    assert!(!altered(&mut world, |world| {
        read(world);
        world.take(conn);
    }));
}

#[test]
fn only_the_first_failure_to_send_alters() {
    let mut world = World::new();
    let conn = world.socket();
    world.send(conn, Op::Read, 0, b"/\0");
    assert!(altered(&mut world, |world| world.engine.sent(conn, 0)), "equal events fall together from now on");
    assert!(!altered(&mut world, |world| world.engine.sent(conn, 0)));
}

#[test]
fn events_alter_when_they_leave() {
    let mut world = World::new();
    let (watcher, writer) = (world.socket(), world.socket());
    world.call(watcher, Op::Watch, 0, b"/\0t\0").unwrap();
    world.take(watcher);
    world.call(writer, Op::Write, 0, b"/a\0v").unwrap();
    world.send(watcher, Op::Read, 0, b"/\0");
    assert!(altered(&mut world, |world| assert_eq!(world.take(watcher).len(), 2)));
}

#[test]
fn news_of_domains_alters_once() {
    use crate::DomainEvent::{Appeared, Gone, ShutDown};
    let mut world = World { engine: Engine::new(Config { existence: crate::Existence::Told, ..Config::default() }) };
    let event = |event: crate::DomainEvent| move |world: &mut World| world.engine.domain_event(event);
    let mut alters = |event: crate::DomainEvent| altered(&mut world, |world| world.engine.domain_event(event));
    let domid = DomId(5);
    assert!(alters(Appeared(domid)) && !alters(Appeared(domid)));
    assert!(!alters(ShutDown(vec![domid])), "it is not introduced");
    assert!(altered(&mut world, |world| _ = world.engine.introduce(domid)));
    assert!(altered(&mut world, event(ShutDown(vec![domid]))));
    assert!(!altered(&mut world, event(ShutDown(vec![domid]))));
    assert!(altered(&mut world, event(Gone(vec![domid]))) && !altered(&mut world, event(Gone(vec![domid]))));
    assert!(!altered(&mut world, event(Gone(Vec::new()))));
}

/// What a witness was told: numbers, and 0 for an end.
#[derive(Debug)]
struct Told(Rc<RefCell<Vec<u64>>>);

impl Witness for Told {
    fn begins(&mut self, number: u64) {
        self.0.borrow_mut().push(number);
    }

    fn ends(&mut self) {
        self.0.borrow_mut().push(0);
    }
}

#[test]
fn each_request_is_told_of_before_and_after() {
    let mut world = World::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    world.engine.set_witness(Some(Box::new(Told(Rc::clone(&told)))));
    let conn = world.socket();
    world.call(conn, Op::Read, 0, b"/\0").unwrap();
    world.call(conn, Op::Read, 0, b"/none\0").unwrap_err();
    world.engine.fail_at = Some(Op::Read);
    world.send(conn, Op::Read, 0, b"/\0");
    assert_eq!(*told.borrow(), [1, 0, 2, 0, 3, 0]);
    assert_eq!(world.engine.executed(), 3);
}

#[test]
fn a_refused_request_is_answered_and_not_executed() {
    let mut world = World::new();
    let (conn, guest) = (world.socket(), world.engine.introduce(DomId(5)));
    world.engine.refuse(1);
    world.engine.refuse(3);
    world.engine.refuse(3);
    assert_eq!(world.call(conn, Op::Write, 0, b"/a\0v"), Err("EIO".to_owned()));
    assert_eq!(world.call(conn, Op::Read, 0, b"/a\0"), Err("ENOENT".to_owned()));
    world.send(guest, Op::Read, 0, b"/\0");
    assert_eq!(world.take(guest), [Got::Error("EIO".to_owned())]);
    assert!(world.engine.is_settled(guest));
    let executed = world.engine.executed();
    world.engine.refuse(executed);
    assert!(world.engine.refused.is_empty());
    assert!(world.call(conn, Op::Write, 0, b"/a\0v").is_ok());
}

#[test]
fn connections_are_let_in_again_whatever_is_held() {
    let buffers = crate::BufferCap { bytes: 1, source: "the test".to_owned() };
    let mut world = World { engine: Engine::new(Config { buffers, ..Config::default() }) };
    let conn = world.socket();
    world.engine.receive(conn, &[0; 15], Time::default());
    assert_eq!(world.engine.open_socket(), Err(Refused));
    let more = world.engine.open_socket_again();
    world.engine.close(conn);
    assert_eq!(world.call(more, Op::Read, 0, b"/\0"), Ok(Vec::new()));
    assert_eq!(world.engine.open_socket(), Ok(conn), "the lowest free number");
}

#[test]
fn transactions_wait_while_they_are_held() {
    let mut world = World::new();
    let (one, other) = (world.socket(), world.socket());
    let open = world.start(one);
    assert!(altered(&mut world, |world| world.engine.hold_transactions(true)));
    assert!(!altered(&mut world, |world| world.engine.hold_transactions(true)));
    world.send(other, Op::TransactionStart, 0, b"\0");
    world.send(other, Op::Read, 0, b"/\0");
    assert_eq!(world.take(other), []);
    assert!(!world.engine.wants_input(other) && !world.engine.has_work());
    let second = world.start(one);
    for id in [open, second] {
        assert_eq!(world.call(one, Op::TransactionEnd, id, b"T\0"), Ok(b"OK\0".to_vec()));
    }
    world.send(one, Op::TransactionStart, 0, b"\0");
    assert_eq!(world.take(one), [], "it has none any more");
    world.engine.close(one);
    world.engine.hold_transactions(false);
    assert!(world.engine.has_work());
    world.engine.step(Time::default());
    let got = world.take(other);
    assert!(matches!(&got[..], [Got::Reply(..), Got::Reply(..)]), "{got:?}");
    assert_eq!(world.engine.open_transactions().len(), 1);
}
