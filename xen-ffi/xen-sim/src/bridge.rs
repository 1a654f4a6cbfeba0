//! Unix sockets that carry guests' rings.
//!
//! One client at a time speaks as a guest; the next one waits until it has gone. To be a guest that has just started,
//! a client that follows another gets a clean line: what its predecessor left half said is filled up with zeroes, its
//! watches and transactions are dropped by RESET_WATCHES, as Linux does when it starts, and everything up to the
//! answer to that is thrown away.

use crate::broker::{guest_token, listen};
use crate::domains::no_domain;
use crate::guest::Guest;
use crate::host::Inner;
use crate::ring::Word;
use mio::Interest;
use mio::net::UnixListener;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use xenstore_wire::{HEADER_SIZE, Header, Op, PAYLOAD_MAX, put_message};

/// How often a bridge that waits looks whether it still should.
const LOOK: Duration = Duration::from_millis(100);

/// How long the daemon may take to give a client a clean line.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// Number of the request that cleans the line.
const CLEAN_UP_REQUEST: u32 = 0xffff_fffe;

/// The sockets on offer.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<u16, Offer>>);

#[derive(Debug)]
struct Offer {
    listener: UnixListener,
    line: Arc<Mutex<Line>>,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the last client left the two streams of bytes.
#[derive(Debug, Default)]
struct Line {
    used: bool,
    requests: Framing,
    responses: Framing,
    /// The guest's own indices then: when they differ now, the ring was set back and both streams began anew.
    indices: (u32, u32),
}

/// Follows a stream of messages.
#[derive(Clone, Debug, Default)]
struct Framing {
    head: Vec<u8>,
    /// Bytes of payload that are to come.
    left: usize,
}

impl Framing {
    /// Passes bytes; gives the header of each message that ends within them.
    fn pass(&mut self, mut bytes: &[u8]) -> Vec<Header> {
        let mut ended = Vec::new();
        loop {
            let missing = HEADER_SIZE - self.head.len();
            if missing > 0 {
                let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                let Some(head) = self.head.first_chunk() else { return ended };
                // A daemon takes no longer ones: the ring is of no use after such a header anyway.
                self.left = (Header::decode(head).len as usize).min(PAYLOAD_MAX);
            }
            let payload = self.left.min(bytes.len());
            bytes = &bytes[payload..];
            self.left -= payload;
            if self.left > 0 {
                return ended;
            }
            ended.extend(self.head.first_chunk().map(Header::decode));
            self.head.clear();
            if bytes.is_empty() {
                return ended;
            }
        }
    }

    /// The bytes that end a message that has begun.
    fn filling(&self) -> Vec<u8> {
        if self.head.is_empty() {
            return Vec::new();
        }
        let missing = HEADER_SIZE - self.head.len();
        let payload = if missing == 0 {
            self.left
        } else {
            // Zeroes in the rest of the header may leave part of a length.
            let mut head = [0; HEADER_SIZE];
            head[..self.head.len()].copy_from_slice(&self.head);
            (Header::decode(&head).len as usize).min(PAYLOAD_MAX)
        };
        vec![0; missing + payload]
    }
}

fn socket_path(inner: &Inner, domid: u16) -> PathBuf {
    inner.dir.join(format!("guest-{domid}.sock"))
}

/// Offers the ring of a domain as a socket, unless it is on offer already.
pub(crate) fn offer(inner: &Inner, domid: u16) -> io::Result<()> {
    inner.domain(domid).ok_or_else(|| no_domain(domid))?;
    let mut lines = inner.lines.lock();
    if let Entry::Vacant(place) = lines.entry(domid) {
        let mut listener = listen(&socket_path(inner, domid))?;
        inner.registry.register(&mut listener, guest_token(domid), Interest::READABLE)?;
        place.insert(Offer { listener, line: Arc::default() });
    }
    Ok(())
}

/// Takes a domain's socket away.
pub(crate) fn withdraw(inner: &Inner, domid: u16) {
    if let Some(mut offer) = inner.lines.lock().remove(&domid) {
        let _ = inner.registry.deregister(&mut offer.listener);
        let _ = fs::remove_file(socket_path(inner, domid));
    }
}

/// Takes all sockets away.
pub(crate) fn withdraw_all(inner: &Inner) {
    let domids: Vec<u16> = inner.lines.lock().keys().copied().collect();
    for domid in domids {
        withdraw(inner, domid);
    }
}

/// Takes in all who have connected to a guest's socket.
pub(crate) fn accept(inner: &Arc<Inner>, domid: u16) {
    let lines = inner.lines.lock();
    let Some(offer) = lines.get(&domid) else { return };
    while let Ok((stream, _)) = offer.listener.accept() {
        let stream = UnixStream::from(OwnedFd::from(stream));
        let Ok(guest) = Guest::new(inner, domid) else { continue };
        let session = Session { inner: Arc::clone(inner), stream, over: AtomicBool::new(false) };
        let line = Arc::clone(&offer.line);
        // A thread that cannot start drops the connection, and the client sees that.
        let _ = thread::Builder::new().name(format!("xen-sim guest {domid}")).spawn(move || {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            session.run(guest, &mut line);
        });
    }
}

struct Session {
    inner: Arc<Inner>,
    stream: UnixStream,
    /// One of the two directions has ended.
    over: AtomicBool,
}

impl Session {
    fn run(self, mut sender: Guest, line: &mut Line) {
        let domid = sender.domid();
        let Ok(mut receiver) = Guest::new(&self.inner, domid) else { return };
        if self.stream.set_nonblocking(false).is_err() {
            return;
        }
        if line.used {
            if line.indices != (sender.word(Word::ReqProd), sender.word(Word::RspCons)) {
                line.requests = Framing::default();
                line.responses = Framing::default();
            }
            // A daemon that gives no answer now may do so later; the client finds out.
            let _ = self.clean_up(&mut sender, line);
        }
        line.used = true;
        let mut responses = line.responses.clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                // Whatever ended it, the client sees its connection closed.
                let _ = self.carry_responses(&mut receiver, &mut responses);
                self.end(&receiver);
            });
            let _ = self.carry_requests(&mut sender, &mut line.requests);
            self.end(&sender);
        });
        line.responses = responses;
        line.indices = (sender.word(Word::ReqProd), sender.word(Word::RspCons));
    }

    fn end(&self, guest: &Guest) {
        self.over.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
        guest.wake_waiters();
    }

    fn is_over(&self, guest: &Guest) -> bool {
        self.over.load(SeqCst) || self.inner.is_closing() || !guest.exists()
    }

    fn clean_up(&self, guest: &mut Guest, line: &mut Line) -> io::Result<()> {
        let deadline = Instant::now() + CLEAN_UP;
        let mut request = line.requests.filling();
        put_message(&mut request, Op::ResetWatches.number(), CLEAN_UP_REQUEST, 0, b"\0");
        let mut rest = request.as_slice();
        let mut buffer = [0; 1024];
        loop {
            let sent = guest.try_send(rest)?;
            line.requests.pass(&rest[..sent]);
            rest = &rest[sent..];
            let received = guest.try_receive(&mut buffer)?;
            let ended = line.responses.pass(&buffer[..received]);
            if ended.iter().any(|header| header.req_id == CLEAN_UP_REQUEST) {
                return Ok(());
            }
            if Instant::now() >= deadline || self.is_over(guest) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if sent == 0 && received == 0 {
                guest.wait(LOOK);
            }
        }
    }

    fn carry_requests(&self, guest: &mut Guest, framing: &mut Framing) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let len = (&self.stream).read(&mut buffer)?;
            if len == 0 {
                // It may have closed only its writing half.
                while !self.is_over(guest) && !self.client_is_gone() {
                    thread::sleep(LOOK);
                }
                return Ok(());
            }
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                let sent = guest.try_send(rest)?;
                framing.pass(&rest[..sent]);
                rest = &rest[sent..];
                if sent == 0 && !guest.wait(LOOK) && (self.is_over(guest) || self.client_is_gone()) {
                    return Ok(());
                }
            }
        }
    }

    fn carry_responses(&self, guest: &mut Guest, framing: &mut Framing) -> io::Result<()> {
        let mut buffer = [0; 1024];
        while !self.is_over(guest) {
            let len = guest.try_receive(&mut buffer)?;
            framing.pass(&buffer[..len]);
            (&self.stream).write_all(&buffer[..len])?;
            if len == 0 {
                guest.wait(LOOK);
            }
        }
        Ok(())
    }

    /// Whether the client has closed its connection altogether.
    fn client_is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_follows_messages_in_any_split() {
        let mut bytes = Vec::new();
        for len in [0, 1, 40] {
            put_message(&mut bytes, 2, len, 0, &vec![7; len as usize]);
        }
        for split in 1..bytes.len() {
            let mut framing = Framing::default();
            let ended: Vec<u32> = bytes.chunks(split).flat_map(|part| framing.pass(part)).map(|h| h.req_id).collect();
            assert_eq!(ended, [0, 1, 40], "in parts of {split}");
            assert!(framing.filling().is_empty());
        }
    }

    #[test]
    fn what_is_half_said_can_be_filled_up() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 2, 9, 0, b"/some/path\0");
        for cut in 1..bytes.len() {
            let mut framing = Framing::default();
            assert!(framing.pass(&bytes[..cut]).is_empty());
            let filling = framing.filling();
            assert_eq!(framing.pass(&filling).len(), 1, "cut at {cut}");
        }
    }
}
