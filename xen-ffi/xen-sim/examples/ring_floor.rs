//! The least that a store daemon can do: it takes INTRODUCE on its socket and answers every request of a guest by
//! `OK`, serving only rings whose event has come. It keeps no store. What it costs a request is the floor under every
//! daemon on the same host; and it shows that the wrappers of the Xen libraries work on a simulated one.
//!
//!     xen-sim run --dir DIR --domains N -- …/examples/ring_floor

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xen_ffi::event_channel::{AcrossExec, BoundPort, EventChannels};
use xen_ffi::grant_table::GrantTable;
use xen_ffi::ring::Ring;
use xen_ffi::{DomId, GrantRef, Port};
use xenstore_wire::{Decoder, put_ok};

struct Guest {
    port: BoundPort,
    ring: Ring,
    requests: Decoder,
    /// Replies that found no room.
    replies: Vec<u8>,
}

struct Daemon {
    channels: EventChannels,
    grants: GrantTable,
    /// By local port.
    guests: BTreeMap<Port, Guest>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let socket = env::var_os("XENSTORED_PATH").ok_or("XENSTORED_PATH is not set")?;
    let mut daemon = Daemon {
        channels: EventChannels::open(AcrossExec::Close)?,
        grants: GrantTable::open()?,
        guests: BTreeMap::new(),
    };
    let listener = UnixListener::bind(Path::new(&socket))?;
    let mut clients: Vec<UnixStream> = Vec::new();
    loop {
        let mut fds = vec![
            PollFd::new(daemon.channels.as_fd(), PollFlags::POLLIN),
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(clients.iter().map(|client| PollFd::new(client.as_fd(), PollFlags::POLLIN)));
        poll(&mut fds, PollTimeout::NONE)?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready[0] {
            daemon.serve_event()?;
        }
        // From the last one on, so that those still to be looked at keep their places.
        for index in (0..clients.len()).rev() {
            if ready[2 + index] && !daemon.serve_client(&mut clients[index])? {
                clients.swap_remove(index);
            }
        }
        if ready[1] {
            clients.push(listener.accept()?.0);
        }
    }
}

impl Daemon {
    fn serve_event(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(port) = self.channels.pending()? else { return Ok(()) };
        self.channels.unmask(port)?;
        let Some(guest) = self.guests.get_mut(&port) else { return Ok(()) };
        let mut buffer = [0; 1024];
        let taken = guest.ring.read(&mut buffer)?;
        guest.requests.push(&buffer[..taken]);
        while let Some(message) = guest.requests.next_message()? {
            put_ok(&mut guest.replies, &message.header);
        }
        let put = guest.ring.write(&guest.replies)?;
        guest.replies.drain(..put);
        if taken + put > 0 {
            guest.port.notify()?;
        }
        Ok(())
    }

    /// Serves one request of a client; says whether the client is still there.
    fn serve_client(&mut self, client: &mut UnixStream) -> Result<bool, Box<dyn Error>> {
        let mut requests = Decoder::new();
        let mut buffer = [0; 1024];
        let header = loop {
            let taken = client.read(&mut buffer)?;
            if taken == 0 {
                return Ok(false);
            }
            requests.push(&buffer[..taken]);
            if let Some(message) = requests.next_message()? {
                if message.header.op == xenstore_wire::Op::Introduce.number() {
                    self.introduce(message.payload)?;
                }
                break message.header;
            }
        };
        let mut reply = Vec::new();
        put_ok(&mut reply, &header);
        client.write_all(&reply)?;
        Ok(true)
    }

    fn introduce(&mut self, payload: &[u8]) -> Result<(), Box<dyn Error>> {
        let text = str::from_utf8(payload)?;
        let [domid, _gfn, port, ""] = text.split('\0').collect::<Vec<_>>()[..] else { return Err(text.into()) };
        let domain = DomId(domid.parse()?);
        let ring = Ring::new(self.grants.map(domain, GrantRef(1))?);
        let port = self.channels.bind_interdomain(domain, Port(port.parse()?))?;
        let guest = Guest { ring, requests: Decoder::new(), replies: Vec::new(), port };
        self.guests.insert(guest.port.port(), guest);
        Ok(())
    }
}
