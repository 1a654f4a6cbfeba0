//! How a client is opened.

use crate::client::Client;
use crate::error::Error;
use crate::link::{Link, Numbering, Opener, Setup};
use crate::place::{self, Full};
use crate::transport::Transport;
use crate::watch::Table;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two attempts to reach a daemon that is yet to start. Nothing announces it.
const PAUSE: Duration = Duration::from_millis(20);

/// Events that a watch keeps for its owner unless told otherwise.
const BOUND: usize = 65_536;

/// How to reach a daemon, and how long to wait for it. The default is what the C library does.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    place: Option<PathBuf>,
    wait: Option<Duration>,
    timeout: Option<Duration>,
    reconnect: bool,
    bound: Option<usize>,
}

impl Options {
    /// The socket of the environment, else the device of a guest; no time-out, no reconnecting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Connects to this socket or device and no other.
    pub fn place(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Some(path.into());
        self
    }

    /// Waits so long for a daemon that cannot be reached yet.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.wait = Some(patience);
        self
    }

    /// Lets each request take at most so long; it then fails with [`Error::TimedOut`] and may still be carried out.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects again when the daemon went away, and registers the watches there; each then fires once.
    ///
    /// Requests that were out at that moment fail and are not sent again. Transactions that were open are lost: to
    /// commit one is a conflict.
    pub fn reconnect(mut self, reconnect: bool) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Lets each watch keep at most so many events that were not taken yet, 65 536 unless set. What comes on top is
    /// counted and dropped, see [`Error::Overflow`].
    pub fn event_bound(mut self, bound: usize) -> Self {
        self.bound = Some(bound);
        self
    }

    /// Opens the client.
    ///
    /// # Errors
    /// [`Error::Unreachable`], which names what was tried.
    pub fn open(self) -> Result<Client, Error> {
        let places = || self.place.as_ref().map_or_else(place::candidates, |path| vec![path.clone()]);
        let deadline = self.wait.map(|patience| Instant::now() + patience);
        let full = if deadline.is_some() { Full::Fail } else { Full::Wait };
        let transport = loop {
            match place::open_first(&places(), full) {
                Err(Error::Unreachable(_)) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {
                    thread::sleep(PAUSE);
                }
                done => break done?,
            }
        };
        let opener = self.reconnect.then(|| {
            // Where it was: the environment may be another by then.
            let places = places();
            Opener::new(move || place::open_first(&places, Full::Fail))
        });
        Ok(self.over_with(transport, opener))
    }

    /// Opens the client over a transport that is connected already. It is not renewed.
    #[must_use]
    pub fn over(self, transport: impl Transport) -> Client {
        self.over_with(Arc::new(transport), None)
    }

    fn over_with(self, transport: Arc<dyn Transport>, opener: Option<Opener>) -> Client {
        let setup = Setup { descriptors: Arc::default(), numbering: Numbering::Counted, opener };
        let link = Link::new(transport, Table::default(), setup);
        Client::new(link, self.timeout, self.bound.unwrap_or(BOUND))
    }
}
