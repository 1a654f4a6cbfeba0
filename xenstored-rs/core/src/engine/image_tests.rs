//! Engines that are saved and restored.

use rstest::rstest;
use xenstore_wire::Op;

use super::tests::{Got, World, event};
use super::*;
use crate::{DomainEvent, Existence, ImageError, ImageFault, Question};

const HOME: &[u8] = b"/local/domain/5";

fn saved(engine: &Engine) -> Vec<u8> {
    let mut image = Vec::new();
    let saved = engine.save(|bytes| {
        image.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    });
    saved.unwrap();
    image
}

fn restored(engine: &Engine) -> Engine {
    let image = saved(engine);
    let restored = Engine::restore(&image).unwrap();
    assert!(saved(&restored) == image, "what was restored has the same image");
    restored
}

impl World {
    /// Goes on with the engine that an image of this one gives.
    fn save_and_restore(&mut self) {
        self.engine = restored(&self.engine);
    }

    /// The same, with what the shell should do before.
    fn save_and_restore_with_effects(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(std::iter::from_fn(|| self.engine.next_effect()));
        self.save_and_restore();
    }
}

/// A checksum that is right again.
fn sealed(mut image: Vec<u8>) -> Vec<u8> {
    image.truncate(image.len() - 4);
    let sum = crc32c::crc32c(&image).to_le_bytes();
    image.extend_from_slice(&sum);
    image
}

/// A world with something of everything.
fn full() -> (World, ConnId, ConnId) {
    let config = Config { existence: Existence::Asked, keep_orphans: true, ..Config::default() };
    let mut world = World { engine: Engine::new(config) };
    let gone = world.socket();
    let socket = world.socket();
    let guest = world.engine.introduce(DomId(5));
    world.engine.close(gone);
    world.call(socket, Op::Mkdir, 0, &[HOME, b"\0"].concat()).unwrap();
    world.send(socket, Op::SetPerms, 0, &[HOME, b"\0n5\0r6\0"].concat());
    let _asked = world.engine.next_effect();
    world.engine.answer_existence(socket, &[]);
    world.take(socket);
    world.call(socket, Op::SetQuota, 0, b"5\0nodes\x00900\0").unwrap();
    world.call(socket, Op::Watch, 0, b"/\0everything\0").unwrap();
    world.call(socket, Op::Watch, 0, b"@releaseDomain\0each\x001\0").unwrap();
    world.send(guest, Op::Watch, 0, b"data\0own\x002\0");
    for number in 0..40 {
        world.call(socket, Op::Mkdir, 0, format!("/wide/{number}\0").as_bytes()).unwrap();
    }
    let (kept, own) = (world.start(socket), world.start(socket));
    world.call(socket, Op::Read, kept, b"/wide/3\0").unwrap();
    world.call(socket, Op::Write, own, b"/wide/new/below\0a value that is longer than what stands in place").unwrap();
    world.call(socket, Op::Rm, own, b"/wide/4\0").unwrap();
    world.call(socket, Op::Write, own, b"/wide/5\0w").unwrap();
    world.call(socket, Op::SetPerms, own, b"/wide/6\0n0\0b5\0").unwrap();
    world.call(socket, Op::Rm, 0, b"/wide/7\0").unwrap();
    world.call(socket, Op::Write, 0, b"/wide/8\0changed").unwrap();
    world.send(guest, Op::Write, 0, b"data/x\0v");
    world.send(guest, Op::Write, 0, b"data/y\0v");
    world.engine.sent(guest, 20);
    world.engine.receive(socket, &[2, 0, 0, 0, 9], Time(Duration::from_millis(1500)));
    (world, socket, guest)
}

#[test]
fn an_engine_with_something_of_everything_comes_back() {
    let (mut world, ..) = full();
    world.save_and_restore();
    assert_eq!(world.engine.store.mend_accounts(), None);
}

#[test]
fn what_was_open_goes_on() {
    let (mut world, socket, guest) = full();
    let before = world.engine.output(guest).to_vec();
    world.save_and_restore();
    assert_eq!(world.engine.output(guest), before);
    assert_eq!(world.engine.now(), Time(Duration::from_millis(1500)));
    // The rest of the request that had begun to come.
    let mut read = Vec::new();
    put_message(&mut read, Op::Read.number(), 9, 0, b"/wide/8\0");
    let begun = &[2, 0, 0, 0, 9];
    assert_eq!(read[..5], *begun);
    world.take(socket);
    world.engine.receive(socket, &read[5..], Time(Duration::from_secs(2)));
    world.engine.step(Time(Duration::from_secs(2)));
    assert_eq!(world.take(socket), [Got::Reply(Op::Read.number(), b"changed".to_vec())]);
    assert_eq!(world.call(socket, Op::Read, 1, b"/wide/8\0"), Ok(Vec::new()), "a transaction sees what was");
    assert_eq!(world.call(socket, Op::Read, 2, b"/wide/5\0"), Ok(b"w".to_vec()));
    assert_eq!(world.call(socket, Op::TransactionEnd, 1, b"T\0"), Ok(b"OK\0".to_vec()));
    assert_eq!(world.start(socket), 3);
    world.send(socket, Op::TransactionEnd, 2, b"T\0");
    let told = ["/wide/new/below", "/wide/4", "/wide/5", "/wide/6"].map(|path| event(path, "everything"));
    let ok = Got::Reply(Op::TransactionEnd.number(), b"OK\0".to_vec());
    assert_eq!(world.take(socket), [[ok].as_slice(), told.as_slice()].concat());
    assert_eq!(world.engine.store.mend_accounts(), None);
    let other = world.socket();
    assert_eq!(other.index(), 0, "the lowest free number");
    world.engine.domain_event(DomainEvent::Gone(vec![DomId(5)]));
    world.settle();
    assert_eq!(world.take(socket), [event("@releaseDomain/5", "each")], "orphans are kept");
}

#[test]
fn a_new_shell_is_told_what_is_open() {
    let (mut world, socket, guest) = full();
    world.take(socket);
    let (asking, closed) = (world.socket(), world.socket());
    let bad = world.engine.introduce(DomId(7));
    world.send(asking, Op::Control, 0, b"memreport\0file\0");
    world.engine.receive(closed, &[0xff; 16], Time::default());
    world.engine.ring_failed(bad);
    world.take(socket);
    world.save_and_restore();
    assert_eq!((world.engine.has_effects(), world.engine.next_output()), (false, None));
    world.engine.resume();
    let effects: Vec<_> = std::iter::from_fn(|| world.engine.next_effect()).collect();
    let question = Question::Report { file: Some(b"file".to_vec()) };
    assert_eq!(
        effects,
        [
            Effect::Ask { conn: asking, question },
            Effect::Close { conn: closed, reason: CloseReason::TooLong { len: u32::MAX } },
            Effect::Ignore { conn: bad, domid: DomId(7), reason: CloseReason::RingIndex, tell: true },
        ]
    );
    assert_eq!((world.engine.next_output(), world.engine.next_output()), (Some(guest), None));
    let kinds: Vec<_> = world.engine.connections().map(|(conn, _)| conn).collect();
    assert_eq!(kinds, [asking, socket, guest, closed, bad]);
    world.engine.answer(asking, Ok(b"OK\0".to_vec()));
    assert_eq!(world.take(asking), [Got::Reply(Op::Control.number(), b"OK\0".to_vec())]);
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn domains_go_on_ending_and_their_rings_are_let_go() {
    let (mut world, socket, guest) = full();
    let other = world.engine.introduce(DomId(8));
    world.engine.piece = 1;
    world.engine.domain_event(DomainEvent::Gone(vec![DomId(5), DomId(8)]));
    world.engine.step(Time::default());
    let asking = world.socket();
    world.send(asking, Op::GetFeature, 0, b"5\0");
    while std::iter::from_fn(|| world.engine.next_effect()).count() == 0 {
        world.engine.step(Time::default());
    }
    world.take(socket);
    world.save_and_restore();
    world.engine.resume();
    // The first ring was let go, and may not have been; the second is, once its turn comes.
    let mut effects: Vec<_> = std::iter::from_fn(|| world.engine.next_effect()).collect();
    while world.engine.has_work() {
        world.engine.step(Time::default());
        world.save_and_restore_with_effects(&mut effects);
    }
    let release = |conn, domid| Effect::Release { conn, domid: DomId(domid) };
    let question = Question::Exist(vec![DomId(5)]);
    assert_eq!(effects, [release(guest, 5), release(other, 8), Effect::Ask { conn: asking, question }]);
    world.engine.answer_existence(asking, &[]);
    assert_eq!(world.take(asking), [Got::Error("ENOENT".to_owned())]);
    assert_eq!(world.take(socket), [5, 8].map(|domid| event(&format!("@releaseDomain/{domid}"), "each")));
    assert_eq!(world.engine.store.mend_accounts(), None);
}

#[test]
fn whole_requests_that_wait_are_served() {
    let mut world = World::new();
    let conn = world.socket();
    let mut many = Vec::new();
    for _ in 0..2 * BUDGET {
        put_message(&mut many, Op::Read.number(), 1, 0, b"/\0");
    }
    world.engine.receive(conn, &many, Time::default());
    world.save_and_restore();
    assert!(world.engine.has_work());
    world.engine.step(Time::default());
    assert_eq!(world.take(conn).len(), 2 * BUDGET);
}

#[test]
fn equal_events_still_fall_together_and_old_ones_expire() {
    let (mut world, ..) = full();
    let guest = world.engine.introduce(DomId(8));
    world.send(guest, Op::Watch, 0, b"/shared\0t\0");
    world.take(guest);
    let socket = world.socket();
    let write = |world: &mut World, path: &[u8]| world.call(socket, Op::Write, 0, &[path, b"\0v"].concat()).unwrap();
    write(&mut world, b"/shared");
    world.call(socket, Op::SetPerms, 0, b"/shared\0r0\0").unwrap();
    world.take(guest);
    write(&mut world, b"/shared");
    world.engine.sent(guest, 0);
    write(&mut world, b"/shared/a");
    world.save_and_restore();
    write(&mut world, b"/shared/a");
    write(&mut world, b"/shared/b");
    let deadline = world.engine.next_deadline().unwrap();
    let heard = world.engine.output(guest).to_vec();
    world.save_and_restore();
    assert_eq!(world.engine.next_deadline(), Some(deadline));
    let mut other = World { engine: restored(&world.engine) };
    assert_eq!(other.engine.output(guest), heard);
    let all = [event("/shared", "t"), event("/shared/a", "t"), event("/shared/b", "t")];
    assert_eq!(other.take(guest), all);
    world.engine.step(Time(deadline.0 + Duration::from_secs(60)));
    assert_eq!(world.take(guest), []);
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn a_store_in_many_pieces_comes_back() {
    let mut world = World::new();
    let (conn, deaf) = (world.socket(), world.socket());
    world.call(deaf, Op::Watch, 0, b"/\0t\0").unwrap();
    for number in 0..8000 {
        let value = vec![b'x'; number % 50];
        let path = format!("/many/{}/of/them/{number}\0", number % 70);
        world.call(conn, Op::Write, 0, &[path.as_bytes(), &value].concat()).unwrap();
        world.engine.sent(deaf, 0);
    }
    let (tx, reading) = (world.start(conn), world.start(conn));
    for number in 0..3000 {
        world.call(conn, Op::Write, tx, format!("/many/3/of/{number}\0w").as_bytes()).unwrap();
    }
    world.call(conn, Op::Rm, 0, b"/many/1\0").unwrap();
    assert!(world.engine.output(deaf).len() > 200_000, "unsent output is in several pieces too");
    world.save_and_restore();
    assert_eq!(world.call(conn, Op::Read, reading, b"/many/1/of/them/71\0").unwrap(), [b'x'; 21]);
    assert_eq!(world.call(conn, Op::TransactionEnd, tx, b"T\0"), Ok(b"OK\0".to_vec()));
    assert_eq!(world.engine.store.mend_accounts(), None);
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn pieces_are_of_a_bounded_size_and_a_sink_that_fails_gets_no_more() {
    let mut world = World::new();
    let conn = world.socket();
    for number in 0..5000 {
        world.call(conn, Op::Write, 0, format!("/n/{number}\0{number:040}").as_bytes()).unwrap();
    }
    let (mut longest, mut pieces) = (0, 0);
    let image = |bytes: &[u8]| {
        longest = longest.max(bytes.len());
        pieces += 1;
        if pieces < 5 { Ok(()) } else { Err("full") }
    };
    assert_eq!(world.engine.save(image), Err("full"));
    assert_eq!(pieces, 5);
    assert!(longest < 70 << 10, "{longest}");
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn wide_lists_that_differ_little_share_memory_and_take_little() {
    let mut world = World::new();
    let conn = world.socket();
    for number in 0..3000 {
        world.call(conn, Op::Mkdir, 0, format!("/wide/{number}\0").as_bytes()).unwrap();
    }
    let plain = saved(&world.engine).len();
    for number in 0..20 {
        let tx = world.start(conn);
        world.call(conn, Op::Rm, tx, format!("/wide/{number}\0").as_bytes()).unwrap();
        world.call(conn, Op::Mkdir, tx, format!("/wide/new{number}\0").as_bytes()).unwrap();
        world.call(conn, Op::Rm, 0, format!("/wide/{}\0", 100 + number).as_bytes()).unwrap();
    }
    let image = saved(&world.engine);
    assert!(image.len() < plain + 10_000, "{} bytes where {plain} would do for the tree", image.len());
    world.save_and_restore();
    for tx in 1..=20 {
        let list = world.call(conn, Op::DirectoryPart, tx, b"/wide\x000\0").unwrap();
        assert!(list.len() > 1000);
        let gone = format!("/wide/{}\0", 118 + tx);
        assert!(world.call(conn, Op::Read, tx, gone.as_bytes()).is_ok(), "transaction {tx} sees what was");
    }
    world.engine.close(conn);
    assert_eq!(world.engine.store.snapshots.kept(), 0);
    assert_eq!(world.engine.store.mend_accounts(), None);
}

fn fault(image: &[u8]) -> ImageFault {
    Engine::restore(image).unwrap_err().fault
}

#[test]
fn what_is_no_image_is_told_apart() {
    let image = saved(&full().0.engine);
    assert_eq!(fault(b""), ImageFault::Short);
    assert_eq!(fault(b"something else"), ImageFault::NotAnImage);
    let mut newer = image.clone();
    newer[8] = 9;
    assert_eq!(fault(&newer), ImageFault::Newer { found: 9, known: 1 });
    let mut altered = image.clone();
    altered[100] ^= 1;
    assert_eq!(fault(&altered), ImageFault::Checksum);
    assert_eq!(fault(&image[..image.len() - 1]), ImageFault::Checksum);
    let mut longer = image.clone();
    longer.extend_from_slice(b"more");
    let longer = sealed(longer);
    let error = Engine::restore(&longer).unwrap_err();
    assert_eq!(error, ImageError { offset: image.len() - 4, fault: ImageFault::Long });
    assert_eq!(
        error.to_string(),
        format!("byte {} of the engine's image: it goes on where it should end", error.offset)
    );
    let mut section = image;
    section[10] = 2;
    let error = Engine::restore(&sealed(section)).unwrap_err();
    assert_eq!(error, ImageError { offset: 10, fault: ImageFault::Newer { found: 2, known: 1 } });
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn every_prefix_is_refused() {
    let image = saved(&full().0.engine);
    for len in 0..image.len() {
        assert!(Engine::restore(&image[..len]).is_err(), "{len} bytes");
        if len > 12 {
            assert!(Engine::restore(&sealed(image[..len].to_vec())).is_err(), "{len} bytes with a right checksum");
        }
    }
}

/// What is wrong is noticed, or it is an engine that can be saved again.
#[rstest]
#[case::zero(0)]
#[case::one(1)]
#[case::many(0x7f)]
#[case::more(0x80)]
#[case::all(0xff)]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn every_byte_may_be_another(#[case] byte: u8) {
    let image = saved(&full().0.engine);
    for at in 0..image.len() - 4 {
        let mut other = image.clone();
        other[at] = byte;
        if let Ok(engine) = Engine::restore(&sealed(other)) {
            saved(&engine);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn nothing_can_be_said_that_takes_much_memory() {
    // A count of thousands of millions in each place where a number may be.
    let image = saved(&full().0.engine);
    for at in 9..image.len() - 4 {
        let mut other = image[..at].to_vec();
        other.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        other.extend_from_slice(&image[at..]);
        let _refused = Engine::restore(&sealed(other)).is_err();
    }
}

/// Time that this thread has been served by a processor: other programs are not measured along.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// How long it takes: `cargo test --release -p xenstore-core --lib how_long -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement that asserts nothing, of use in a release build alone"]
fn how_long_a_large_store_takes() {
    let mut world = World::new();
    let conn = world.socket();
    for domid in 1..=1000u16 {
        let home = format!("/local/domain/{domid}");
        world.call(conn, Op::Mkdir, 0, format!("{home}\0").as_bytes()).unwrap();
        world.call(conn, Op::SetPerms, 0, format!("{home}\0n{domid}\0r0\0").as_bytes()).unwrap();
        for device in 0..26 {
            for node in 0..9 {
                let request = format!("{home}/device/vif/{device}/node-{node}\0value of node {node}");
                world.call(conn, Op::Write, 0, request.as_bytes()).unwrap();
            }
        }
        world.engine.introduce(DomId(domid));
        world.call(conn, Op::Watch, 0, format!("{home}/device\0token-{domid}\0").as_bytes()).unwrap();
        world.take(conn);
    }
    for _ in 0..20 {
        let tx = world.start(conn);
        world.call(conn, Op::Write, tx, b"/local/domain/7/x\0v").unwrap();
    }
    for _ in 0..5 {
        let (mut image, began) = (Vec::with_capacity(32 << 20), processor_time());
        let saved = world.engine.save(|bytes| {
            image.extend_from_slice(bytes);
            Ok::<_, ()>(())
        });
        let (saved, took) = (saved.is_ok(), processor_time() - began);
        let began = processor_time();
        let restored = Engine::restore(&image).unwrap();
        let (nodes, back) = (restored.store.nodes.len(), processor_time() - began);
        println!("{saved}: {nodes} nodes, {} bytes, saved in {took:?}, restored in {back:?}", image.len());
        assert!(saved && nodes > 260_000);
    }
}
