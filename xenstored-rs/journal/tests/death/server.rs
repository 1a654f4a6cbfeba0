//! The server that is killed. Its clients are its standard input and output.

use std::{
    io::{self, ErrorKind},
    os::fd::AsFd,
    path::Path,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xenstore_journal::{Directory, Received, TransferError};

use crate::{
    client::Random,
    streams::{CLIENTS, SENT, TAKEN, recover, rotate, take_back},
};

/// Most bytes taken at once.
pub(crate) const CHUNK: usize = 3000;

/// Serves until both clients have ended. Arguments: directory of the journal, bytes of a log, start of randomness.
pub(crate) fn serve(arguments: &[String]) {
    let [path, capacity, seed] = arguments else { panic!("{arguments:?}") };
    let mut random = Random(seed.parse().unwrap());
    let directory = Directory::open(Path::new(path)).unwrap().with_capacity(capacity.parse().unwrap());
    let (mut streams, mut log) = recover(&directory);
    let (input, output) = (io::stdin(), io::stdout());
    let sockets = [input.as_fd(), output.as_fd()];
    let mut ended = [false; CLIENTS];
    while !(ended == [true; CLIENTS] && streams.iter().all(|stream| stream.waiting.is_empty())) {
        let mark = log.mark();
        let was_idle = streams.iter().all(|stream| stream.waiting.is_empty());
        let (mut moved, mut full) = (false, false);
        for client in 0..CLIENTS {
            let (stream, conn) = (&mut streams[client], u32::try_from(client).unwrap());
            let most = random.up_to(CHUNK);
            match log.receive(sockets[client], TAKEN, conn, 1, &stream.taken.to_le_bytes(), most) {
                Ok(Received::Bytes { span, count }) => {
                    log.bytes(span.skip(8)).iter().for_each(|byte| stream.take(*byte));
                    assert_eq!(span.len(), 8 + count);
                    moved = true;
                }
                Ok(Received::End) => ended[client] = true,
                Err(TransferError::Full(_)) => full = true,
                Err(TransferError::Socket(error)) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if stream.waiting.is_empty() {
                continue;
            }
            let some = if random.up_to(4) == 1 { random.up_to(stream.waiting.len()) } else { stream.waiting.len() };
            match log.send(sockets[client], SENT, conn, 2, &stream.waiting[..some]) {
                Ok(count) => {
                    stream.waiting.drain(..count);
                    moved = true;
                }
                Err(TransferError::Full(_)) => full = true,
                Err(TransferError::Socket(error)) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if moved && was_idle && streams.iter().all(|stream| stream.waiting.is_empty()) {
            take_back(&mut log, &streams, mark);
        }
        if full {
            log = rotate(&directory, &log, &streams);
        } else if !moved {
            let wanted = |client: usize| {
                let out = if streams[client].waiting.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                if ended[client] { out } else { out | PollFlags::POLLIN }
            };
            let mut polled = [0, 1].map(|client| PollFd::new(sockets[client], wanted(client)));
            if ended != [true; CLIENTS] {
                poll(&mut polled, PollTimeout::NONE).unwrap();
            }
        }
    }
}
