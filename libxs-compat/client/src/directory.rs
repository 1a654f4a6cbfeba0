//! The names of a node's children, also where they do not fit one message.
//!
//! A short list comes with one `DIRECTORY`. A longer one is refused with `E2BIG` and read by `DIRECTORY_PART`, each
//! part with the list's generation (`docs/misc/xenstore.txt`). When that changes, reading starts anew: a list is always
//! that of one moment.

use crate::error::Error;
use xenstore_wire::{Op, PAYLOAD_MAX, XsError};

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

    /// Makes several requests of one type in a row, and hands their answers over in that order.
    ///
    /// # Errors
    /// The first error of all.
    fn request_all(
        &self,
        op: Op,
        transaction: Option<&Self::Transaction>,
        payloads: &[Vec<u8>],
        take: impl FnMut(&[u8]),
    ) -> Result<(), Error>;

    /// Whether requests in a row cost less than one after the other.
    fn takes_batches(&self) -> bool;

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

/// Bytes between the beginnings of two parts that are asked for at once. A part holds whole names, and is longer than
/// this unless names are very long.
const STRIDE: usize = PAYLOAD_MAX - 256;

/// Parts that are asked for at once, at first and at most.
const FIRST_PARTS: usize = 4;
const MOST_PARTS: usize = 32;

/// Reads a list in parts; `None` when it changed meanwhile.
///
/// A part may begin anywhere, so that several are asked for at once, and overlap.
fn read_whole<Q: Requests>(
    requests: &Q,
    path: &[u8],
    transaction: Option<&Q::Transaction>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut list = List { names: Vec::new(), generation: None, end: End::Open };
    let (first, most) = if requests.takes_batches() { (FIRST_PARTS, MOST_PARTS) } else { (1, 1) };
    let mut count = first;
    loop {
        let begin = list.names.len();
        let offsets: Vec<_> = (0..count).map(|part| begin + part * STRIDE).collect();
        let payload = |offset: &usize| [path, b"\0", offset.to_string().as_bytes(), b"\0"].concat();
        let payloads: Vec<_> = offsets.iter().map(payload).collect();
        let mut offsets = offsets.into_iter();
        let read = requests.request_all(Op::DirectoryPart, transaction, &payloads, |payload| {
            if let Some(offset) = offsets.next() {
                list.add(offset, payload);
            }
        });
        match (read, list.end) {
            (_, End::Changed) => return Ok(None),
            (Err(Error::Refused(XsError::NoSys)), _) => return Err(Error::Refused(XsError::TooBig)),
            (Err(error), _) => return Err(error),
            (Ok(()), End::Reached) => return Ok(Some(list.names)),
            (Ok(()), End::Malformed) => return Err(Error::Malformed("a part of a directory")),
            (Ok(()), End::Open) if list.names.len() == begin => {
                return Err(Error::Malformed("a part of a directory without a name"));
            }
            // Where parts are shorter than the stride, they are asked for one by one.
            (Ok(()), End::Open) if list.names.len() < begin + count.min(2) * STRIDE => count = 1,
            (Ok(()), End::Open) => count = (count * 2).min(most),
        }
    }
}

/// A list as far as it is known.
struct List {
    names: Vec<u8>,
    generation: Option<Vec<u8>>,
    end: End,
}

/// How far a list is known.
#[derive(Clone, Copy)]
enum End {
    Open,
    Reached,
    Changed,
    Malformed,
}

impl List {
    /// Adds a part that begins at `offset`.
    fn add(&mut self, offset: usize, payload: &[u8]) {
        if !matches!(self.end, End::Open) {
            return;
        }
        let Some(nul) = payload.iter().position(|&byte| byte == 0) else {
            self.end = End::Malformed;
            return;
        };
        let (generation, part) = (&payload[..nul], &payload[nul + 1..]);
        match &self.generation {
            None => self.generation = Some(generation.to_vec()),
            Some(before) if before != generation => {
                self.end = End::Changed;
                return;
            }
            Some(_) => {}
        }
        // What is known of the part already; behind a gap, nothing of it can be used.
        let Some(known) = self.names.len().checked_sub(offset) else { return };
        // An empty string behind the last name says that it is the last.
        let (last, part) = match part {
            [] | [0] => (true, &part[..0]),
            [.., 0, 0] => (true, &part[..part.len() - 1]),
            _ => (false, part),
        };
        let (old, new) = part.split_at(known.min(part.len()));
        if !self.names[offset..].starts_with(old) {
            self.end = End::Malformed;
            return;
        }
        self.names.extend_from_slice(new);
        if last {
            self.end = End::Reached;
        }
    }
}
