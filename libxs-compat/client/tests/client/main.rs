//! The client against a daemon, and against a scripted one where a daemon would have to err.

mod alone;
mod directories;
mod failures;
mod musl;
mod nodes;
mod protocol;
mod reconnecting;
mod sharing;
mod transactions;
mod watches;

use std::path::Path;
use xenstore_client::{Client, Options};
use xenstored_tests::{Backend, Daemon};

/// A daemon of our own and a client of it.
fn store() -> (Daemon, Client) {
    let daemon = Daemon::start(Backend::Ours);
    let client = open(&daemon.socket());
    (daemon, client)
}

fn open(socket: &Path) -> Client {
    Options::new().place(socket).open().expect("the daemon listens")
}
