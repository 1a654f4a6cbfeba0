//! The floor: an epoll loop that answers with the right number of bytes, and has no store behind it.
//!
//! One `epoll_wait`, one `read` and one `write` a turn; all whole requests of one read are answered with one write.
//! No store daemon that serves sockets one request at a time can cost less, so its cost is the yardstick. It learns
//! the size of the answer from the request's transaction id.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use xenstore_wire::{Header, Message, PAYLOAD_MAX, split_message};

/// Token of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

/// A connection, and the start of a request whose rest has not come.
#[derive(Debug)]
pub(crate) struct Echo {
    stream: UnixStream,
    partial: Vec<u8>,
}

/// Serves `socket` until it is killed.
///
/// # Errors
/// Those of the listener and of epoll. A connection that fails is closed.
pub(crate) fn serve(socket: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut connections: Vec<Option<Echo>> = Vec::new();
    let mut events = [EpollEvent::empty(); 64];
    let mut input = vec![0; 64 * 1024];
    let mut output = Vec::new();
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(nix::Error::EINTR) => 0,
            other => other?,
        };
        for event in &events[..count] {
            if event.data() == LISTENER {
                let (stream, _) = listener.accept()?;
                epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, connections.len() as u64))?;
                connections.push(Some(Echo::new(stream)));
                continue;
            }
            let slot = usize::try_from(event.data()).ok().and_then(|index| connections.get_mut(index));
            if let Some(slot) = slot
                && let Some(echo) = slot
                && !echo.turn(&mut input, &mut output, |_| {})
            {
                *slot = None;
            }
        }
    }
}

impl Echo {
    /// Echoes on `stream`.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, partial: Vec::new() }
    }

    /// One read and one write, and `note` for each request in between; false when the connection is over.
    pub(crate) fn turn(&mut self, input: &mut [u8], output: &mut Vec<u8>, note: impl FnMut(&Message<'_>)) -> bool {
        let count = match self.stream.read(input) {
            Ok(0) | Err(_) => return false,
            Ok(count) => count,
        };
        output.clear();
        if !answer_all(&mut self.partial, &input[..count], output, note) {
            return false;
        }
        output.is_empty() || self.stream.write_all(output).is_ok()
    }
}

/// Answers every whole request of `partial` and `bytes` together and keeps what is left in `partial`; false for a
/// stream that cannot be followed.
pub(crate) fn answer_all(
    partial: &mut Vec<u8>,
    bytes: &[u8],
    output: &mut Vec<u8>,
    note: impl FnMut(&Message<'_>),
) -> bool {
    if partial.is_empty() {
        let Some(rest) = answer(bytes, output, note) else { return false };
        partial.extend_from_slice(rest);
        return true;
    }
    let mut joined = std::mem::take(partial);
    joined.extend_from_slice(bytes);
    let Some(rest) = answer(&joined, output, note) else { return false };
    partial.extend_from_slice(rest);
    true
}

/// Answers every whole request of `bytes` and returns what is left, or `None` for a stream that cannot be followed.
fn answer<'a>(mut bytes: &'a [u8], output: &mut Vec<u8>, mut note: impl FnMut(&Message<'_>)) -> Option<&'a [u8]> {
    while let Some((message, rest)) = split_message(bytes).ok()? {
        note(&message);
        let size = message.header.tx_id.min(u32::try_from(PAYLOAD_MAX).unwrap_or(0));
        output.extend_from_slice(&Header { len: size, ..message.header }.encode());
        output.resize(output.len() + size as usize, b'x');
        bytes = rest;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xenstore_wire::put_message;

    #[test]
    fn every_whole_request_gets_an_answer_of_the_wanted_size() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 2, 1, 8, b"/a\0");
        put_message(&mut bytes, 11, 2, 3, b"/a\0v");
        bytes.extend_from_slice(b"half");
        let mut output = Vec::new();
        let mut noted = 0;
        assert_eq!(answer(&bytes, &mut output, |_| noted += 1), Some(&b"half"[..]));
        assert_eq!(noted, 2);
        let (first, rest) = split_message(&output).unwrap().unwrap();
        let (second, rest) = split_message(rest).unwrap().unwrap();
        assert_eq!((first.header.req_id, first.payload.len()), (1, 8));
        assert_eq!((second.header.req_id, second.payload.len()), (2, 3));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_request_in_two_parts_is_answered_once_it_is_whole() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut echo = Echo::new(server);
        let (mut input, mut output) = (vec![0; 1024], Vec::new());
        let mut bytes = Vec::new();
        put_message(&mut bytes, 2, 1, 4, b"/a\0");
        client.write_all(&bytes[..10]).unwrap();
        assert!(echo.turn(&mut input, &mut output, |_| {}));
        assert!(output.is_empty());
        client.write_all(&bytes[10..]).unwrap();
        assert!(echo.turn(&mut input, &mut output, |_| {}));
        assert_eq!(output.len(), 16 + 4);
    }
}
