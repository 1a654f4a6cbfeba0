//! Calls in any order, on an engine and on one that an image of it gave at some moment: they stay the same.

use std::{cell::RefCell, sync::Mutex};

use proptest::{
    prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof},
    sample::select,
    test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use xenstore_wire::Op;

use super::*;
use crate::{BufferCap, DomainEvent, Existence, Limit};

/// A call of the engine. Connections are named by their place among those that are open.
#[derive(Clone, Debug)]
enum Call {
    Open,
    Close(usize),
    /// So many bytes of the stream that a connection sends, which are whole requests after each other.
    Receive(usize, usize),
    /// A request, in the transaction of that place among those that are open.
    Request(usize, Op, Option<usize>, &'static str, Haste),
    Step,
    /// Time passes.
    Later(u16),
    Sent(usize, usize),
    Answer(usize, Result<&'static str, XsError>),
    AnswerExistence(usize, bool),
    Introduce(u16),
    Reconnect(usize),
    RingFailed(usize),
    Event(DomainEvent),
    Piece(usize),
    Limit(Quota, u32),
    Refuse(u64),
    Hold(bool),
    Image,
}

/// Bytes that may be kept for transactions of guests: few, so that some must begin again.
const EARLIER: usize = 1500;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    /// It will be sent.
    None,
    /// It is sent.
    Sent,
    /// It is sent, and everybody takes what waits for them.
    Taken,
}

fn call() -> BoxedStrategy<Call> {
    let conn = || 0usize..6;
    let path = "/|/a|/a/b|/a/b/c|/d|x|x/y|/local/domain/1|/local/domain/1/x|@releaseDomain";
    let paths = || select(path.split('|').collect::<Vec<_>>());
    let with = |op: Op, rest: &'static [&'static str]| {
        (paths(), select(rest)).prop_map(move |(path, rest)| (op, leak(format!("{path}\0{rest}"))))
    };
    let request = prop_oneof![
        6 => with(Op::Write, &["", "v", "a value that takes memory of its own"]),
        2 => with(Op::Rm, &[""]),
        2 => with(Op::Mkdir, &[""]),
        2 => with(Op::Read, &[""]),
        1 => with(Op::Directory, &[""]),
        2 => with(Op::SetPerms, &["n0\0", "b1\0r2\0", "n2\0w1\0", "n3\0r9\0"]),
        3 => with(Op::Watch, &["t\0", "u\0", "t\x001\0"]),
        1 => with(Op::Unwatch, &["t\0"]),
        2 => Just((Op::TransactionStart, "\0")),
        3 => select(&["T\0", "T\0", "F\0"][..]).prop_map(|end| (Op::TransactionEnd, end)),
        1 => select(&["1\x001\x001\0", "2\x001\x001\0", "4\x001\x001\0"][..]).prop_map(|payload| (Op::Introduce, payload)),
        1 => select(&["1\0", "2\0"][..]).prop_map(|domid| (Op::Release, domid)),
        1 => select(&["1\0", "7\0"][..]).prop_map(|domid| (Op::GetFeature, domid)),
        1 => select(&["turns\0", "memreport\0f\0", "log\0on\0", "logfile\0f\0"][..]).prop_map(|words| (Op::Control, words)),
        1 => Just((Op::ResetWatches, "\0")),
    ];
    let haste = prop_oneof![2 => Just(Haste::None), 4 => Just(Haste::Sent), 6 => Just(Haste::Taken)];
    let domids = || proptest::collection::vec((1u16..5).prop_map(DomId), 1..3);
    prop_oneof![
        2 => Just(Call::Open),
        1 => conn().prop_map(Call::Close),
        100 => (conn(), proptest::option::of(0usize..4), request, haste)
            .prop_map(|(conn, tx, (op, payload), haste)| Call::Request(conn, op, tx, payload, haste)),
        16 => (conn(), select(vec![3usize, 16, 40, 400, 5000])).prop_map(|(conn, count)| Call::Receive(conn, count)),
        12 => Just(Call::Step),
        2 => (0u16..30_000).prop_map(Call::Later),
        12 => (conn(), select(vec![0usize, 1, 15, 60, 5000])).prop_map(|(conn, count)| Call::Sent(conn, count)),
        4 => (conn(), select(vec![Ok("OK\0"), Err(XsError::Inval)])).prop_map(|(conn, with)| Call::Answer(conn, with)),
        2 => (conn(), any::<bool>()).prop_map(|(conn, all)| Call::AnswerExistence(conn, all)),
        3 => (1u16..5).prop_map(Call::Introduce),
        1 => conn().prop_map(Call::Reconnect),
        1 => (conn(), any::<u8>()).prop_map(|(conn, rare)| if rare < 40 { Call::RingFailed(conn) } else { Call::Step }),
        1 => prop_oneof![
            domids().prop_map(DomainEvent::Gone),
            domids().prop_map(DomainEvent::ShutDown),
            (1u16..5).prop_map(|domid| DomainEvent::Appeared(DomId(domid))),
        ].prop_map(Call::Event),
        1 => select(vec![1usize, 8, 64, PIECE]).prop_map(Call::Piece),
        1 => (select(vec![Quota::Outstanding, Quota::Memory, Quota::Transactions]), select(vec![2u32, 300, 0]))
            .prop_map(|(quota, value)| Call::Limit(quota, value)),
        1 => (1u64..4).prop_map(Call::Refuse),
        1 => any::<bool>().prop_map(Call::Hold),
        4 => Just(Call::Image),
    ]
    .boxed()
}

/// Payloads are few, and each is made once.
fn leak(payload: String) -> &'static str {
    static MADE: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().unwrap();
    if let Some(payload) = made.get(payload.as_str()) {
        return payload;
    }
    let payload = &*Box::leak(payload.into_boxed_str());
    made.insert(payload);
    payload
}

fn image(engine: &Engine) -> Vec<u8> {
    let mut image = Vec::new();
    let saved = engine.save(|bytes| {
        image.extend_from_slice(bytes);
        Ok::<_, ()>(())
    });
    saved.unwrap();
    image
}

/// The engine that was never restored, and the one that was; and what connections are about to send.
struct Pair {
    engines: [Engine; 2],
    streams: BTreeMap<ConnId, Vec<u8>>,
    now: Duration,
    images: u32,
}

impl Pair {
    fn new() -> Self {
        let config = || Config {
            existence: Existence::Asked,
            buffers: BufferCap { bytes: 20_000, source: "the test".to_owned() },
            event_timeout: Some(Duration::from_secs(20)),
            ..Config::default()
        };
        Self {
            engines: [config(), config()].map(|config| Engine { earlier_most: EARLIER, ..Engine::new(config) }),
            streams: BTreeMap::new(),
            now: Duration::ZERO,
            images: 0,
        }
    }

    /// Makes a call on both; what it returns is the same.
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        mut call: impl FnMut(&mut Engine) -> T,
    ) -> Result<T, TestCaseError> {
        let [one, other] = self.engines.each_mut().map(&mut call);
        prop_assert_eq!(&one, &other);
        Ok(one)
    }

    fn conn(&self, place: usize) -> Option<ConnId> {
        let conns: Vec<ConnId> = self.engines[0].connections().map(|(conn, _)| conn).collect();
        conns.get(place % conns.len().max(1)).copied()
    }

    fn play(&mut self, call: &Call) -> Result<(), TestCaseError> {
        self.now += Duration::from_millis(1);
        let now = Time(self.now);
        match *call {
            Call::Open => drop(self.both(Engine::open_socket)?),
            Call::Step => self.both(|engine| engine.step(now))?,
            Call::Later(milliseconds) => self.now += Duration::from_millis(milliseconds.into()),
            Call::Introduce(domid) => drop(self.both(|engine| engine.introduce(DomId(domid)))?),
            Call::Event(ref event) => self.both(|engine| engine.domain_event(event.clone()))?,
            Call::Piece(piece) => self.both(|engine| engine.piece = piece)?,
            Call::Limit(quota, value) => self.both(|engine| engine.domains.limits.set(Limit::Hard(quota), value))?,
            Call::Refuse(more) => self.both(|engine| engine.refuse(engine.executed() + more))?,
            Call::Hold(on) => self.both(|engine| engine.hold_transactions(on))?,
            Call::Image => {
                let before = image(&self.engines[0]);
                let restored = Engine::restore(&before).map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert!(image(&restored) == before, "what is restored has the same image");
                self.engines[1] = Engine { earlier_most: EARLIER, ..restored };
                self.images += 1;
            }
            Call::Close(at)
            | Call::Receive(at, _)
            | Call::Request(at, ..)
            | Call::Sent(at, _)
            | Call::Answer(at, _)
            | Call::AnswerExistence(at, _)
            | Call::Reconnect(at)
            | Call::RingFailed(at) => {
                if let Some(conn) = self.conn(at) {
                    self.play_on(conn, call)?;
                }
            }
        }
        self.compare()
    }

    fn play_on(&mut self, conn: ConnId, call: &Call) -> Result<(), TestCaseError> {
        let now = Time(self.now);
        match *call {
            Call::Close(_) => {
                self.streams.remove(&conn);
                self.both(|engine| engine.close(conn))?;
            }
            Call::Request(_, op, tx, payload, haste) => {
                let open = self.engines[0].connections.get(conn.index()).map(|connection| &connection.transactions);
                let open: Vec<u32> = open.into_iter().flat_map(BTreeMap::keys).map(|tx| tx.0).collect();
                let tx = tx.and_then(|tx| open.get(tx % open.len().max(1)).copied()).unwrap_or(0);
                put_message(self.streams.entry(conn).or_default(), op.number(), 1, tx, payload.as_bytes());
                if haste != Haste::None {
                    self.play_on(conn, &Call::Receive(0, usize::MAX))?;
                }
                if haste == Haste::Taken {
                    self.both(|engine| engine.step(now))?;
                    for (conn, _) in self.both(|engine| engine.connections().collect::<Vec<_>>())? {
                        self.play_on(conn, &Call::Sent(0, usize::MAX))?;
                    }
                }
            }
            Call::Receive(_, count) if self.both(|engine| engine.wants_input(conn))? => {
                let stream = self.streams.entry(conn).or_default();
                let bytes: Vec<u8> = stream.drain(..count.min(stream.len())).collect();
                self.both(|engine| engine.receive(conn, &bytes, now))?;
            }
            Call::Sent(_, count) => {
                let count = count.min(self.engines[0].output(conn).len());
                self.both(|engine| engine.sent(conn, count))?;
            }
            Call::Answer(_, with) => {
                self.both(|engine| engine.answer(conn, with.map(|text| text.as_bytes().to_vec())))?;
            }
            Call::AnswerExistence(_, all) => {
                let existing: Vec<DomId> = (0..10).filter(|_| all).map(DomId).collect();
                self.both(|engine| engine.answer_existence(conn, &existing))?;
            }
            Call::Reconnect(_) => drop(self.both(|engine| engine.reconnect(conn))?),
            Call::RingFailed(_) => self.both(|engine| engine.ring_failed(conn))?,
            _ => {}
        }
        Ok(())
    }

    /// Whatever a shell can see is the same, and so is what it is told to do.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        self.both(|engine| std::iter::from_fn(|| engine.next_effect()).collect::<Vec<_>>())?;
        self.both(|engine| (engine.has_work(), engine.next_deadline(), engine.executed(), engine.connection_count()))?;
        let conns: Vec<_> = self.both(|engine| engine.connections().collect::<Vec<_>>())?;
        for (conn, _) in conns {
            self.both(|engine| engine.output(conn).to_vec())?;
            self.both(|engine| (engine.wants_input(conn), engine.is_settled(conn), engine.is_busy(conn)))?;
            self.both(|engine| (engine.life(conn), engine.holds_state(conn), engine.domid(conn)))?;
        }
        self.both(|engine| (0..6).map(|domid| engine.quota_usage(DomId(domid))).collect::<Vec<_>>())?;
        Ok(())
    }

    /// The images are the same, and so is what is left once all end.
    fn end(&mut self) -> Result<(), TestCaseError> {
        let [one, other] = self.engines.each_ref().map(image);
        prop_assert!(
            one == other,
            "the images differ in {:?}",
            one.iter().zip(&other).position(|(one, other)| one != other)
        );
        self.both(|engine| engine.store.mend_accounts())?;
        self.both(Engine::end_at_once)?;
        self.both(|engine| {
            let all: Vec<ConnId> = engine.connections().map(|(conn, _)| conn).collect();
            all.into_iter().for_each(|conn| engine.close(conn));
            (engine.store.snapshots.kept(), engine.store.mend_accounts(), engine.pool.figures().0, engine.alarms.len())
        })?;
        let [one, _] = &mut self.engines;
        prop_assert_eq!((one.store.snapshots.kept(), one.store.mend_accounts(), one.pool.figures().0), (0, None, 0));
        Ok(())
    }
}

/// What an image holds that is not in every one.
fn seen(engine: &Engine) -> impl Iterator<Item = &'static str> {
    let connections = || engine.connections.iter().map(|(_, connection)| connection);
    let transactions = || connections().flat_map(|connection| connection.transactions.values());
    let question = |wanted: fn(&Question) -> bool| {
        connections()
            .any(|connection| connection.asked.as_ref().and_then(|asked| asked.question.as_ref()).is_some_and(wanted))
    };
    [
        ("input", connections().any(|connection| !connection.input.is_empty())),
        ("output", connections().any(|connection| !connection.output.unsent().is_empty())),
        ("equal events fall together", connections().any(|connection| connection.output.collapses())),
        ("events that expire", connections().any(|connection| connection.output.next_expiry().is_some())),
        ("outstanding", connections().any(|connection| !connection.outstanding.is_empty())),
        ("ready", !engine.ready.is_empty()),
        ("slowed", connections().any(|connection| connection.penalty > Duration::ZERO)),
        ("given up", connections().any(|connection| connection.closing.is_some())),
        ("introduction", question(|question| matches!(question, Question::Introduce { .. }))),
        ("existence", question(|question| matches!(question, Question::Exist(_)))),
        ("waiting", !engine.waiting.is_empty()),
        ("endings", engine.has_endings()),
        ("earlier states", engine.store.snapshots.kept() > 0),
        ("held transactions", engine.holding && !engine.waiting.is_empty()),
        ("several transactions", transactions().count() > 1),
        ("changes in a transaction", transactions().any(|transaction| !transaction.is_read_only())),
        ("begun again", transactions().any(|transaction| transaction.outdated && transaction.is_read_only())),
        ("outdated", transactions().any(|transaction| transaction.outdated && !transaction.is_read_only())),
        ("free numbers of nodes", engine.store.nodes.has_free()),
        ("free numbers of connections", engine.connections.entries().iter().any(Option::is_none)),
        ("watches", engine.watches.len() > 2),
        ("writers", !engine.writers.is_empty()),
        ("refused", !engine.refused.is_empty()),
    ]
    .into_iter()
    .filter_map(|(what, seen)| seen.then_some(what))
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn an_engine_that_was_restored_goes_on_as_the_one_that_was_saved() {
    // For a longer run: XS_SEED=7 XS_ROUNDS=20000.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let config = ProptestConfig {
        cases: number("XS_ROUNDS").unwrap_or(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut seed = [0x5a; 16];
    seed[..4].copy_from_slice(&number("XS_SEED").unwrap_or(1).to_le_bytes());
    let images = RefCell::new(BTreeMap::new());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &seed));
    let result = runner.run(&proptest::collection::vec(call(), 1..400), |calls| {
        let mut pair = Pair::new();
        pair.play(&Call::Open)?;
        pair.play(&Call::Introduce(1))?;
        pair.play(&Call::Introduce(2))?;
        // Everybody may do everything, where nobody forbids it.
        pair.play(&Call::Request(0, Op::SetPerms, None, "/\0b0\0", Haste::Taken))?;
        for call in &calls {
            pair.play(call)?;
            if matches!(call, Call::Image) {
                seen(&pair.engines[0]).for_each(|what| *images.borrow_mut().entry(what).or_insert(0) += 1);
            }
        }
        pair.end()
    });
    result.unwrap_or_else(|wrong| panic!("{wrong}"));
    let images: BTreeMap<&str, u32> = images.into_inner();
    assert!(images.len() == 23 && images.values().all(|&count| count > 3), "images hardly held some: {images:?}");
}
