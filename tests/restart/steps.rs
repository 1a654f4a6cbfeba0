//! A daemon that is killed at each step of a request: it is answered once, what was acknowledged stays, and no event is
//! lost or comes twice.
//!
//! Kept are a keeper's sockets and event channels, where nothing else is said.

use rstest::rstest;
use xen_sim::{ShutdownReason, Word};
use xenstore_wire::Op;
use xenstored_tests::scene::OK;
use xenstored_tests::{Event, wait};

use crate::party::Party;
use crate::shared_words::Shared;
use crate::stage::{ASKER, Act, GUEST, Keep, SHARED, Stage, WATCHER, at_each_step};

const OF_A_RING: [Shared; 4] =
    [Shared::Tail, Shared::Executing, Shared::Ring(ASKER, Word::ReqCons), Shared::Ring(ASKER, Word::RspProd)];

const OF_AN_EVENT: [Shared; 4] =
    [Shared::Tail, Shared::Executing, Shared::Ring(ASKER, Word::RspProd), Shared::Ring(WATCHER, Word::RspProd)];

const OF_A_SOCKET: [Shared; 4] = [Shared::Tail, Shared::Executing, Shared::Note, Shared::Ring(WATCHER, Word::RspProd)];

fn shared(name: &str) -> String {
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

/// What comes to a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Introduced,
    IntroducedAgain,
    IntroducedWithAnotherPort,
    Released,
    ShutDown,
    Gone,
}

/// One domain, several times.
#[derive(Debug)]
pub(crate) struct Domain(pub(crate) Fate);

impl Domain {
    fn introduce(stage: &mut Stage) {
        let domain = stage.scene.host.domain(GUEST).expect("it exists");
        let payload = format!("{GUEST}\0{}\0{}\0", domain.gfn, domain.port);
        stage.client.send(Op::Introduce, 0, payload.as_bytes());
    }

    /// Shows that the domain's requests are served.
    fn is_served(stage: &mut Stage) {
        let mut guest = Party::ring(stage.scene.ring_client(GUEST));
        assert!(guest.events().is_empty());
        assert!(guest.events().is_empty());
    }

    fn all_watchers_have(stage: &mut Stage, events: &[&str]) {
        let events: Vec<Event> = events.iter().map(|name| Event::new(name, "domains")).collect();
        assert_eq!(stage.client.events(), events);
        assert_eq!(stage.other.events(), events);
    }
}

impl Act for Domain {
    fn set_up(&mut self, stage: &mut Stage) {
        for name in ["@introduceDomain", "@releaseDomain"] {
            stage.client.watch(name, "domains");
            stage.other.watch(name, "domains");
        }
    }

    fn prepare(&mut self, stage: &mut Stage) {
        stage.scene.host.create(GUEST).expect("it is free");
        if self.0 != Fate::Introduced {
            Self::introduce(stage);
            assert_eq!(stage.client.answer(), Ok(OK.to_vec()));
            Self::all_watchers_have(stage, &["@introduceDomain"]);
            Self::is_served(stage);
        }
        if self.0 == Fate::IntroducedWithAnotherPort {
            stage.scene.host.renew_port(GUEST).expect("it exists");
        }
    }

    fn cue(&mut self, stage: &mut Stage, _: usize) {
        match self.0 {
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => Self::introduce(stage),
            Fate::Released => stage.client.send(Op::Release, 0, format!("{GUEST}\0").as_bytes()),
            Fate::ShutDown => stage.scene.host.shutdown(GUEST, ShutdownReason::Poweroff).expect("it exists"),
            Fate::Gone => stage.scene.host.destroy(GUEST).expect("it exists"),
        }
    }

    fn shared(&self) -> Vec<Shared> {
        match self.0 {
            Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => {
                vec![
                    Shared::Tail,
                    Shared::Executing,
                    Shared::Ring(GUEST, Word::ReqCons),
                    Shared::Ring(GUEST, Word::RspProd),
                ]
            }
            _ => vec![Shared::Tail, Shared::Executing, Shared::Note],
        }
    }

    fn check(&mut self, stage: &mut Stage) {
        if !matches!(self.0, Fate::ShutDown | Fate::Gone) {
            assert_eq!(stage.client.answer(), Ok(OK.to_vec()));
        }
        match self.0 {
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => {
                Self::is_served(stage);
                // Who is there already is not told of again.
                let first = if self.0 == Fate::Introduced { &["@introduceDomain"][..] } else { &[] };
                Self::all_watchers_have(stage, first);
            }
            Fate::Released | Fate::ShutDown | Fate::Gone => Self::all_watchers_have(stage, &["@releaseDomain"]),
        }
        match self.0 {
            Fate::Released => wait::until("the port is let go", || !stage.scene.ring(GUEST).is_bound()),
            Fate::ShutDown => Self::is_served(stage),
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort | Fate::Gone => {}
        }
        if self.0 == Fate::Gone {
            return;
        }
        stage.scene.destroy(GUEST);
        let last = if self.0 == Fate::Released { &[][..] } else { &["@releaseDomain"] };
        Self::all_watchers_have(stage, last);
    }
}

#[test]
fn an_introduction() {
    at_each_step(Domain(Fate::Introduced), Keep::All);
}

#[test]
fn an_introduction_of_a_domain_that_is_there() {
    at_each_step(Domain(Fate::IntroducedAgain), Keep::All);
}

#[test]
fn an_introduction_of_a_domain_that_has_another_port() {
    at_each_step(Domain(Fate::IntroducedWithAnotherPort), Keep::All);
}

#[test]
fn a_release() {
    at_each_step(Domain(Fate::Released), Keep::All);
}

#[test]
fn a_domain_that_shuts_down() {
    at_each_step(Domain(Fate::ShutDown), Keep::All);
}

#[test]
fn a_domain_that_goes() {
    at_each_step(Domain(Fate::Gone), Keep::All);
}
