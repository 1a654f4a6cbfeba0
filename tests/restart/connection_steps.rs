//! A daemon that is killed at each step of the coming, the going and the renewal of a connection.

use rstest::rstest;
use xen_sim::Word;
use xenstore_wire::Op;
use xenstored_tests::scene::OK;
use xenstored_tests::{Client, ClientError, Event, Wire, process, wait};

use crate::party::Party;
use crate::shared_words::Shared;
use crate::stage::{Act, GUEST, Keep, SHARED, Stage, at_each_step};
use crate::steps::{OF_A_SOCKET, shared};

/// A client that comes, asks for a write and a watch, and may be cut off: its connection is nobody's yet.
struct Newcomer(Option<Client>);

impl Act for Newcomer {
    fn cue(&mut self, stage: &mut Stage, _: usize) {
        let mut client = stage.scene.dom0();
        let write = format!("{}\0{}", shared("written"), stage.round);
        client.send(Op::Write.number(), 0, write.as_bytes()).expect("there is room");
        client.send(Op::Watch.number(), 0, format!("{SHARED}\0newcomer\0").as_bytes()).expect("there is room");
        self.0 = Some(client);
    }

    fn shared(&self) -> Vec<Shared> {
        OF_A_SOCKET.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        let mut client = self.0.take().expect("it came");
        let came = [client.arrival(), client.arrival(), client.arrival()];
        let event = Event::new(SHARED, "newcomer");
        // What came is what was asked for, in order, and nothing comes after the end.
        let mut is_right = came.iter().zip(0..).map(|(came, number)| match (came, number) {
            (Ok(Wire::Reply(reply)), 0 | 1) => reply.payload == OK && reply.header.req_id == number + 1,
            (Ok(Wire::Event(told)), 2) => *told == event,
            (Err(error), _) => *error == ClientError::Closed,
            _ => false,
        });
        assert!(is_right.all(|right| right) && came.is_sorted_by_key(Result::is_err), "{came:?}");
        let done = stage.other.read(&shared("written")) == Ok(stage.round.to_string().into());
        assert!(done || came[0].is_err(), "what is acknowledged is done");
        stage.all_have_events_of(if done { &["/shared/written"] } else { &[] });
    }
}

#[test]
fn a_client_that_has_just_come() {
    at_each_step(Newcomer(None), Keep::All);
}

/// A client that goes while it has a watch and a transaction.
struct Leaver {
    client: Option<Client>,
    /// Descriptors that the keeper holds without it.
    held: usize,
}

impl Leaver {
    fn held(stage: &Stage) -> usize {
        let [keeper] = stage.scene.keepers()[..] else { panic!("one keeper, and not {:?}", stage.scene.keepers()) };
        process::descriptors(keeper)
    }
}

impl Act for Leaver {
    fn prepare(&mut self, stage: &mut Stage) {
        self.held = Self::held(stage);
        let mut client = stage.scene.dom0();
        client.watch("/leaver", "token");
        client.start_transaction();
        wait::until("it is kept", || Self::held(stage) > self.held);
        self.client = Some(client);
    }

    fn cue(&mut self, _: &mut Stage, _: usize) {
        self.client = None;
    }

    fn shared(&self) -> Vec<Shared> {
        OF_A_SOCKET.to_vec()
    }

    fn check(&mut self, stage: &mut Stage) {
        wait::until("nobody holds it any more", || Self::held(stage) == self.held);
        stage.all_have_events_of(&[]);
    }
}

#[test]
fn a_client_that_goes() {
    at_each_step(Leaver { client: None, held: 0 }, Keep::All);
}

/// A guest that wants a fresh connection.
struct Reconnection;

impl Act for Reconnection {
    fn prepare(&mut self, stage: &mut Stage) {
        stage.scene.host.create(GUEST).expect("it is free");
        stage.scene.host.introduce(GUEST).expect("the daemon takes it");
        let mut guest = Party::ring(stage.scene.ring_client(GUEST));
        guest.watch(SHARED, "old");
        // Its event of that is left in the ring.
        stage.other.write(&shared("before"), "value");
        stage.all_have_events_of(&["/shared/before"]);
    }

    fn cue(&mut self, stage: &mut Stage, _: usize) {
        let guest = stage.scene.ring(GUEST);
        guest.set_word(Word::Connection, 1);
        guest.notify();
    }

    fn shared(&self) -> Vec<Shared> {
        vec![
            Shared::Tail,
            Shared::Ring(GUEST, Word::ReqCons),
            Shared::Ring(GUEST, Word::RspProd),
            Shared::Ring(GUEST, Word::Connection),
        ]
    }

    fn check(&mut self, stage: &mut Stage) {
        let ring = stage.scene.ring(GUEST);
        wait::until("it is connected", || ring.word(Word::Connection) == 0);
        let indices = [Word::ReqCons, Word::ReqProd, Word::RspCons, Word::RspProd];
        assert_eq!(indices.map(|word| ring.word(word)), [0; 4]);
        stage.other.write(&shared("after"), "value");
        stage.all_have_events_of(&["/shared/after"]);
        let mut guest = Party::ring(stage.scene.ring_client(GUEST));
        assert!(guest.events().is_empty(), "its watch went with its old connection");
        stage.scene.destroy(GUEST);
    }
}

#[rstest]
#[case::kept(Keep::All)]
#[case::bound_anew(Keep::Nothing)]
fn a_guest_that_connects_again(#[case] keep: Keep) {
    at_each_step(Reconnection, keep);
}
