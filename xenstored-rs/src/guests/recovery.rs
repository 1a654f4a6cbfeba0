//! Guests after a death of the daemon: their rings are mapped again and go on where they stood.
//!
//! Rings survive by themselves, since their indices are in the guest's page. What the journal knows of a ring is where
//! the streams stood at the last record; what the page says beyond that was done by the call that the death cut off.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use mio::{Registry, Token};
use tracing::{info, warn};
use xen_ffi::Port;
use xen_ffi::domain_state::{Control, UniqueId};
use xen_ffi::event_channel::{BoundPort, EventChannels, Virq};
use xen_ffi::ring::{Indices, Ring};
use xen_ffi::xen_files::{RING_FILE, map_own_ring};
use xenstore_core::migration::{Peer, SavedConnection};
use xenstore_core::{Config, ConnId, DomId, DomainEvent};

use super::{Guests, HostError, RING_BYTES, position, xen};
use crate::journal::{HostPorts, Journaled, Reach, RingPosition, ShellState};
use crate::take_over::Taken;

/// How much of a ring's page follows from what the journal knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plausible {
    /// It goes on, and so many bytes of what waits were put into it already.
    Yes { put: u32 },
    /// The guest began afresh.
    No,
}

/// Judges a ring's indices: `at` is where the journal left it, and `waiting` bytes were to be put next.
fn judge(indices: Indices, at: RingPosition, waiting: usize) -> Plausible {
    let most = u32::try_from(RING_BYTES).unwrap_or(u32::MAX);
    // The journal may know of more than was taken out of the ring, never of less.
    let ahead = at.requests.wrapping_sub(indices.request_consumer);
    let unread = indices.request_producer.wrapping_sub(at.requests);
    let put = indices.reply_producer.wrapping_sub(at.replies);
    let unseen = indices.reply_producer.wrapping_sub(indices.reply_consumer);
    let fits = usize::try_from(put).is_ok_and(|put| put <= waiting);
    if ahead <= most && unread <= most && put <= most && unseen <= most && fits {
        Plausible::Yes { put }
    } else {
        Plausible::No
    }
}

/// The hypervisor's word on the other ends of ports: the other daemons do not hand over all that is needed to bind them
/// again. It is asked for only where it is needed.
#[derive(Debug, Default)]
struct Ends(Option<Option<Control>>);

impl Ends {
    /// The port of a domain at the other end of a local one.
    fn of(&mut self, domid: DomId, local: Port) -> Option<Port> {
        let open =
            || Control::open().map_err(|error| warn!(%error, "ports of guests can be bound by this process alone"));
        let control = self.0.get_or_insert_with(|| open().ok()).as_ref()?;
        match control.other_end(local) {
            Ok(end) => end.filter(|(at, _)| *at == xen(domid)).map(|(_, port)| port),
            Err(error) => {
                warn!(%error, domid = domid.0, "a guest's port can be bound by this process alone");
                None
            }
        }
    }
}

impl Guests {
    /// Opens what the host offers, as [`Guests::open`], and goes on with the guests of a daemon that died. With its event
    /// channels all ports are bound still; without them they are bound again.
    ///
    /// # Errors
    /// As [`Guests::open`]. A guest that cannot be reached is no error: it may have died meanwhile.
    pub(crate) fn recover(
        registry: &Registry,
        token: Token,
        channels: Option<OwnedFd>,
        state: &ShellState,
        engine: &mut Journaled,
        own: DomId,
    ) -> Result<Self, HostError> {
        let kept = channels.map(EventChannels::from_fd).transpose()?;
        let virq = kept.as_ref().and(state.ports.domain_state);
        let promised = state.reached.values().map(|reach| reach.local).collect();
        let mut guests = Self::with_channels(registry, token, kept, virq, promised)?;
        engine.host_ports(guests.ports());
        guests.let_go_of(&state.left);
        for (&domid, &reach) in &state.reached {
            let Some(conn) = engine.guest_connection(domid) else { continue };
            let at = state.positions.get(&conn).copied().unwrap_or_default();
            match guests.reattach(conn, reach, Some(at), engine, own) {
                Ok(()) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(domid = domid.0, error, "a domain of before the restart cannot be served");
                }
            }
        }
        guests.promised.clear();
        info!(guests = guests.by_domid.len(), "guests go on");
        guests.look_for_the_dead(engine, own);
        guests.look_at_domains(engine);
        Ok(guests)
    }

    /// Opens what the host offers, and goes on with the guests of another daemon that left its event channels.
    ///
    /// # Errors
    /// As [`Guests::open`]; no port was touched then. A guest that cannot be reached is no error.
    pub(crate) fn take_over(
        registry: &Registry,
        token: Token,
        taken: &mut Taken,
        engine: &mut Journaled,
        own: DomId,
    ) -> Result<Self, HostError> {
        let kept = taken.event_channels.take().map(EventChannels::from_fd).transpose()?;
        let virq = kept.as_ref().and(taken.state.domain_state_port).map(Port);
        let local_port = |saved: &SavedConnection| match saved.peer {
            Peer::Ring { local_port, .. } => Some(Port(local_port)),
            Peer::Socket { .. } => None,
        };
        let promised = taken.state.connections.iter().filter_map(local_port).collect();
        let mut guests = Self::with_channels(registry, token, kept, virq, promised)?;
        engine.host_ports(guests.ports());
        let mut ends = Ends::default();
        for (saved, &conn) in taken.state.connections.iter().zip(&taken.connections) {
            let Peer::Ring { domid, local_port, remote_port, gfn, .. } = saved.peer else { continue };
            let reach = Reach {
                domid,
                remote: remote_port.map(Port).or_else(|| ends.of(domid, Port(local_port))).unwrap_or(Port(0)),
                local: Port(local_port),
                gfn: gfn.unwrap_or(0),
                life: saved.unique_id.map(UniqueId::Hypervisor),
            };
            if let Err(error) = guests.reattach(conn, reach, None, engine, own) {
                let error = &error as &dyn std::error::Error;
                warn!(domid = domid.0, error, "a domain of the other daemon cannot be served");
            }
        }
        guests.promised.clear();
        guests.look_for_the_dead(engine, own);
        guests.look_at_domains(engine);
        Ok(guests)
    }

    /// Goes on with a guest. `at` is where the journal left its ring; without a journal, the ring itself tells.
    fn reattach(
        &mut self,
        conn: ConnId,
        reach: Reach,
        at: Option<RingPosition>,
        engine: &mut Journaled,
        own: DomId,
    ) -> Result<(), xen_ffi::Error> {
        let domid = reach.domid;
        let page = if domid == own { map_own_ring(Path::new(RING_FILE))? } else { self.map(domid, reach.gfn)? };
        let ring = Ring::new(page);
        let port = self.rebind(reach)?;
        let life = reach.life.or_else(|| self.states.get(xen(domid)).ok().and_then(|state| state.unique_id));
        let found = Reach { local: port.port(), life, ..reach };
        if let Some(life) = life {
            self.lives.insert(domid, life);
        }
        let indices = ring.indices();
        let waiting = engine.output(conn).len();
        let left = at.unwrap_or_else(|| position(&ring));
        match judge(indices, left, waiting) {
            Plausible::Yes { put } => {
                if indices.request_consumer != left.requests {
                    ring.raise_request_consumer(left.requests);
                }
                if put > 0 {
                    engine.put(conn, put as usize, position(&ring));
                }
                if at.is_none() || found != reach {
                    engine.rebound(conn, found, position(&ring));
                }
            }
            Plausible::No => {
                warn!(
                    domid = domid.0,
                    ?indices,
                    ?left,
                    "a domain began its ring afresh; what waited for it is dropped"
                );
                engine.introduce(found, position(&ring));
            }
        }
        ring.set_features(engine.features(domid));
        self.add(conn, found, ring, port);
        // Signals may be lost: each side looks once.
        self.signal(conn);
        self.list(conn);
        Ok(())
    }

    /// The local port of a guest: the one of before where it is bound still, and not for another already.
    fn rebind(&mut self, reach: Reach) -> Result<BoundPort, xen_ffi::Error> {
        let taken = self.by_port.contains_key(&reach.local) || self.ports().domain_state == Some(reach.local);
        if self.channels_are_kept
            && !taken
            && let Some(port) = self.channels.adopt_if_bound(reach.local)
        {
            self.channels.unmask(port.port())?;
            return Ok(port);
        }
        self.bind(reach.domid, reach.remote)
    }

    /// Tells the engine of domains that went while no daemon was there.
    fn look_for_the_dead(&mut self, engine: &mut Journaled, own: DomId) {
        let known: Vec<DomId> = engine.known_domains().into_iter().filter(|&domid| domid != own).collect();
        let mut gone = Vec::new();
        for domid in known {
            let before = self.lives.get(&domid).copied();
            let Ok(state) = self.states.get(xen(domid)) else { continue };
            let other = state.unique_id.is_some() && before.is_some() && before != state.unique_id;
            if state.life >= xen_ffi::domain_state::Life::Dead || other {
                self.lives.remove(&domid);
                gone.push(domid);
            }
        }
        engine.domain_event(DomainEvent::Gone(gone));
    }

    /// What must be known of this daemon's own ports, should it die.
    pub(crate) fn ports(&self) -> HostPorts {
        HostPorts { domain_state: self.virq.as_ref().map(BoundPort::port) }
    }

    /// What an image must tell of the guests: how each is reached and where its ring stands.
    pub(crate) fn shell_state(&self, started: &Config) -> Vec<u8> {
        let guests = self.guests.iter().flatten();
        ShellState::encode(started, self.ports(), guests.map(|guest| (guest.conn, guest.reach, position(&guest.ring))))
    }

    /// How a guest is reached.
    pub(crate) fn reach(&self, domid: DomId) -> Option<Reach> {
        let conn = self.by_domid.get(&domid)?;
        self.guests.get(conn.index())?.as_ref().map(|guest| guest.reach)
    }

    /// Offers some features to no guest any more.
    pub(crate) fn withdraw(&self, features: u32) {
        for guest in self.guests.iter().flatten() {
            guest.ring.set_features(guest.ring.features() & !features);
        }
    }

    /// Offers each guest what it is to be offered.
    pub(crate) fn advertise(&mut self, engine: &Journaled) {
        for guest in self.guests.iter().flatten() {
            guest.ring.set_features(engine.features(guest.domid));
        }
        if self.virq.is_none() {
            self.virq = self.channels.bind_virq(Virq::DOMAIN_STATE).ok();
        }
    }

    /// Unbinds what another daemon binds itself, and tells the descriptor of all that stays bound.
    pub(crate) fn prepare_handover(&mut self) -> i32 {
        self.virq = None;
        self.channels.as_fd().as_raw_fd()
    }

    /// The descriptor of the event channels.
    pub(crate) fn channels_fd(&self) -> BorrowedFd<'_> {
        self.channels.as_fd()
    }

    /// A second descriptor of the event channels, to be kept beyond this process.
    ///
    /// # Errors
    /// If the kernel has no descriptors left.
    pub(crate) fn channels(&self) -> io::Result<OwnedFd> {
        self.channels.as_fd().try_clone_to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(request_consumer: u32, request_producer: u32, reply_consumer: u32, reply_producer: u32) -> Indices {
        Indices { request_consumer, request_producer, reply_consumer, reply_producer }
    }

    #[test]
    fn what_the_journal_left_goes_on() {
        let at = RingPosition { requests: 100, replies: 500 };
        assert_eq!(judge(indices(100, 100, 500, 500), at, 0), Plausible::Yes { put: 0 });
        assert_eq!(judge(indices(60, 180, 480, 519), at, 19), Plausible::Yes { put: 19 });
        assert_eq!(
            judge(indices(100, 1124, 0, 1024), RingPosition { requests: 100, replies: 0 }, 1024),
            Plausible::Yes { put: 1024 }
        );
        let wrapped = RingPosition { requests: 10, replies: 5 };
        assert_eq!(judge(indices(u32::MAX - 20, 10, 0, 5), wrapped, 0), Plausible::Yes { put: 0 });
    }

    #[test]
    fn what_cannot_follow_is_a_fresh_start() {
        let at = RingPosition { requests: 5000, replies: 7000 };
        for (indices, waiting) in [
            (indices(0, 0, 0, 0), 0),
            (indices(5000, 5000, 7000, 7001), 0),
            (indices(5000, 5000, 7000, 8025), 4096),
            (indices(5001, 5001, 7000, 7000), 0),
            (indices(5000, 6025, 7000, 7000), 0),
            (indices(5000, 4999, 7000, 7000), 0),
            (indices(5000, 5000, 0, 7000), 0),
        ] {
            assert_eq!(judge(indices, at, waiting), Plausible::No, "{indices:?}");
        }
    }

    #[test]
    fn ports_are_numbers_from_one_on() {
        assert_eq!(HostPorts::default(), HostPorts { domain_state: None::<Port> });
    }
}
