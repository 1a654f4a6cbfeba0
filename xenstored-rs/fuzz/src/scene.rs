//! The daemon, turn by turn, on a simulated host: guests that do what they like, an honest one beside them, and a
//! toolstack on the socket.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use xen_ffi::shared_page::intruder::{self, AtWork};
use xen_sim::ShutdownReason;
use xenstore_core::{Config, Existence, Limit, Limits, Quota};
use xenstore_wire::{Decoder, Header, OK, Op, PAYLOAD_MAX, put_message};
use xenstored_rs::turns::Turns;

use crate::honest::{self, Honest};
use crate::ring_step::{RingStep, Who, nth_word};
use crate::rogue::Rogue;
use crate::simulation::host;

/// Domains whose guests do what they like: from 1 on.
const ROGUES: u16 = 3;

/// Turns after which the daemon has nothing left to do, whatever guests left in their rings.
const MOST_TURNS: usize = 400;

/// Rounds of the honest guest whose replies are known.
pub(crate) const ROUNDS: usize = 48;

/// Domains that are replaced in the life of a process: a host has pages for so many.
const MOST_REPLACED: u32 = 100_000;

/// A word that will be written between two accesses of the daemon.
#[derive(Debug)]
struct Planned {
    /// Accesses before that.
    after: u16,
    who: usize,
    word: u8,
    value: crate::Index,
}

/// A daemon and all who use it.
pub struct Scene {
    daemon: Turns,
    now: Duration,
    toolstack: UnixStream,
    requests: u32,
    rogues: Rc<RefCell<Vec<Rogue>>>,
    planned: Rc<RefCell<Vec<Planned>>>,
    _intruder: AtWork,
    honest: Honest,
    rounds: usize,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("now", &self.now).field("rogues", &self.rogues).finish_non_exhaustive()
    }
}

/// Limits with which an input comes far.
fn limits() -> Limits {
    let mut limits = Limits::default();
    for (quota, value) in [
        (Quota::Nodes, 60),
        (Quota::Watches, 16),
        (Quota::Transactions, 4),
        (Quota::TransactionNodes, 32),
        (Quota::Memory, 64 << 10),
    ] {
        limits.set(Limit::Hard(quota), value);
    }
    limits
}

impl Scene {
    /// A fresh daemon whose domains are introduced, each with a home; with a journal or without.
    ///
    /// # Panics
    /// When the simulated host fails.
    #[must_use]
    pub fn new(with_journal: bool) -> Self {
        // Found out before, since a host has one daemon at a time.
        undisturbed();
        Self::start(with_journal)
    }

    fn start(with_journal: bool) -> Self {
        let host = host();
        for domid in 1..=honest::DOMID {
            if host.domain(domid).is_none() {
                host.create(domid).expect("there is room for domains");
            }
            host.resume(domid).expect("it was just made");
        }
        let config = Config { existence: Existence::Asked, limits: limits(), ..Config::default() };
        let daemon = Turns::new(&host.socket(), config, with_journal).expect("the daemon starts");
        let toolstack = UnixStream::connect(host.socket()).expect("the daemon listens");
        toolstack.set_nonblocking(true).expect("a socket can be so");
        let rogues: Rc<RefCell<Vec<Rogue>>> = Rc::new(RefCell::new((1..=ROGUES).map(Rogue::new).collect()));
        let planned: Rc<RefCell<Vec<Planned>>> = Rc::default();
        let (their, plans) = (Rc::clone(&rogues), Rc::clone(&planned));
        let intruder = intruder::let_in(move || carry_out(&plans, &their));
        let mut scene = Self {
            daemon,
            now: Duration::ZERO,
            toolstack,
            requests: 0,
            rogues,
            planned,
            _intruder: intruder,
            honest: Honest::new(),
            rounds: 0,
        };
        scene.set_up();
        scene
    }

    /// Introduces the domains and makes their homes; the rogues may see each other's.
    fn set_up(&mut self) {
        for domid in 1..=honest::DOMID {
            let gfn = if domid == honest::DOMID { self.honest.gfn() } else { self.rogue(domid).gfn() };
            self.must(Op::Introduce, &format!("{domid}\0{gfn}\0{}\0", port(domid)));
            let home = format!("/local/domain/{domid}");
            self.must(Op::Mkdir, &format!("{home}\0"));
            let others = if domid == honest::DOMID { "" } else { "b1\0r2\0w3\0" };
            self.must(Op::SetPerms, &format!("{home}\0n{domid}\0{others}"));
        }
        self.check_pages();
    }

    fn rogue(&self, domid: u16) -> std::cell::RefMut<'_, Rogue> {
        std::cell::RefMut::map(self.rogues.borrow_mut(), |rogues| &mut rogues[usize::from(domid) - 1])
    }

    fn at(&self, who: Who) -> std::cell::RefMut<'_, Rogue> {
        std::cell::RefMut::map(self.rogues.borrow_mut(), |rogues| {
            let at = who.index(rogues.len());
            &mut rogues[at]
        })
    }

    fn domid(&self, who: Who) -> u16 {
        self.at(who).domid()
    }

    /// Does one thing; the daemon notices at its next turn.
    ///
    /// # Panics
    /// When the daemon does something wrong.
    pub fn step(&mut self, step: RingStep) {
        match step {
            RingStep::Ask(who, tx_id, forgets, request) => {
                let (op, mut payload) = request.message();
                payload.truncate(PAYLOAD_MAX);
                self.requests += 1;
                let len = u32::try_from(payload.len()).expect("it was just cut");
                let header = Header { op, req_id: self.requests, tx_id: u32::from(tx_id % 4), len };
                let mut rogue = self.at(who);
                rogue.ask(header, &payload);
                if !forgets {
                    rogue.signal();
                }
            }
            RingStep::Send(who, bytes) => {
                self.at(who).send(&bytes);
                self.at(who).signal();
            }
            RingStep::Take(who, most) => self.at(who).take(most.into()),
            RingStep::Word(who, word, value) => {
                let (mut rogue, word) = (self.at(who), nth_word(word));
                let value = value.value(rogue.word(word), |other| rogue.word(other));
                rogue.set_word(word, value);
            }
            RingStep::Scribble(who, at, bytes) => self.at(who).scribble(at.into(), &bytes),
            RingStep::Between(after, who, word, value) => {
                let who = who.index(usize::from(ROGUES));
                self.planned.borrow_mut().push(Planned { after: after % 600, who, word, value });
            }
            RingStep::Signal(who) => self.at(who).signal(),
            RingStep::Turn => drop(self.turn()),
            RingStep::LookForForgetful => self.daemon.look_for_forgetful(),
            RingStep::Wait(hundredths) => self.now += Duration::from_millis(10) * u32::from(hundredths),
            RingStep::Introduce(who, renew) => self.introduce(who, renew),
            RingStep::Release(who) => {
                self.at(who).starts_over();
                let domid = self.domid(who);
                self.ask(Op::Release, &format!("{domid}\0"));
            }
            RingStep::ShutDown(who) => {
                host().shutdown(self.domid(who), ShutdownReason::Suspend).expect("the domain exists");
            }
            RingStep::Resume(who) => {
                let domid = self.domid(who);
                host().resume(domid).expect("the domain exists");
                self.ask(Op::Resume, &format!("{domid}\0"));
            }
            RingStep::Replace(who) => self.replace(who),
        }
    }

    fn introduce(&mut self, who: Who, renew: bool) {
        let domid = self.domid(who);
        if renew {
            host().renew_port(domid).expect("the domain exists");
            self.at(who).take_port();
        }
        self.at(who).starts_over();
        let gfn = self.at(who).gfn();
        self.ask(Op::Introduce, &format!("{domid}\0{gfn}\0{}\0", port(domid)));
    }

    fn replace(&mut self, who: Who) {
        static REPLACED: AtomicU32 = AtomicU32::new(0);
        if REPLACED.fetch_add(1, Relaxed) < MOST_REPLACED {
            let domid = self.domid(who);
            host().destroy(domid).expect("the domain exists");
            host().create(domid).expect("there is room for domains");
            let mut fresh = Rogue::new(domid);
            fresh.starts_over();
            *self.at(who) = fresh;
        }
    }

    /// One turn of the daemon.
    fn turn(&mut self) -> bool {
        self.now += Duration::from_millis(1);
        self.daemon.turn(self.now).expect("polling works")
    }

    /// Turns until the daemon has nothing left to do.
    fn settle(&mut self) {
        let mut turns = 0;
        while self.turn() {
            turns += 1;
            assert!(turns < MOST_TURNS, "the daemon finds no end");
        }
    }

    /// The toolstack asks, and has its answer once the daemon has nothing left to do.
    fn ask(&mut self, op: Op, payload: &str) -> (u32, Vec<u8>) {
        let mut request = Vec::new();
        self.requests += 1;
        put_message(&mut request, op.number(), self.requests, 0, payload.as_bytes());
        self.toolstack.write_all(&request).expect("there is room for a request");
        self.settle();
        self.answer(op)
    }

    fn answer(&mut self, op: Op) -> (u32, Vec<u8>) {
        let mut decoder = Decoder::new();
        let mut buffer = [0; 4096];
        loop {
            match self.toolstack.read(&mut buffer) {
                Ok(0) => panic!("the daemon closed the toolstack's connection"),
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the toolstack's {op:?} is not answered while guests do what they like")
                }
                Err(error) => panic!("the toolstack's connection: {error}"),
            }
            if let Some(message) = decoder.next_message().expect("the daemon keeps to the limits of messages") {
                assert_eq!(message.header.req_id, self.requests);
                return (message.header.op, message.payload.to_vec());
            }
        }
    }

    fn must(&mut self, op: Op, payload: &str) {
        assert_eq!(self.ask(op, payload), (op.number(), OK.to_vec()), "{op:?} {payload:?}");
    }

    /// Lets the daemon do all that is to be done, and checks that nobody was harmed: the honest guest has all its
    /// replies, the toolstack has its answer, and guests that are served no more are left alone.
    ///
    /// # Panics
    /// When the daemon does something wrong.
    pub fn check(&mut self) {
        let (round, replies) = (self.rounds, self.honest_round());
        assert_eq!(
            replies.escape_ascii().to_string(),
            undisturbed()[round].escape_ascii().to_string(),
            "round {round}"
        );
        assert_eq!(self.ask(Op::Read, "/\0"), (Op::Read.number(), Vec::new()));
        self.check_pages();
    }

    fn honest_round(&mut self) -> Vec<u8> {
        self.rounds += 1;
        self.honest.ask();
        self.settle();
        self.honest.replies()
    }

    fn check_pages(&mut self) {
        for rogue in self.rogues.borrow_mut().iter_mut() {
            rogue.check_page();
            rogue.push();
        }
    }

    /// Lets those who kept to the protocol have all their replies, then ends all domains and checks that they left
    /// nothing behind.
    ///
    /// # Panics
    /// When something is left.
    pub fn end(mut self) {
        self.planned.borrow_mut().clear();
        let mut turned = || {
            for _ in 0..MOST_TURNS {
                self.now += Duration::from_millis(1);
                if !self.daemon.turn(self.now).expect("polling works") {
                    return;
                }
            }
            panic!("the daemon finds no end");
        };
        turned();
        for at in 0..usize::from(ROGUES) {
            let mut rogue = self.rogues.borrow_mut().remove(at);
            rogue.check_page();
            rogue.finish(&mut turned);
            self.rogues.borrow_mut().insert(at, rogue);
        }
        self.check();
        for domid in 1..=honest::DOMID {
            self.ask(Op::Release, &format!("{domid}\0"));
        }
        assert_eq!(self.ask(Op::Control, "check\0").1, OK);
        let report = String::from_utf8(self.ask(Op::Control, "memreport\0").1).expect("a report is text");
        let nothing = ["with 0 earlier states", "watches          : 0\n", "transactions     : 0\n", ", 0 with unsent"];
        for wanted in nothing {
            assert!(report.contains(wanted), "no {wanted:?} in\n{report}");
        }
        drop(self);
        // A thread that is about to end looks like a leak to the address sanitizer.
        host().wait_for_callers();
    }
}

fn port(domid: u16) -> u32 {
    host().domain(domid).expect("the domain exists").port
}

/// The honest guest's replies, round by round, where nobody disturbs it.
fn undisturbed() -> &'static [Vec<u8>] {
    static REPLIES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    REPLIES.get_or_init(|| {
        let mut scene = Scene::start(false);
        (0..ROUNDS).map(|_| scene.honest_round()).collect()
    })
}

/// The daemon is about to access a page: writes what was planned for this moment.
fn carry_out(planned: &RefCell<Vec<Planned>>, rogues: &RefCell<Vec<Rogue>>) {
    // Rogues that are looked at just now access their own pages through the host, not as the daemon does.
    let (mut planned, mut rogues) = (planned.borrow_mut(), rogues.borrow_mut());
    planned.retain_mut(|plan| {
        if plan.after > 0 {
            plan.after -= 1;
            return true;
        }
        let (rogue, word) = (&mut rogues[plan.who], nth_word(plan.word));
        let value = plan.value.value(rogue.word(word), |other| rogue.word(other));
        rogue.set_word(word, value);
        false
    });
}
