//! What the daemon has its keeper hold, and when.
//!
//! A client is kept once it holds state (a watch, a transaction), or once it has lived for a second: the many that come for
//! one request cost nothing. Without a keeper, a death of the daemon closes all sockets, and clients connect again.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use tracing::{info, warn};
use xenstore_core::ConnId;

use crate::keeper::{Key, Link, spawn};

/// How long a client lives before it is kept though it holds nothing.
pub(crate) const YOUTH: Duration = Duration::from_secs(1);

/// A keeper that lives less, and was not killed, is followed by the next one only after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The first such pause; each is twice the one before.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How a keeper is started.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// The keeper's socket.
    pub(crate) socket: PathBuf,
    /// The socket of the store.
    pub(crate) store: PathBuf,
    /// How long it waits after a stop.
    pub(crate) wait: Duration,
    /// The daemon that it starts where nobody else does.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
}

/// The keeper as the loop sees it.
#[derive(Debug)]
pub(crate) struct Keeping {
    orders: Orders,
    token: Token,
    link: Option<Link>,
    /// When the keeper was started.
    started: Duration,
    /// Where none is there: when the next one is started.
    due: Option<Duration>,
    /// What is waited before that.
    pause: Duration,
    /// Clients that are not kept yet, in the order of their coming, each with when and which life.
    young: VecDeque<(Duration, ConnId, u64)>,
    /// What the keeper is to let go of, and was too far behind to be told of.
    owed: VecDeque<Key>,
}

impl Keeping {
    /// Keeps by `orders`, through the keeper at the other end of `link` or one that is started.
    pub(crate) fn new(orders: Orders, token: Token, link: Option<Link>, registry: &Registry, now: Duration) -> Self {
        let (young, owed) = (VecDeque::new(), VecDeque::new());
        let mut keeping = Self { orders, token, link, started: now, due: None, pause: PAUSE, young, owed };
        if keeping.link.is_some() {
            keeping.register(registry);
        } else {
            keeping.start(registry, now);
        }
        keeping
    }

    fn start(&mut self, registry: &Registry, now: Duration) {
        let Orders { socket, store, wait, program, arguments } = &self.orders;
        (self.started, self.due) = (now, None);
        match spawn(socket, store, *wait, program, arguments) {
            Ok(link) => {
                self.link = Some(link);
                self.register(registry);
            }
            Err(error) => {
                warn!(%error, "no keeper can be started; until one can, a death of the daemon closes all sockets");
                self.start_later(now);
            }
        }
    }

    fn start_later(&mut self, now: Duration) {
        self.due = Some(now + self.pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }

    fn register(&mut self, registry: &Registry) {
        if let Some(link) = &self.link {
            let fd = link.as_fd().as_raw_fd();
            if let Err(error) = registry.register(&mut SourceFd(&fd), self.token, Interest::READABLE) {
                warn!(%error, "the keeper's end will not be noticed");
            }
        }
    }

    /// The keeper says nothing on its own, so it is gone: another is started, or will be where this one could not begin.
    /// True where one is there; all that is to be kept must be told anew.
    pub(crate) fn keeper_ended(&mut self, registry: &Registry, now: Duration) -> bool {
        let ended = self.link.take().and_then(|link| {
            let fd = link.as_fd().as_raw_fd();
            let _ = registry.deregister(&mut SourceFd(&fd));
            link.bury()
        });
        self.owed.clear();
        let killed = ended.is_none_or(|status| status.signal() == Some(libc::SIGKILL));
        if let (Some(status), false, true) = (ended, killed, now < self.started + SHORT_LIFE) {
            let seconds = self.pause.as_secs();
            warn!(%status, seconds, "the keeper ended at once; until the next, a death of the daemon closes all sockets");
            self.start_later(now);
            return false;
        }
        info!("the keeper is gone; another one is started");
        self.pause = PAUSE;
        self.start(registry, now);
        self.link.is_some()
    }

    /// Starts a keeper where that is due. True where it was, and one is there; all that is to be kept must be told anew.
    pub(crate) fn start_due(&mut self, registry: &Registry, now: Duration) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.start(registry, now);
        }
        due && self.link.is_some()
    }

    /// Notes that a client came.
    pub(crate) fn came(&mut self, now: Duration, conn: ConnId, life: u64) {
        self.young.push_back((now, conn, life));
    }

    /// A client that has lived for a second by now, each once.
    pub(crate) fn next_grown(&mut self, now: Duration) -> Option<(ConnId, u64)> {
        let &(came, conn, life) = self.young.front()?;
        if came + YOUTH > now {
            return None;
        }
        self.young.pop_front();
        Some((conn, life))
    }

    /// Whether there is something to do a second later.
    pub(crate) fn waits(&self) -> bool {
        !self.young.is_empty() || !self.owed.is_empty() || self.due.is_some()
    }

    /// Has a descriptor kept; false where that did not work now. Where no keeper is there, the next will be told.
    pub(crate) fn keep(&self, key: Key, descriptor: BorrowedFd<'_>) -> bool {
        self.link.as_ref().map_or_else(|| self.due.is_some(), |link| link.keep(key, descriptor).is_ok())
    }

    /// Has a descriptor kept that this process needs no more.
    pub(crate) fn keep_owned(&self, key: Key, descriptor: &OwnedFd) -> bool {
        self.keep(key, descriptor.as_fd())
    }

    /// Lets a descriptor go.
    pub(crate) fn let_go(&mut self, key: Key) {
        if self.link.is_some() {
            self.owed.push_back(key);
            self.pay();
        }
    }

    /// Tells the keeper what it could not be told before.
    pub(crate) fn pay(&mut self) {
        while let (Some(link), Some(&key)) = (&self.link, self.owed.front()) {
            match link.let_go(key) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.owed.pop_front(),
            };
        }
    }

    /// Waits until the keeper has taken in all that it was told.
    ///
    /// # Errors
    /// Where it is gone, or does not come to it in time.
    pub(crate) fn settle(&self, patience: Duration) -> io::Result<()> {
        self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?.settle(patience)
    }

    /// Sends the keeper away with all that it holds.
    pub(crate) fn dismiss(self) {
        if let Some(Err(error)) = self.link.map(Link::dismiss) {
            warn!(%error, "the keeper may stay");
        }
    }

    /// The daemon is about to end, and means it. True where a keeper holds its sockets from then on. Event channels it lets
    /// go: any other daemon may be the next, and whoever it is binds its ports itself.
    pub(crate) fn stopping(&mut self) -> bool {
        self.let_go(Key::EventChannels);
        self.link.as_ref().is_some_and(|link| link.stopping().is_ok())
    }
}
