//! The names of a node's children, also where they do not fit one message.
//!
//! A short list comes with one `DIRECTORY`. A longer one is refused with `E2BIG` and read by `DIRECTORY_PART`, each
//! part with the list's generation (`docs/misc/xenstore.txt`). When that changes, reading starts anew: a list is always
//! that of one moment.

use crate::error::Error;
use xenstore_wire::{Op, XsError};

/// Times that a list may change while it is read before it is read in a transaction, where it cannot change, and
/// before we give up where there is none to be had.
const TRIES_OUTSIDE: u32 = 4;
const TRIES: u32 = 64;

/// How requests are made, for one caller and in the transaction that the caller is in, if any.
pub trait Requests {
    /// A transaction that was opened for reading a list.
    type Transaction;

    /// Makes one request, in `transaction` if there is one.
    ///
    /// # Errors
    /// Those of the daemon and of the connection.
    fn request<R>(
        &self,
        op: Op,
        transaction: Option<&Self::Transaction>,
        parts: &[&[u8]],
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error>;

    /// Opens a transaction, unless the caller is in one or it cannot be had.
    fn start(&self) -> Option<Self::Transaction>;

    /// Gives a transaction up.
    fn end(&self, transaction: Self::Transaction);
}

/// Reads the names of the children of `path`, each with its NUL, and hands them to `take`.
///
/// # Errors
/// Those of the daemon: `ENOENT`, `EACCES`, and `E2BIG` from one that cannot give a long list in parts. `EAGAIN` when
/// the list changed again and again.
pub fn read<R>(requests: &impl Requests, path: &[u8], take: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
    let mut take = Some(take);
    let short = requests.request(Op::Directory, None, &[path, b"\0"], |names| take.take().map(|take| take(names)));
    match (short, take) {
        (Ok(Some(done)), _) => Ok(done),
        (Err(Error::Refused(XsError::TooBig)), Some(take)) => Ok(take(&read_parts(requests, path)?)),
        (Err(error), _) => Err(error),
        (Ok(None), _) => Err(Error::Malformed("a second answer")),
    }
}

/// The names in a list as [`read`] gives it.
pub fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split_inclusive(|&byte| byte == 0).map(|name| name.strip_suffix(b"\0").unwrap_or(name))
}

fn read_parts(requests: &impl Requests, path: &[u8]) -> Result<Vec<u8>, Error> {
    for attempt in 0..TRIES {
        if attempt >= TRIES_OUTSIDE
            && let Some(transaction) = requests.start()
        {
            let whole = read_whole(requests, path, Some(&transaction));
            requests.end(transaction);
            match whole {
                Ok(None) | Err(Error::TransactionLost) => continue,
                done => return done.and_then(|names| names.ok_or(Error::Refused(XsError::Again))),
            }
        }
        if let Some(names) = read_whole(requests, path, None)? {
            return Ok(names);
        }
    }
    Err(Error::Refused(XsError::Again))
}

/// Reads a list part by part; `None` when it changed meanwhile.
fn read_whole<Q: Requests>(
    requests: &Q,
    path: &[u8],
    transaction: Option<&Q::Transaction>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut names = Vec::new();
    let mut generation: Option<Vec<u8>> = None;
    loop {
        let offset = names.len().to_string();
        let parts = [path, b"\0", offset.as_bytes(), b"\0"];
        let step = requests.request(Op::DirectoryPart, transaction, &parts, |payload| {
            let Some(nul) = payload.iter().position(|&byte| byte == 0) else { return Step::Malformed };
            let (now, part) = (&payload[..nul], &payload[nul + 1..]);
            match &generation {
                None => generation = Some(now.to_vec()),
                Some(then) if then != now => return Step::Changed,
                Some(_) => {}
            }
            // An empty string behind the last name says that it is the last.
            let (last, part) = match part {
                [] | [0] => (true, &part[..0]),
                [.., 0, 0] => (true, &part[..part.len() - 1]),
                _ => (false, part),
            };
            names.extend_from_slice(part);
            if last { Step::Last } else { Step::More }
        });
        match step {
            Ok(Step::More) => {}
            Ok(Step::Last) => return Ok(Some(names)),
            Ok(Step::Changed) => return Ok(None),
            Ok(Step::Malformed) => return Err(Error::Malformed("a part of a directory")),
            Err(Error::Refused(XsError::NoSys)) => return Err(Error::Refused(XsError::TooBig)),
            Err(error) => return Err(error),
        }
    }
}

/// What a part was.
enum Step {
    More,
    Last,
    Changed,
    Malformed,
}
