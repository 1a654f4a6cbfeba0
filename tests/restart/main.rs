//! The daemon dies and comes back: what it had promised holds.

mod fatal_request;
mod guests;
mod keeper;
mod kill_loop;
mod player;
mod replace;
mod sockets;
mod take_over;
mod trial;

use xenstored_tests::scene;
