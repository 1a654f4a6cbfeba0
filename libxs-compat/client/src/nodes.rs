//! What can be done to nodes, with or without a transaction.

use crate::client::Client;
use crate::directory;
use crate::error::Error;
use crate::permission::{self, Permission};
use xenstore_wire::{Op, XsError};

/// Where requests go: a client, and the transaction that they belong to.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    client: &'a Client,
    tx_id: u32,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(client: &'a Client, tx_id: u32) -> Self {
        Self { client, tx_id }
    }

    fn call<R>(self, op: Op, parts: &[&[u8]], take: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
        self.client.call(op, self.tx_id, parts, take)
    }
}

/// Checks that a string holds no NUL, which would end it early.
pub(crate) fn string(bytes: &[u8]) -> Result<&[u8], Error> {
    if bytes.contains(&0) { Err(Error::Invalid("a string holds a NUL")) } else { Ok(bytes) }
}

/// Nodes, as a client or a transaction sees them.
///
/// Paths are absolute, or relative to `/local/domain/<domid>/` of the caller. Besides the errors that are named, every
/// method has those of the connection, `EINVAL` for a path that cannot be, and in a transaction
/// [`Error::TransactionLost`].
pub trait Nodes {
    /// Where requests go.
    fn scope(&self) -> Scope<'_>;

    /// The value of a node, as it is.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`.
    fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.scope().call(Op::Read, &[string(path.as_ref())?, b"\0"], <[u8]>::to_vec)
    }

    /// The value of a node that has to be text.
    ///
    /// # Errors
    /// [`Error::NotText`] for a value that is no UTF-8; those of [`Self::read`].
    fn read_text(&self, path: impl AsRef<[u8]>) -> Result<String, Error> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotText)
    }

    /// Sets a node's value, making the node and those above it if they are missing.
    ///
    /// # Errors
    /// `EACCES`, `ENOSPC`; [`Error::TooLong`] for a value that does not fit a message with its path.
    fn write(&self, path: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.scope().call(Op::Write, &[string(path.as_ref())?, b"\0", value.as_ref()], |_| ())
    }

    /// Makes a node with an empty value if it is missing.
    ///
    /// # Errors
    /// `EACCES`, `ENOSPC`.
    fn mkdir(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.scope().call(Op::Mkdir, &[string(path.as_ref())?, b"\0"], |_| ())
    }

    /// Removes a node and all below it. One that is missing while its parent is there counts as removed.
    ///
    /// # Errors
    /// `ENOENT` when the parent is missing too, `EACCES`.
    fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.scope().call(Op::Rm, &[string(path.as_ref())?, b"\0"], |_| ())
    }

    /// Whether a node is there and may be read.
    ///
    /// # Errors
    /// Those of [`Self::read`] but `ENOENT`.
    fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self.scope().call(Op::Read, &[string(path.as_ref())?, b"\0"], |_| ()) {
            Err(Error::Refused(XsError::NoEnt)) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// The names of a node's children in the daemon's order, however many there are.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`; `EAGAIN` when a long list changed each time that it was read, which a transaction avoids.
    fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>, Error> {
        let path = string(path.as_ref())?;
        let scope = self.scope();
        let names =
            directory::read(&LongLists(scope), path, |names| directory::split(names).map(<[u8]>::to_vec).collect())?;
        Ok(names)
    }

    /// A node's permissions; the first entry is the owner with what all others may do.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`.
    fn permissions(&self, path: impl AsRef<[u8]>) -> Result<Vec<Permission>, Error> {
        self.scope().call(Op::GetPerms, &[string(path.as_ref())?, b"\0"], permission::parse_list)?
    }

    /// Sets a node's permissions; only its owner and the privileged domain may.
    ///
    /// # Errors
    /// `EACCES`, `EPERM` for another owner, `ENOENT`, `ENOSPC`.
    fn set_permissions(&self, path: impl AsRef<[u8]>, permissions: &[Permission]) -> Result<(), Error> {
        let list: String = permissions.iter().map(|entry| format!("{entry}\0")).collect();
        self.scope().call(Op::SetPerms, &[string(path.as_ref())?, b"\0", list.as_bytes()], |_| ())
    }
}

/// Lists in parts, with a transaction of its own where the caller has none.
struct LongLists<'a>(Scope<'a>);

impl directory::Requests for LongLists<'_> {
    type Transaction = u32;

    fn request<R>(
        &self,
        op: Op,
        transaction: Option<&u32>,
        parts: &[&[u8]],
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        self.0.client.call(op, transaction.copied().unwrap_or(self.0.tx_id), parts, take)
    }

    fn request_all(
        &self,
        op: Op,
        transaction: Option<&u32>,
        payloads: &[Vec<u8>],
        take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let client = self.0.client;
        client.link().request_all(op, transaction.copied().unwrap_or(self.0.tx_id), payloads, client.until(), take)
    }

    fn takes_batches(&self) -> bool {
        self.0.client.link().takes_batches()
    }

    fn start(&self) -> Option<u32> {
        let client = self.0.client;
        if self.0.tx_id == 0 { client.link().start_transaction(client.until()).ok() } else { None }
    }

    fn end(&self, transaction: u32) {
        let client = self.0.client;
        // Nothing was changed in it; if it is gone, so much the better.
        let _ended = client.link().end_transaction(transaction, false, client.until());
    }
}
