//! A naive model of the whole store, and the store's engine held against it.
//!
//! The model ([`model`] and what it uses) is written from the protocol's documents and shares nothing with the engine
//! but the wire format. It copies the whole tree for every transaction and loops over every watch for every change:
//! slow, and obviously right. [`choice`] holds what the documents leave open.
//!
//! The model knows no time and no ring that fills up: events that collapse while they wait, requests that wait for
//! room, the write rate limit and the expiry of events are left to the tests of the engine and of the daemon. Nor does
//! it know of processes: the engine dies now and then and goes on from an image and the calls made since
//! ([`replay`]), and nothing of that is to be seen.
//!
//! A longer run: `XS_SEED=7 XS_ROUNDS=20000 cargo test -p xenstored-tests --test model`.

mod adapter;
#[path = "../conformance/case.rs"]
#[allow(dead_code, reason = "the player of socket cases needs more of it")]
mod case;
mod choice;
mod compare;
mod domain;
mod engine;
mod facts;
mod model;
mod output;
mod path;
mod permission;
mod player;
mod quota;
mod random;
mod replay;
mod requests;
mod steps;
mod store;
mod talk;
mod transaction;
mod watch;

use adapter::Store;
use engine::EngineStore;
use model::Model;

fn plays_every_conformance_case(make: fn() -> Box<dyn Store>) {
    let cases = player::all_cases();
    assert!(cases.len() >= 160, "all three files are played");
    let wrong: Vec<_> = cases.iter().filter_map(|case| player::play(make().as_mut(), case).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_model_holds_every_conformance_case() {
    plays_every_conformance_case(|| Box::new(Model::new()));
}

#[test]
fn the_engine_holds_every_conformance_case() {
    plays_every_conformance_case(|| Box::new(EngineStore::new()));
}

#[test]
fn the_engine_holds_every_conformance_case_with_a_restart_before_each_request() {
    plays_every_conformance_case(|| Box::new(EngineStore::restarting()));
}

#[test]
fn the_engine_agrees_with_the_model() {
    random::compare(|| Box::new(EngineStore::new()));
    let [turns, restarts] = replay::forgotten();
    assert!(turns > 1000 && restarts > 300, "{turns} turns were forgotten before {restarts} restarts");
}
