//! Domains that end: what others see meanwhile, and what is left.

use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use xenstore_wire::{Op, XsError};

use super::tests::{Got, World, event};
use super::*;
use crate::{DomainEvent, ending::PIECE};

/// A world with a socket.
fn world() -> (World, ConnId) {
    let mut world = World::new();
    let socket = world.socket();
    (world, socket)
}

fn write(world: &mut World, socket: ConnId, path: &str) {
    world.call(socket, Op::Write, 0, format!("{path}\0v").as_bytes()).unwrap();
}

fn give(world: &mut World, socket: ConnId, path: &str, entries: &str) {
    let payload = format!("{path}\0{}\0", entries.replace(' ', "\0"));
    world.call(socket, Op::SetPerms, 0, payload.as_bytes()).unwrap();
}

fn perms(world: &mut World, socket: ConnId, path: &str) -> String {
    let payload = world.call(socket, Op::GetPerms, 0, format!("{path}\0").as_bytes()).unwrap();
    String::from_utf8(payload).unwrap().trim_end_matches('\0').replace('\0', " ")
}

fn gone(world: &mut World, domids: impl IntoIterator<Item = u16>) {
    world.engine.domain_event(DomainEvent::Gone(domids.into_iter().map(DomId).collect()));
}

/// Does what the shell does about rings that are let go; returns whose they were.
fn let_go(world: &mut World) -> Vec<u16> {
    let mut released = Vec::new();
    while let Some(effect) = world.engine.next_effect() {
        if let Effect::Release { conn, domid } = effect {
            world.engine.close(conn);
            released.push(domid.0);
        }
    }
    released
}

#[test]
#[cfg_attr(miri, ignore = "thousands of requests take the interpreter hours")]
fn a_thousand_domains_go_in_pieces_of_bounded_work_while_others_are_served() {
    const DOMAINS: u16 = 1000;
    const NODES: usize = 60;
    const WATCHES: usize = 20;
    /// The root, the two special nodes, `/tool`, `/tool/xenstored`, `/local` and `/local/domain`.
    const NOT_THEIRS: usize = 7;
    let (mut world, socket) = world();
    for domid in 1..=DOMAINS {
        let guest = world.engine.introduce(DomId(domid));
        let home = format!("/local/domain/{domid}");
        write(&mut world, socket, &home);
        give(&mut world, socket, &home, &format!("n{domid}"));
        (1..NODES).for_each(|node| write(&mut world, socket, &format!("{home}/n{node}")));
        for watch in 0..WATCHES {
            world.call(guest, Op::Watch, 0, format!("n{watch}\0t\0").as_bytes()).unwrap();
        }
    }
    let watchers: Vec<_> = (0..5).map(|_| world.socket()).collect();
    for &watcher in &watchers {
        world.call(watcher, Op::Watch, 0, b"@releaseDomain\0t\0").unwrap();
        world.take(watcher);
    }
    let_go(&mut world);
    let left = |world: &World| (world.engine.store.nodes.len(), world.engine.watches.len());
    gone(&mut world, 1..=DOMAINS);
    let mut before = left(&world);
    let (mut pieces, mut rings) = (0, Vec::new());
    while world.engine.has_work() {
        world.engine.step(Time::default());
        let now = left(&world);
        let (nodes, watches) = (before.0 - now.0, before.1 - now.1);
        assert!(nodes <= PIECE / 4 + NODES, "{nodes} nodes in one turn");
        assert!(watches <= PIECE / 4 + WATCHES, "{watches} watches in one turn");
        assert_eq!(world.call(socket, Op::Read, 0, b"/tool\0"), Ok(Vec::new()), "others are served");
        let told = watchers.iter().filter(|&&watcher| !world.engine.output(watcher).is_empty()).count();
        assert!(told == 0 || now.0 == NOT_THEIRS, "told while {} nodes are there", now.0);
        rings.extend(let_go(&mut world));
        before = now;
        pieces += 1;
    }
    let work = usize::from(DOMAINS) * (NODES * 4 + WATCHES * 4 + 32);
    assert!((work / PIECE..2 * work / PIECE).contains(&pieces), "{pieces} turns");
    for watcher in watchers {
        assert_eq!(world.take(watcher), [event("@releaseDomain", "t")]);
    }
    assert_eq!(rings, (1..=DOMAINS).collect::<Vec<_>>());
    assert_eq!(world.call(socket, Op::Directory, 0, b"/local/domain\0"), Ok(Vec::new()));
    assert_eq!(world.engine.watches.len(), 5);
    assert_eq!(world.engine.store.mend_accounts(), None);
}

#[test]
fn the_nodes_of_all_that_go_together_are_gone_before_anybody_is_told() {
    let (mut world, socket) = world();
    for domid in 5..8 {
        world.engine.introduce(DomId(domid));
        write(&mut world, socket, &format!("/x/{domid}"));
        give(&mut world, socket, &format!("/x/{domid}"), &format!("n{domid}"));
    }
    let watcher = world.socket();
    for watch in [&b"/x\0x\0"[..], b"@releaseDomain\0any\0", b"@releaseDomain\0each\x001\0"] {
        world.call(watcher, Op::Watch, 0, watch).unwrap();
    }
    world.take(watcher);
    world.engine.piece = 1;
    gone(&mut world, [5, 6]);
    gone(&mut world, [7]);
    world.settle();
    let removed = [5, 6, 7].map(|domid| event(&format!("/x/{domid}"), "x"));
    let any = || event("@releaseDomain", "any");
    let each = |domid: u16| event(&format!("@releaseDomain/{domid}"), "each");
    let told = [any(), each(5), each(6), any(), each(7)];
    assert_eq!(world.take(watcher), removed.into_iter().chain(told).collect::<Vec<_>>());
}

#[test]
fn who_names_a_domain_that_is_ending_waits_and_nobody_else_does() {
    let (mut world, socket) = world();
    world.engine.introduce(DomId(5));
    write(&mut world, socket, "/x");
    give(&mut world, socket, "/x", "n0 r5");
    let guest = world.engine.introduce(DomId(6));
    write(&mut world, socket, "/local/domain/6/mine");
    give(&mut world, socket, "/local/domain/6/mine", "n6");
    let others: Vec<_> = (0..6).map(|_| world.socket()).collect();
    world.engine.piece = 1;
    gone(&mut world, [5]);
    let requests: [(Op, &[u8]); 6] = [
        (Op::IsDomainIntroduced, b"5\0"),
        (Op::Release, b"5\0"),
        (Op::SetTarget, b"6\x005\0"),
        (Op::GetFeature, b"5\0"),
        (Op::SetPerms, b"/x\0n0\0r5\0"),
        (Op::Introduce, b"5\x001\x001\0"),
    ];
    for (&other, (op, payload)) in others.iter().zip(requests) {
        world.send(other, op, 0, payload);
        world.send(other, Op::GetDomainPath, 0, b"1\0");
    }
    world.send(guest, Op::SetPerms, 0, b"mine\0n6\0b5\0");
    let mut turns = 0;
    while world.engine.has_endings() {
        let heard = others.iter().chain([&guest]).any(|&other| !world.take(other).is_empty());
        assert!(!heard, "after {turns} turns");
        assert_eq!(world.call(socket, Op::IsDomainIntroduced, 0, b"6\0"), Ok(b"T\0".to_vec()));
        world.engine.step(Time::default());
        turns += 1;
    }
    assert!(turns > 3, "{turns} turns");
    world.settle();
    let path = || Got::Reply(Op::GetDomainPath.number(), b"/local/domain/1\0".to_vec());
    let ok = |op: Op| Got::Reply(op.number(), b"OK\0".to_vec());
    let answers = [
        Got::Reply(Op::IsDomainIntroduced.number(), b"F\0".to_vec()),
        Got::Error("ENOENT".to_owned()),
        Got::Error("ENOENT".to_owned()),
        Got::Reply(Op::GetFeature.number(), b"15\0".to_vec()),
        ok(Op::SetPerms),
    ];
    for (&other, answer) in others.iter().zip(answers) {
        assert_eq!(world.take(other), [answer, path()]);
    }
    let introduce = |effect: &Effect| matches!(effect, Effect::Ask { question: Question::Introduce { .. }, .. });
    assert!(std::iter::from_fn(|| world.engine.next_effect()).any(|effect| introduce(&effect)));
    assert_eq!(world.take(guest), [], "it names one that is about to be introduced");
    world.engine.answer(others[5], Err(XsError::Io));
    world.settle();
    assert_eq!(world.take(others[5]), [Got::Error("EIO".to_owned()), path()]);
    assert_eq!(world.take(guest), [ok(Op::SetPerms)]);
    assert_eq!(perms(&mut world, socket, "/x"), "n0 r5", "for the next one with that id");
    assert_eq!(perms(&mut world, socket, "/local/domain/6/mine"), "n6 b5");
}

#[test]
fn requests_that_name_a_domain_come_after_its_introduction_that_was_asked_for_before() {
    let (mut world, socket) = world();
    let (first, second) = (world.socket(), world.socket());
    world.engine.introduce(DomId(3));
    world.send(first, Op::Introduce, 0, b"3\x001\x001\0");
    world.send(second, Op::Release, 0, b"3\0");
    let mut effects = std::iter::from_fn(|| world.engine.next_effect());
    let asked = effects.next();
    assert!(matches!(asked, Some(Effect::Ask { conn, question: Question::Introduce { .. } }) if conn == first));
    assert_eq!(effects.next(), None, "the release waits");
    world.engine.answer(first, Ok(b"OK\0".to_vec()));
    world.engine.introduce(DomId(3));
    assert!(world.engine.has_work());
    world.settle();
    assert_eq!(world.take(second), [Got::Reply(Op::Release.number(), b"OK\0".to_vec())]);
    assert_eq!(let_go(&mut world), [3]);
    assert_eq!(world.call(socket, Op::IsDomainIntroduced, 0, b"3\0"), Ok(b"F\0".to_vec()));
}

#[test]
fn an_introduction_that_fails_or_whose_caller_leaves_makes_nobody_wait_for_ever() {
    let (mut world, _) = world();
    for leaves in [false, true] {
        let (first, second) = (world.socket(), world.socket());
        world.send(first, Op::Introduce, 0, b"3\x001\x001\0");
        world.send(second, Op::IsDomainIntroduced, 0, b"3\0");
        if leaves {
            world.engine.close(first);
        } else {
            world.engine.answer(first, Err(XsError::NoEnt));
        }
        world.settle();
        assert_eq!(world.take(second), [Got::Reply(Op::IsDomainIntroduced.number(), b"F\0".to_vec())]);
    }
}

#[test]
fn a_connection_keeps_its_number_until_its_ring_is_let_go() {
    let (mut world, _) = world();
    let guest = world.engine.introduce(DomId(5));
    gone(&mut world, [5]);
    world.settle();
    assert_ne!(world.socket(), guest);
    world.send(guest, Op::Write, 0, b"/x\0from the ring of the dead");
    assert_eq!(world.engine.store.find(b"/x"), None);
    assert!(!world.engine.reconnect(guest), "there is nobody to connect");
    assert_eq!(let_go(&mut world), [5]);
    assert_eq!(world.socket(), guest);
}

#[test]
fn a_request_that_waits_goes_with_its_connection() {
    let (mut world, socket) = world();
    world.engine.introduce(DomId(5));
    world.engine.piece = 1;
    gone(&mut world, [5]);
    let other = world.socket();
    world.send(other, Op::IsDomainIntroduced, 0, b"5\0");
    world.engine.close(other);
    assert_eq!(world.socket(), other, "the number is given again");
    world.settle();
    assert_eq!(world.take(other), []);
    assert_eq!(world.call(socket, Op::IsDomainIntroduced, 0, b"5\0"), Ok(b"F\0".to_vec()));
}

#[test]
fn a_domain_introduced_by_the_shell_finds_nothing_of_the_one_before() {
    let (mut world, socket) = world();
    let old = world.engine.introduce(DomId(5));
    write(&mut world, socket, "/x");
    give(&mut world, socket, "/x", "n0 r5");
    gone(&mut world, [5]);
    let new = world.engine.introduce(DomId(5));
    assert_ne!(old, new);
    assert_eq!(world.call(new, Op::Read, 0, b"/x\0"), Err("EACCES".to_owned()));
    assert_eq!(let_go(&mut world), [5]);
    assert_eq!(world.call(socket, Op::IsDomainIntroduced, 0, b"5\0"), Ok(b"T\0".to_vec()));
}

/// What others do while domains end.
#[derive(Clone, Debug)]
enum Step {
    Piece(usize),
    Write(usize),
    Remove(usize),
    Give(usize, usize),
    Start,
    /// As [`Step::Write`] and [`Step::Give`], in a transaction.
    WriteIn(usize, usize),
    GiveIn(usize, usize, usize),
    Commit(usize),
}

const PATHS: [&str; 12] =
    ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/e/f/g", "/e/h", "/i", "/i/j", "/k", "@introduceDomain"];

/// 5 and 6 are about to end, 7 stays.
const ENTRIES: [&str; 8] = ["n0", "n0 r5", "n0 b6 r7", "n5", "b6 r7", "n7 w5 w6", "n7", "n0 r7"];

fn step() -> impl Strategy<Value = Step> {
    let (path, entries, tx) = (0..PATHS.len(), 0..ENTRIES.len(), 0..3usize);
    proptest::prop_oneof![
        3 => (0usize..6).prop_map(Step::Piece),
        2 => path.clone().prop_map(Step::Write),
        1 => path.clone().prop_map(Step::Remove),
        2 => (path.clone(), entries.clone()).prop_map(|(path, entries)| Step::Give(path, entries)),
        1 => proptest::strategy::Just(Step::Start),
        2 => (tx.clone(), path.clone()).prop_map(|(tx, path)| Step::WriteIn(tx, path)),
        2 => (tx.clone(), path, entries).prop_map(|(tx, path, entries)| Step::GiveIn(tx, path, entries)),
        2 => tx.prop_map(Step::Commit),
    ]
}

/// Carries a step out, as far as it can be, without naming a domain that ends while `ending`.
fn take(world: &mut World, socket: ConnId, open: &mut Vec<u32>, step: &Step, ending: bool) {
    let names_the_dead = |entries: &str| entries.contains('5') || entries.contains('6');
    let (op, tx, payload) = match step {
        Step::Piece(piece) => {
            world.engine.piece = *piece;
            world.engine.step(Time::default());
            return;
        }
        Step::Start => {
            open.push(world.start(socket));
            return;
        }
        Step::Write(path) => (Op::Write, 0, format!("{}\0v", PATHS[*path])),
        Step::Remove(path) => (Op::Rm, 0, format!("{}\0", PATHS[*path])),
        Step::WriteIn(tx, path) => (Op::Write, open.get(*tx).copied().unwrap_or(0), format!("{}\0v", PATHS[*path])),
        Step::Give(_, entries) | Step::GiveIn(_, _, entries) if ending && names_the_dead(ENTRIES[*entries]) => return,
        Step::Give(path, entries) => {
            (Op::SetPerms, 0, format!("{}\0{}\0", PATHS[*path], ENTRIES[*entries].replace(' ', "\0")))
        }
        Step::GiveIn(tx, path, entries) => {
            let payload = format!("{}\0{}\0", PATHS[*path], ENTRIES[*entries].replace(' ', "\0"));
            (Op::SetPerms, open.get(*tx).copied().unwrap_or(0), payload)
        }
        Step::Commit(tx) => {
            if *tx < open.len() {
                let tx = open.remove(*tx);
                let _ = world.call(socket, Op::TransactionEnd, tx, b"T\0");
            }
            return;
        }
    };
    let _ = world.call(socket, op, tx, payload.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

    #[test]
    fn nothing_of_the_dead_is_left_whatever_others_do_meanwhile(
        before in proptest::collection::vec(step(), 0..40),
        meanwhile in proptest::collection::vec(step(), 0..40),
        both_at_once in any::<bool>(),
    ) {
        let (mut world, socket) = world();
        (5..8).for_each(|domid| _ = world.engine.introduce(DomId(domid)));
        let mut open = Vec::new();
        before.iter().for_each(|step| take(&mut world, socket, &mut open, step, false));
        if both_at_once {
            gone(&mut world, [5, 6]);
        } else {
            gone(&mut world, [5]);
            gone(&mut world, [6]);
        }
        meanwhile.iter().for_each(|step| take(&mut world, socket, &mut open, step, true));
        world.engine.piece = 3;
        world.settle();
        // What was begun before or meanwhile may still be committed.
        for tx in open {
            let _ = world.call(socket, Op::TransactionEnd, tx, b"T\0");
        }
        let store = &world.engine.store;
        let mut nodes = vec![(b"@introduceDomain".to_vec(), store.find(b"@introduceDomain").unwrap())];
        store.now().walk(store.root(), b"/", |path, id| nodes.push((path.to_vec(), id)));
        for (path, id) in nodes {
            let permissions = &store.nodes.get(id).content.permissions;
            let named: Vec<u16> = permissions.iter().map(|entry| entry.domid.0).collect();
            prop_assert!(!named.contains(&5) && !named.contains(&6), "{} {named:?}", String::from_utf8_lossy(&path));
        }
        prop_assert_eq!(world.engine.store.mend_accounts(), None);
        prop_assert_eq!(let_go(&mut world), vec![5, 6]);
    }

    #[test]
    fn a_walk_in_pieces_visits_what_a_whole_one_does(
        paths in proptest::collection::vec(proptest::collection::vec(0u8..60, 1..4), 0..if cfg!(miri) { 20 } else { 80 }),
        cuts in proptest::collection::vec(1usize..9, 1..20),
    ) {
        let (mut world, socket) = world();
        for path in &paths {
            let path: String = path.iter().map(|name| format!("/{name}")).collect();
            write(&mut world, socket, &path);
        }
        let store = &world.engine.store;
        let (mut whole, mut pieces, mut cuts) = (Vec::new(), Vec::new(), cuts.iter().cycle());
        store.now().walk(store.root(), b"/", |path, _| whole.push(path.to_vec()));
        let mut last = b"/".to_vec();
        loop {
            let (count, before) = (*cuts.next().unwrap(), pieces.len());
            store.now().walk_on(&last, |path, _| {
                pieces.push(path.to_vec());
                if pieces.len() == before + count { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
            });
            if pieces.len() == before {
                break;
            }
            last.clone_from(&pieces[pieces.len() - 1]);
        }
        prop_assert_eq!(&whole[1..], &pieces[..]);
    }
}
