//! The floor: an epoll loop that answers with the right number of bytes, and has no store behind it.
//!
//! One `epoll_wait`, one `read` and one `write` a turn; all whole requests of one read are answered with one write.
//! No store daemon that serves sockets one request at a time can cost less, so its cost is the yardstick. It learns
//! the size of the answer from the request's transaction id.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use xenstore_wire::{Header, PAYLOAD_MAX, split_message};

/// Token of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

/// A connection, and the start of a request whose rest has not come.
#[derive(Debug)]
struct Echo {
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
                connections.push(Some(Echo { stream, partial: Vec::new() }));
                continue;
            }
            let slot = usize::try_from(event.data()).ok().and_then(|index| connections.get_mut(index));
            if let Some(slot) = slot
                && let Some(echo) = slot
                && !turn(echo, &mut input, &mut output)
            {
                *slot = None;
            }
        }
    }
}

/// One read and one write; false when the connection is over.
fn turn(echo: &mut Echo, input: &mut [u8], output: &mut Vec<u8>) -> bool {
    let count = match echo.stream.read(input) {
        Ok(0) | Err(_) => return false,
        Ok(count) => count,
    };
    output.clear();
    if echo.partial.is_empty() {
        match answer(&input[..count], output) {
            Some(rest) => echo.partial.extend_from_slice(rest),
            None => return false,
        }
    } else {
        let mut joined = std::mem::take(&mut echo.partial);
        joined.extend_from_slice(&input[..count]);
        match answer(&joined, output) {
            Some(rest) => echo.partial.extend_from_slice(rest),
            None => return false,
        }
    }
    output.is_empty() || echo.stream.write_all(output).is_ok()
}

/// Answers every whole request of `bytes` and returns what is left, or `None` for a stream that cannot be followed.
fn answer<'a>(mut bytes: &'a [u8], output: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((message, rest)) = split_message(bytes).ok()? {
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
        assert_eq!(answer(&bytes, &mut output), Some(&b"half"[..]));
        let (first, rest) = split_message(&output).unwrap().unwrap();
        let (second, rest) = split_message(rest).unwrap().unwrap();
        assert_eq!((first.header.req_id, first.payload.len()), (1, 8));
        assert_eq!((second.header.req_id, second.payload.len()), (2, 3));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_request_in_two_parts_is_answered_once_it_is_whole() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut echo = Echo { stream: server, partial: Vec::new() };
        let (mut input, mut output) = (vec![0; 1024], Vec::new());
        let mut bytes = Vec::new();
        put_message(&mut bytes, 2, 1, 4, b"/a\0");
        client.write_all(&bytes[..10]).unwrap();
        assert!(turn(&mut echo, &mut input, &mut output));
        assert!(output.is_empty());
        client.write_all(&bytes[10..]).unwrap();
        assert!(turn(&mut echo, &mut input, &mut output));
        assert_eq!(output.len(), 16 + 4);
    }
}
