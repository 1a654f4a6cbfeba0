//! The floor under daemons that serve guests: it answers with the right number of bytes, and has no store behind it.
//!
//! It takes INTRODUCE on its socket, and looks at a ring only when its event has come: one `epoll_wait` and one read of
//! the event device for each. No daemon that serves rings one request at a time can cost less on the same host, whatever
//! the number of guests. As on the socket, the size of an answer comes with the request.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use xen_ffi::event_channel::{AcrossExec, BoundPort, EventChannels};
use xen_ffi::grant_table::GrantTable;
use xen_ffi::ring::{RING_SIZE, Ring};
use xen_ffi::{DomId, GrantRef, Port};
use xenstore_wire::{Op, payload};

use crate::client::{Failure, Outcome};
use crate::floor::{Echo, answer_all};

/// Token of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

/// Token of the event device.
const EVENTS: u64 = u64::MAX - 1;

/// A guest that was introduced.
#[derive(Debug)]
struct Guest {
    ring: Ring,
    port: BoundPort,
    partial: Vec<u8>,
    /// Answers that found no room.
    output: Vec<u8>,
}

/// What there is of Xen.
#[derive(Debug)]
struct Guests {
    channels: EventChannels,
    grants: GrantTable,
    /// By the number of the local port.
    by_port: Vec<Option<Guest>>,
}

/// Serves `socket` and the rings of the guests that are introduced there, until it is killed.
///
/// # Errors
/// Those of the listener, of epoll and of the Xen libraries. A connection that fails is closed.
pub(crate) fn serve(socket: &Path) -> Outcome<()> {
    let channels = EventChannels::open(AcrossExec::Close).map_err(unusable)?;
    let grants = GrantTable::open().map_err(unusable)?;
    let mut guests = Guests { channels, grants, by_port: Vec::new() };
    let listener = UnixListener::bind(socket)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    epoll.add(guests.channels.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, EVENTS))?;
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
            match event.data() {
                EVENTS => guests.serve()?,
                LISTENER => {
                    let (stream, _) = listener.accept()?;
                    epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, connections.len() as u64))?;
                    connections.push(Some(Echo::new(stream)));
                }
                index => {
                    let slot = usize::try_from(index).ok().and_then(|index| connections.get_mut(index));
                    let Some(slot) = slot else { continue };
                    let Some(echo) = slot else { continue };
                    let mut failed = Ok(());
                    let open = echo.turn(&mut input, &mut output, |message| {
                        if message.header.op == Op::Introduce.number() {
                            failed = guests.introduce(message.payload);
                        }
                    });
                    failed?;
                    if !open {
                        *slot = None;
                    }
                }
            }
        }
    }
}

impl Guests {
    /// Takes one event and serves its ring.
    fn serve(&mut self) -> Outcome<()> {
        let Some(port) = self.channels.pending().map_err(unusable)? else { return Ok(()) };
        self.channels.unmask(port).map_err(unusable)?;
        let Some(guest) = self.by_port.get_mut(port.0 as usize).and_then(Option::as_mut) else { return Ok(()) };
        let mut input = [0; RING_SIZE as usize];
        let taken = guest.ring.read(&mut input).map_err(unusable)?;
        if !answer_all(&mut guest.partial, &input[..taken], &mut guest.output, |_| {}) {
            return Err(Failure::Unusable("a guest's requests cannot be followed".to_owned()));
        }
        let put = guest.ring.write(&guest.output).map_err(unusable)?;
        guest.output.drain(..put);
        if taken + put > 0 {
            guest.port.notify().map_err(unusable)?;
        }
        Ok(())
    }

    /// INTRODUCE `domid|gfn|port|`.
    fn introduce(&mut self, body: &[u8]) -> Outcome<()> {
        let [domid, _gfn, port] = payload::exactly::<3>(body).map_err(unusable)?;
        let domid = DomId(payload::number(domid).map_err(unusable)?);
        let remote = Port(payload::number(port).map_err(unusable)?);
        let ring = Ring::new(self.grants.map(domid, GrantRef::XENSTORE).map_err(unusable)?);
        let port = self.channels.bind_interdomain(domid, remote).map_err(unusable)?;
        let at = port.port().0 as usize;
        if self.by_port.len() <= at {
            self.by_port.resize_with(at + 1, || None);
        }
        self.by_port[at] = Some(Guest { ring, port, partial: Vec::new(), output: Vec::new() });
        Ok(())
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    io::Error::other(error.to_string()).into()
}
