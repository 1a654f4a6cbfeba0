//! A daemon that is killed at each step of a request: it is answered once, what was acknowledged stays, and no event is
//! lost or comes twice.
//!
//! Kept are a keeper's sockets and event channels, where nothing else is said.

use rstest::rstest;
use xen_sim::Word;
use xenstore_wire::Op;
use xenstored_tests::Event;
use xenstored_tests::scene::OK;

use crate::party::Party;
use crate::shared_words::Shared;
use crate::stage::{ASKER, Act, Keep, SHARED, Stage, WATCHER, at_each_step};

const OF_A_RING: [Shared; 4] =
    [Shared::Tail, Shared::Executing, Shared::Ring(ASKER, Word::ReqCons), Shared::Ring(ASKER, Word::RspProd)];

const OF_AN_EVENT: [Shared; 4] =
    [Shared::Tail, Shared::Executing, Shared::Ring(ASKER, Word::RspProd), Shared::Ring(WATCHER, Word::RspProd)];

pub(crate) const OF_A_SOCKET: [Shared; 4] =
    [Shared::Tail, Shared::Executing, Shared::Note, Shared::Ring(WATCHER, Word::RspProd)];

pub(crate) fn shared(name: &str) -> String {
    format!("{SHARED}/{name}")
}

/// A read of a value, which is longer than the ring or not.
struct Read {
    value: String,
    cues: usize,
}

impl Act for Read {
    fn set_up(&mut self, stage: &mut Stage) {
        stage.client.write(&shared("read"), &self.value);
        stage.all_have_events_of(&[&shared("read")]);
    }

    fn cues(&self) -> usize {
        self.cues
    }

    fn cue(&mut self, stage: &mut Stage, number: usize) {
        match number {
            0 => stage.asker.send(Op::Read, 0, format!("{}\0", shared("read")).as_bytes()),
            _ => stage.asker.take_a_part(),
        }
    }

    fn remaining_cues(&mut self, _: &mut Stage, _: usize) {
        // The rest is taken as it comes.
    }

    fn shared(&self) -> Vec<Shared> {
        OF_A_RING.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        assert_eq!(stage.asker.answer(), Ok(self.value.clone().into()));
        stage.all_have_events_of(&[]);
    }
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_read(#[case] keep: Keep) {
    at_each_step(Read { value: "value".into(), cues: 1 }, keep);
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_read_of_more_than_the_ring_holds(#[case] keep: Keep) {
    at_each_step(Read { value: "x".repeat(2500), cues: 3 }, keep);
}

/// Who asks.
type Who = fn(&mut Stage) -> &mut Party;

fn asker(stage: &mut Stage) -> &mut Party {
    &mut stage.asker
}

fn client(stage: &mut Stage) -> &mut Party {
    &mut stage.client
}

/// A write that comes in one part or in two.
pub(crate) struct Write {
    who: Who,
    shared: [Shared; 4],
    /// Bytes of the first part.
    first: usize,
    rest: Vec<u8>,
}

impl Write {
    fn by(who: Who, shared: [Shared; 4], first: usize) -> Self {
        Self { who, shared, first, rest: Vec::new() }
    }

    pub(crate) fn through_a_ring() -> Self {
        Self::by(asker, OF_A_RING, usize::MAX)
    }

    pub(crate) fn through_a_socket() -> Self {
        Self::by(client, OF_A_SOCKET, usize::MAX)
    }
}

impl Act for Write {
    fn cues(&self) -> usize {
        if self.first == usize::MAX { 1 } else { 2 }
    }

    fn cue(&mut self, stage: &mut Stage, number: usize) {
        let payload = format!("{}\0{}", shared("written"), stage.round);
        let party = (self.who)(stage);
        if number == 0 {
            self.rest = party.request_bytes(Op::Write, 0, payload.as_bytes());
            let first: Vec<u8> = self.rest.drain(..self.first.min(self.rest.len())).collect();
            party.send_bytes(&first);
        } else {
            party.send_bytes(&self.rest);
        }
    }

    fn shared(&self) -> Vec<Shared> {
        self.shared.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        let value = stage.round.to_string();
        assert_eq!((self.who)(stage).answer(), Ok(OK.to_vec()));
        stage.all_have_events_of(&[&shared("written")]);
        assert_eq!(stage.other.read(&shared("written")), Ok(value.into()));
    }
}

#[test]
fn a_write_through_a_ring() {
    at_each_step(Write::through_a_ring(), Keep::All);
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_write_through_a_ring_that_others_are_told_of(#[case] keep: Keep) {
    at_each_step(Write::by(asker, OF_AN_EVENT, usize::MAX), keep);
}

#[test]
fn a_write_through_a_socket() {
    at_each_step(Write::through_a_socket(), Keep::All);
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_write_in_two_parts_through_a_ring(#[case] keep: Keep) {
    at_each_step(Write::by(asker, OF_A_RING, 20), keep);
}

#[test]
fn a_write_in_two_parts_through_a_socket() {
    at_each_step(Write::by(client, OF_A_SOCKET, 7), Keep::All);
}

/// The end of a transaction with two writes, through a ring.
#[derive(Debug)]
pub(crate) struct Commit {
    tx: u32,
}

impl Commit {
    pub(crate) fn new() -> Self {
        Self { tx: 0 }
    }
}

impl Act for Commit {
    fn prepare(&mut self, stage: &mut Stage) {
        let started = stage.asker.ask(Op::TransactionStart, 0, b"\0").expect("a transaction starts");
        self.tx = String::from_utf8_lossy(&started).trim_end_matches('\0').parse().expect("a number");
        for name in ["one", "two"] {
            let payload = format!("{}\0{}", shared(name), stage.round);
            assert_eq!(stage.asker.ask(Op::Write, self.tx, payload.as_bytes()), Ok(OK.to_vec()));
        }
    }

    fn cue(&mut self, stage: &mut Stage, _: usize) {
        stage.asker.send(Op::TransactionEnd, self.tx, b"T\0");
    }

    fn shared(&self) -> Vec<Shared> {
        OF_AN_EVENT.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        assert_eq!(stage.asker.answer(), Ok(OK.to_vec()));
        stage.all_have_events_of(&[&shared("one"), &shared("two")]);
        for name in ["one", "two"] {
            assert_eq!(stage.other.read(&shared(name)), Ok(stage.round.to_string().into()));
        }
        assert_eq!(stage.asker.ask(Op::TransactionEnd, self.tx, b"T\0"), Err("ENOENT".into()));
    }
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn the_end_of_a_transaction(#[case] keep: Keep) {
    at_each_step(Commit::new(), keep);
}

/// A watch, through a ring or a socket.
struct Watch {
    who: Who,
    shared: [Shared; 4],
}

impl Act for Watch {
    fn cue(&mut self, stage: &mut Stage, _: usize) {
        let payload = format!("{SHARED}\0{}\0", stage.round);
        (self.who)(stage).send(Op::Watch, 0, payload.as_bytes());
    }

    fn shared(&self) -> Vec<Shared> {
        self.shared.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        let (token, who) = (stage.round.to_string(), self.who);
        assert_eq!(who(stage).answer(), Ok(OK.to_vec()));
        assert_eq!(who(stage).events(), [Event::new(SHARED, &token)]);
        let payload = format!("{SHARED}\0{token}\0");
        assert_eq!(who(stage).ask(Op::Watch, 0, payload.as_bytes()), Err("EEXIST".into()));
        stage.other.write(&shared("watched"), &token);
        let mut events = who(stage).events();
        events.sort();
        assert_eq!(events, [Event::new(&shared("watched"), &token), Event::new(&shared("watched"), "shared")]);
        assert_eq!(who(stage).ask(Op::Unwatch, 0, payload.as_bytes()), Ok(OK.to_vec()));
        for party in stage.parties() {
            party.events();
        }
    }
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_watch_through_a_ring(#[case] keep: Keep) {
    at_each_step(Watch { who: asker, shared: OF_A_RING }, keep);
}

#[test]
fn a_watch_through_a_socket() {
    at_each_step(Watch { who: client, shared: OF_A_SOCKET }, Keep::All);
}
