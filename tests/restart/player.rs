//! A guest or a socket client that knows what the store must answer, whatever happens to the daemon meanwhile.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use xen_sim::GuestClient;
use xenstore_wire::Op;
use xenstored_tests::wait::{self, PATIENCE};
use xenstored_tests::{Client, ClientError};

/// Nodes that the numbered writes of a player go to in turn.
const LOG: u64 = 200;
/// Writes that a player may be ahead of its watcher: fewer than [`LOG`], so that no two events that wait are equal, and
/// none can fall together with another.
const AHEAD: u64 = 150;
/// Between two attempts to connect again.
const BETWEEN: Duration = Duration::from_millis(2);
/// Nodes that all players count up.
pub(crate) const SHARED: usize = 10;

/// What players tell each other and whoever kills.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Requests answered to anybody.
    pub(crate) answered: AtomicU64,
    /// Connections that were lost and made anew.
    pub(crate) lost: AtomicU64,
    /// Whether players are to come to an end.
    pub(crate) over: AtomicBool,
    /// Of each player: numbered writes that were answered, and those whose event its watcher has.
    streams: Vec<(AtomicU64, AtomicU64)>,
}

impl Progress {
    pub(crate) fn of(players: usize) -> Self {
        Self { streams: (0..players).map(|_| Default::default()).collect(), ..Self::default() }
    }
}

/// Numbers without a pattern that matters (xorshift).
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Numbers that begin anywhere; where is printed, so that they can be had again.
    #[expect(clippy::print_stdout, reason = "a failure is followed up with it")]
    pub(crate) fn thrown() -> Self {
        let seed = RandomState::new().hash_one(0) | 1;
        println!("randomness starts at {seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// How a player speaks to the daemon.
#[derive(Debug)]
pub(crate) enum Line {
    /// Through a ring, which is never lost.
    Ring(GuestClient),
    /// Through a socket.
    Socket { client: Client, path: PathBuf, may_be_lost: bool },
}

/// The connection closed before all was answered.
struct Lost;

type Answer = Result<Vec<u8>, String>;
type Request = (Op, u32, Vec<u8>);

impl Line {
    /// Sends requests, and then takes the reply to each.
    fn exchange(&mut self, requests: &[Request], progress: &Progress) -> Result<Vec<Answer>, Lost> {
        let mut sent = Vec::new();
        for (op, tx, payload) in requests {
            sent.push(match self {
                Self::Ring(guest) => guest.send(*op, *tx, payload).expect("the daemon takes a request"),
                Self::Socket { client, .. } => client.send(op.number(), *tx, payload).map_err(lost)?,
            });
        }
        let mut answers = Vec::new();
        for ((op, tx, _), req_id) in requests.iter().zip(sent) {
            let (header, payload) = match self {
                Self::Ring(guest) => guest.reply().map(|message| (message.header, message.payload)).expect("a reply"),
                Self::Socket { client, .. } => {
                    client.reply().map(|reply| (reply.header, reply.payload)).map_err(lost)?
                }
            };
            progress.answered.fetch_add(1, Ordering::Relaxed);
            assert_eq!((header.req_id, header.tx_id), (req_id, *tx), "each request is answered once, in order");
            let error = header.op == Op::Error.number();
            assert!(error || header.op == op.number(), "{header:?} answers {op:?}");
            let name = || String::from_utf8_lossy(&payload).trim_end_matches('\0').to_owned();
            answers.push(if error { Err(name()) } else { Ok(payload) });
        }
        Ok(answers)
    }

    /// The path of an event that came, if one did.
    fn event(&mut self) -> Option<String> {
        match self {
            Self::Ring(guest) => guest.event(Duration::ZERO).expect("nothing but events").map(|(path, _)| path),
            Self::Socket { client, .. } => {
                client.set_patience(Duration::ZERO);
                let event = client.event().ok();
                client.set_patience(PATIENCE);
                event.map(|event| event.path)
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn lost(error: ClientError) -> Lost {
    assert_eq!(error, ClientError::Closed, "a daemon is there in time");
    Lost
}

/// A change that happens as a whole or not at all: nodes and their new values.
type Change = Vec<(String, Option<String>)>;

/// One player: its own nodes, and what it has seen of another's.
#[derive(Debug)]
pub(crate) struct Player {
    line: Line,
    number: usize,
    home: String,
    dice: Dice,
    /// Values of the nodes below its home, as answered.
    nodes: BTreeMap<String, Option<String>>,
    /// Changes that were sent and not answered.
    doubt: Vec<Change>,
    step: u64,
    written: u64,
    watched: (usize, String),
    seen: u64,
    /// Events may have been missed since the last one.
    gap: bool,
    /// Initial events of watches that are still to come.
    registered: u32,
    /// Commits of both outcomes.
    pub(crate) commits: (u64, u64),
}

impl Player {
    /// A player of this number, which watches another of that home.
    pub(crate) fn new(line: Line, number: usize, home: String, watched: (usize, String)) -> Self {
        Self {
            line,
            number,
            home,
            dice: Dice(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) << 20),
            nodes: BTreeMap::new(),
            doubt: Vec::new(),
            step: 0,
            written: 0,
            watched,
            seen: 0,
            gap: false,
            registered: 0,
            commits: (0, 0),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.home)
    }

    fn write(&mut self, tx: u32, name: &str, value: &str) -> Request {
        (Op::Write, tx, format!("{}\0{value}", self.path(name)).into())
    }

    fn read(&self, tx: u32, name: &str) -> Request {
        (Op::Read, tx, format!("{}\0", self.path(name)).into())
    }

    /// Makes the nodes and the watch. No daemon dies meanwhile.
    pub(crate) fn begin(&mut self, progress: &Progress) {
        for name in ["a", "b", "c", "counted", "d"] {
            self.change(progress, name, "0").ok().expect("no daemon dies yet");
        }
        self.watch(progress).ok().expect("no daemon dies yet");
    }

    /// Watches, and asks for one thing more: after that, the connection is kept.
    fn watch(&mut self, progress: &Progress) -> Result<(), Lost> {
        let watch = (Op::Watch, 0, format!("{}/log\0token\0", self.watched.1).into());
        self.registered = 1;
        let answers = self.line.exchange(&[watch], progress)?;
        assert_eq!(answers, [Ok(b"OK\0".to_vec())]);
        self.line.exchange(&[self.read(0, "a")], progress)?;
        Ok(())
    }

    /// Writes one node.
    fn change(&mut self, progress: &Progress, name: &str, value: &str) -> Result<(), Lost> {
        let request = self.write(0, name, value);
        self.doubt = vec![vec![(name.into(), Some(value.into()))]];
        let answers = self.line.exchange(&[request], progress)?;
        assert_eq!(answers, [Ok(b"OK\0".to_vec())]);
        self.settle();
        Ok(())
    }

    /// All that was in doubt has been done.
    fn settle(&mut self) {
        self.nodes.extend(self.doubt.drain(..).flatten());
    }

    /// Plays until it is over, and shows at the end that all is as it was answered.
    pub(crate) fn play(&mut self, progress: &Progress) {
        while !progress.over.load(Ordering::Relaxed) {
            self.step += 1;
            if self.act(progress).is_err() {
                self.come_again(progress);
            }
            self.take_events(progress);
        }
    }

    /// After nobody writes any more: the state and the events of this player are complete.
    pub(crate) fn end(&mut self, progress: &Progress) {
        let nodes = self.nodes.clone();
        for (name, value) in nodes {
            let answers = self.line.exchange(&[self.read(0, &name)], progress).ok().expect("no daemon dies any more");
            assert_eq!(text(&answers[0]), value, "{} of {}", name, self.home);
        }
        self.take_events(progress);
        let written = progress.streams[self.watched.0].0.load(Ordering::Relaxed);
        assert!(self.seen == written || self.gap && self.seen < written, "{} of {written} events", self.seen);
        assert_eq!(self.registered, 0, "the watch has said that it is there");
    }

    /// How often this player has counted.
    pub(crate) fn counted(&self) -> u64 {
        self.nodes["counted"].as_ref().and_then(|text| text.parse().ok()).expect("a number")
    }

    fn act(&mut self, progress: &Progress) -> Result<(), Lost> {
        match self.dice.below(12) {
            0..6 => self.write_next(progress),
            6..8 => self.transaction(progress, "T"),
            8 => self.transaction(progress, "F"),
            9 => self.conflict(progress),
            10 => self.count(progress),
            _ => self.make_and_remove(progress),
        }
    }

    /// The next numbered write, sent together with a reading of it and a second write.
    fn write_next(&mut self, progress: &Progress) -> Result<(), Lost> {
        let next = self.written + 1;
        if next > progress.streams[self.number].1.load(Ordering::Relaxed) + AHEAD {
            return Ok(());
        }
        let name = format!("log/{}", next % LOG);
        let value = format!("{next} {}", "x".repeat(usize::try_from(next * 37 % 1500).expect("small")));
        let step = self.step.to_string();
        let requests = [self.write(0, &name, &value), self.read(0, &name), self.write(0, "d", &step)];
        self.doubt = vec![vec![(name, Some(value.clone()))], vec![("d".into(), Some(step))]];
        let answers = self.line.exchange(&requests, progress)?;
        assert_eq!(answers, [Ok(b"OK\0".to_vec()), Ok(value.into()), Ok(b"OK\0".to_vec())]);
        self.settle();
        self.wrote(progress);
        Ok(())
    }

    fn wrote(&mut self, progress: &Progress) {
        self.written += 1;
        progress.streams[self.number].0.store(self.written, Ordering::Relaxed);
    }

    fn start(&mut self, progress: &Progress) -> Result<u32, Lost> {
        let answers = self.line.exchange(&[(Op::TransactionStart, 0, b"\0".to_vec())], progress)?;
        Ok(text(&answers[0]).and_then(|id| id.trim_end_matches('\0').parse().ok()).expect("the id of a transaction"))
    }

    fn finish(&mut self, progress: &Progress, tx: u32, how: &str) -> Result<Answer, Lost> {
        let end = (Op::TransactionEnd, tx, format!("{how}\0").into());
        Ok(self.line.exchange(&[end], progress)?.remove(0))
    }

    /// A transaction that nobody disturbs.
    fn transaction(&mut self, progress: &Progress, how: &str) -> Result<(), Lost> {
        let tx = self.start(progress)?;
        let value = self.step.to_string();
        let requests =
            [self.write(tx, "a", &value), self.write(tx, "b", &value), self.read(tx, "a"), self.read(0, "a")];
        let answers = self.line.exchange(&requests, progress)?;
        assert_eq!((text(&answers[2]), text(&answers[3])), (Some(value.clone()), self.nodes["a"].clone()));
        if how == "T" {
            self.doubt = vec![vec![("a".into(), Some(value.clone())), ("b".into(), Some(value))]];
        }
        assert_eq!(self.finish(progress, tx, how)?, Ok(b"OK\0".to_vec()), "nobody else writes there");
        self.settle();
        Ok(())
    }

    /// A transaction that this player disturbs itself.
    fn conflict(&mut self, progress: &Progress) -> Result<(), Lost> {
        let tx = self.start(progress)?;
        let value = self.step.to_string();
        let inside = [self.read(tx, "c"), self.write(tx, "b", &value)];
        self.line.exchange(&inside, progress)?;
        self.change(progress, "c", &value)?;
        assert_eq!(self.finish(progress, tx, "T")?, Err("EAGAIN".into()), "what was read has changed");
        Ok(())
    }

    /// Counts up what others count up too, and its own account of that with it.
    fn count(&mut self, progress: &Progress) -> Result<(), Lost> {
        let tx = self.start(progress)?;
        let shared = format!("/counter/{}\0", self.number % SHARED);
        let answers =
            self.line.exchange(&[(Op::Read, tx, shared.clone().into()), self.read(tx, "counted")], progress)?;
        let next = |answer: &Answer| {
            (text(answer).and_then(|text| text.parse::<u64>().ok()).expect("a count") + 1).to_string()
        };
        let (all, own) = (next(&answers[0]), next(&answers[1]));
        let writes = [(Op::Write, tx, (shared + &all).into()), self.write(tx, "counted", &own)];
        assert_eq!(self.line.exchange(&writes, progress)?, [Ok(b"OK\0".to_vec()), Ok(b"OK\0".to_vec())]);
        self.doubt = vec![vec![("counted".into(), Some(own))]];
        match self.finish(progress, tx, "T")? {
            Ok(_) => {
                self.settle();
                self.commits.0 += 1;
            }
            Err(error) => {
                assert_eq!(error, "EAGAIN");
                self.doubt.clear();
                self.commits.1 += 1;
            }
        }
        Ok(())
    }

    fn make_and_remove(&mut self, progress: &Progress) -> Result<(), Lost> {
        let path = format!("{}\0", self.path("made"));
        self.doubt = vec![vec![("made".into(), None)]];
        let requests =
            [(Op::Mkdir, 0, path.clone().into()), (Op::Rm, 0, path.clone().into()), (Op::Read, 0, path.into())];
        let answers = self.line.exchange(&requests, progress)?;
        assert_eq!(answers, [Ok(b"OK\0".to_vec()), Ok(b"OK\0".to_vec()), Err("ENOENT".into())]);
        self.settle();
        Ok(())
    }

    /// Takes what has come. Each write has one event, in order.
    fn take_events(&mut self, progress: &Progress) {
        let log = format!("{}/log", self.watched.1);
        while let Some(path) = self.line.event() {
            if path == log {
                assert_eq!(self.registered, 1, "one initial event of each watch");
                self.registered = 0;
                continue;
            }
            let place = path.strip_prefix(&log).and_then(|rest| rest.strip_prefix('/')?.parse::<u64>().ok());
            let next = (self.seen + 1..=self.seen + LOG).find(|number| Some(number % LOG) == place);
            let next = next.unwrap_or_else(|| panic!("an event of {path}"));
            assert!(next == self.seen + 1 || self.gap, "event {next} of {log} after {}", self.seen);
            (self.seen, self.gap) = (next, false);
            progress.streams[self.watched.0].1.fetch_max(next, Ordering::Relaxed);
        }
    }

    /// Connects again, and finds out what became of the requests that were not answered.
    fn come_again(&mut self, progress: &Progress) {
        progress.lost.fetch_add(1, Ordering::Relaxed);
        self.take_events(progress);
        // It needs some answers of one daemon. Those that live for a few answers have others to give them to, however long
        // that takes; the last one has not.
        let mut there = false;
        while !there && !progress.over.load(Ordering::Relaxed) {
            thread::sleep(BETWEEN);
            there = self.is_taken_in_again(progress);
        }
        if !there {
            wait::until("a daemon is there again", || self.is_taken_in_again(progress));
        }
        let written = progress.streams[self.watched.0].0.load(Ordering::Relaxed);
        progress.streams[self.watched.0].1.fetch_max(written, Ordering::Relaxed);
    }

    /// Tries to connect again, and to go on.
    fn is_taken_in_again(&mut self, progress: &Progress) -> bool {
        let Line::Socket { client, path, may_be_lost } = &mut self.line else { panic!("a ring is never lost") };
        assert!(*may_be_lost, "a kept connection is never lost");
        let Ok(new) = Client::connect(path) else { return false };
        *client = new;
        self.gap = true;
        self.watch(progress).is_ok() && self.find_out(progress).is_ok()
    }

    fn find_out(&mut self, progress: &Progress) -> Result<(), Lost> {
        while let Some(change) = self.doubt.last().cloned() {
            let reads: Vec<Request> = change.iter().map(|(name, _)| self.read(0, name)).collect();
            let found: Vec<_> = self.line.exchange(&reads, progress)?.iter().map(text).collect();
            let is_new = change.iter().map(|(_, value)| value).eq(&found);
            let is_old =
                change.iter().map(|(name, _)| self.nodes.get(name).cloned().flatten()).eq(found.iter().cloned());
            let made = change[0].0 == "made" && found[0].as_deref() == Some("");
            assert!(is_new || is_old || made, "{found:?} is neither before nor after {change:?}");
            if is_new && change[0].0.starts_with("log/") {
                self.wrote(progress);
            }
            if is_new {
                self.nodes.extend(change);
            } else if made {
                let rm = (Op::Rm, 0, format!("{}\0", self.path("made")).into());
                assert_eq!(self.line.exchange(&[rm], progress)?, [Ok(b"OK\0".to_vec())]);
            }
            self.doubt.pop();
        }
        Ok(())
    }
}

/// A value that was read; none where the node is not there.
fn text(answer: &Answer) -> Option<String> {
    match answer {
        Ok(value) => Some(String::from_utf8_lossy(value).into_owned()),
        Err(error) => {
            assert_eq!(error, "ENOENT");
            None
        }
    }
}
