//! The daemon dies and comes back: what it had promised holds.

mod compaction;
mod connection_steps;
mod domain_steps;
mod fatal_request;
mod guests;
mod keeper;
mod keeper_steps;
mod kill_loop;
mod party;
mod player;
mod recovery;
mod replace;
mod shared_words;
mod sockets;
mod stage;
mod steps;
mod take_over;
mod take_over_steps;
mod tracer;
mod trial;
mod update;
mod whole;

use xenstored_tests::scene;
