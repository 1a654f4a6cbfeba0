//! The client itself.

use crate::error::Error;
use crate::link::Link;
use crate::nodes::{Nodes, Scope};
use crate::options::Options;
use crate::platform::Std;
use crate::transaction::{Commit, Transaction};
use crate::watch::{Table, Watch, WatchOptions};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use xenstore_wire::Op;

/// A connection to a store daemon. Clones share it; it ends with the last of them and the last [`Watch`].
///
/// After a fork only the parent can use it: in the child every call fails with [`Error::Forked`].
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    link: Link<Std, Table>,
    timeout: Option<Duration>,
    bound: usize,
}

/// Commits that [`Client::transact`] tries before it says that there is a conflict.
const TRIES: u32 = 100;

/// Pauses between them: none at first, since most conflicts are over by then, and never longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

impl Client {
    pub(crate) fn new(link: Link<Std, Table>, timeout: Option<Duration>, bound: usize) -> Self {
        Self(Arc::new(Inner { link, timeout, bound }))
    }

    /// Connects to the daemon of this host: [`Options::new`] with nothing set.
    ///
    /// # Errors
    /// [`Error::Unreachable`], which names what was tried.
    pub fn open() -> Result<Self, Error> {
        Options::new().open()
    }

    /// Sends a request outside any transaction and returns the payload of its answer. This is for what has no method
    /// of its own.
    ///
    /// # Errors
    /// Those of the daemon and of the connection.
    pub fn request(&self, op: Op, payload: &[u8]) -> Result<Vec<u8>, Error> {
        self.call(op, 0, &[payload], <[u8]>::to_vec)
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// `ENOSPC` when there are too many.
    pub fn transaction(&self) -> Result<Transaction, Error> {
        let tx_id = self.0.link.start_transaction(self.until())?;
        Ok(Transaction::new(self.clone(), tx_id))
    }

    /// Runs `work` in a transaction and commits it; after a conflict, runs it again in a new one.
    ///
    /// When `work` fails, the transaction is given up and that is the result, except where the connection was renewed
    /// below it.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Conflict`] after a hundred conflicts in a row.
    pub fn transact<T, E: From<Error>>(&self, mut work: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        for attempt in 0..TRIES {
            let transaction = self.transaction()?;
            match work(&transaction) {
                Ok(value) => {
                    if transaction.commit()? == Commit::Done {
                        return Ok(value);
                    }
                }
                Err(_) if transaction.is_lost() => {}
                Err(error) => return Err(error),
            }
            if let Some(steps) = attempt.checked_sub(3) {
                thread::sleep(Duration::from_micros(100 << steps.min(10)).min(LONGEST_PAUSE));
            }
        }
        Err(Error::Conflict.into())
    }

    /// Watches a path and all below it. The first event, naming the path itself, comes at once.
    ///
    /// # Errors
    /// `EINVAL` for a path that cannot be, `ENOSPC` when there are too many watches.
    pub fn watch(&self, path: impl AsRef<[u8]>) -> Result<Watch, Error> {
        self.watch_with(path, WatchOptions::default())
    }

    /// [`Self::watch`] with a token, a depth or a bound of one's own.
    ///
    /// # Errors
    /// As [`Self::watch`]; `EEXIST` for a path and token that this client watches already.
    pub fn watch_with(&self, path: impl AsRef<[u8]>, options: WatchOptions) -> Result<Watch, Error> {
        Watch::register(self.clone(), path.as_ref(), options)
    }

    /// Drops all watches and transactions of this connection in the daemon. [`Watch`]es stay, but nothing will fire
    /// them.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn reset_watches(&self) -> Result<(), Error> {
        self.0.link.reset_watches(self.until())
    }

    pub(crate) fn link(&self) -> &Link<Std, Table> {
        &self.0.link
    }

    pub(crate) fn bound(&self) -> usize {
        self.0.bound
    }

    /// When a request that is made now has to be answered.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.0.timeout.map(|timeout| Instant::now() + timeout)
    }

    pub(crate) fn call<R>(
        &self,
        op: Op,
        tx_id: u32,
        parts: &[&[u8]],
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        self.0.link.request(op, tx_id, parts, self.until(), take)
    }
}

impl Nodes for Client {
    fn scope(&self) -> Scope<'_> {
        Scope::new(self, 0)
    }
}
