//! A take-over that a death cuts off is begun again by the next daemon.
//!
//! Until the journal has everything, the other daemon's file has, and its descriptors are this process's alone. So they are
//! given to a keeper before anything is done with them, under a mark that says so. As long as the mark and the file are
//! there, a daemon that starts takes over as the first one did, whatever that had written until then: nobody was served.
//! With the file the take-over is done; the mark goes after it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use xenstore_core::migration::Peer;

use crate::keeper::{Key, Link, spawn};
use crate::keeping::Orders;
use crate::take_over::Taken;

/// How long the keeper may take for what it was told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives all that was taken to a keeper.
///
/// # Errors
/// If none can be started, or it does not take everything; then it is sent away.
pub(crate) fn hold(taken: &Taken, orders: &Orders) -> io::Result<Link> {
    let Orders { socket, store, wait, program, arguments } = orders;
    let link = spawn(socket, store, *wait, program, arguments)?;
    match give(&link, taken) {
        Ok(()) => Ok(link),
        Err(error) => {
            let _ = link.dismiss();
            Err(error)
        }
    }
}

fn give(link: &Link, taken: &Taken) -> io::Result<()> {
    let keep = |key, descriptor: BorrowedFd<'_>| loop {
        match link.keep(key, descriptor) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => link.settle(PATIENCE)?,
            done => return done,
        }
    };
    if let Some(listener) = &taken.listener {
        keep(Key::Listener, listener.as_fd())?;
    }
    if let Some(channels) = &taken.event_channels {
        keep(Key::EventChannels, channels.as_fd())?;
    }
    for ((saved, &conn), socket) in taken.state.connections.iter().zip(&taken.connections).zip(&taken.sockets) {
        if let (Peer::Socket { .. }, Some(life), Some(socket)) = (&saved.peer, taken.engine.life(conn), socket) {
            keep(Key::Client(life), socket.as_fd())?;
        }
    }
    // Last: with it all is there.
    keep(Key::Unfinished(taken.from), File::open("/dev/null")?.as_fd())?;
    link.settle(PATIENCE)
}
