//! The guests of this host: their rings and event channels.
//!
//! A guest is looked at when its event channel signals, when something is to be sent to it, or when its turn has come
//! that it waited for. Once a second all rings are looked at, for guests that forget to signal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::os::fd::{AsFd, AsRawFd};
use tracing::{info, warn};
use xen_ffi::domain_state::{DomainStates, Life, UniqueId};
use xen_ffi::event_channel::{AcrossExec, BoundPort, EventChannels, Virq};
use xen_ffi::foreign_memory::ForeignMemory;
use xen_ffi::grant_table::GrantTable;
use xen_ffi::ring::{ConnectionState, Ring, RingFault};
use xen_ffi::shared_page::SharedPage;
use xen_ffi::xen_files::{PORT_FILE, RING_FILE, map_own_ring, read_own_port};
use xen_ffi::{GrantRef, Port};
use xenstore_core::{CloseReason, ConnId, DomId, DomainEvent, Time, feature};
use xenstore_wire::XsError;

use crate::journal::{Journaled, Reach, RingPosition};
use crate::ring_limit::RingLimit;

mod recovery;
mod strays;

/// Grants that are mapped at most, as the C daemon sets it: every domain id that there can be.
const MOST_GRANTS: u32 = 32_752;

/// Bytes of a ring, which is the most that one look can bring.
const RING_BYTES: usize = 1024;

/// A guest's end in this daemon.
#[derive(Debug)]
struct Guest {
    domid: DomId,
    conn: ConnId,
    ring: Ring,
    port: Option<BoundPort>,
    /// How it was reached.
    reach: Reach,
    /// Its ring is bad, and is left alone.
    ignored: bool,
    /// In the list of guests to look at.
    listed: bool,
    /// Requests wait in its ring, since the engine takes none of them now.
    held_back: bool,
    /// It is to be signalled at the end of the turn.
    signal: bool,
    /// It was found with a request or with room that it had not signalled, and has not signalled anything since. It may
    /// be between the two.
    suspected: bool,
    /// It was told of that it forgets to signal.
    forgetful: bool,
}

/// All guests, and the handles through which they are reached.
#[derive(Debug)]
pub(crate) struct Guests {
    channels: EventChannels,
    /// They were another daemon's, with its ports bound.
    channels_are_kept: bool,
    /// Ports may be bound of which nobody knows.
    may_have_strays: bool,
    /// Ports of guests that are still to be gone on with.
    promised: BTreeSet<Port>,
    grants: GrantTable,
    limit: RingLimit,
    foreign: Option<ForeignMemory>,
    virq: Option<BoundPort>,
    states: DomainStates,
    /// The life that each domain is known to have.
    lives: BTreeMap<DomId, UniqueId>,
    /// By index of the engine's connection.
    guests: Vec<Option<Guest>>,
    by_domid: BTreeMap<DomId, ConnId>,
    by_port: BTreeMap<Port, ConnId>,
    to_look_at: Vec<ConnId>,
    /// Those of this turn.
    looking: Vec<ConnId>,
    to_signal: Vec<ConnId>,
    /// Ports that have signalled, while they are looked through.
    signalled: Vec<Port>,
}

impl Guests {
    /// Opens what the host offers, and tells of signals through `token`.
    ///
    /// # Errors
    /// Whatever the library said; without Xen, that there is none.
    pub(crate) fn open(registry: &Registry, token: Token) -> Result<Self, HostError> {
        Self::with_channels(registry, token, None, None, BTreeSet::new())
    }

    /// As [`Guests::open`], with event channels of before, of which `virq` is the port of domains' states, and the promised
    /// ones are those of guests.
    fn with_channels(
        registry: &Registry,
        token: Token,
        kept: Option<EventChannels>,
        virq: Option<Port>,
        promised: BTreeSet<Port>,
    ) -> Result<Self, HostError> {
        let channels_are_kept = kept.is_some();
        let channels = kept.map_or_else(|| EventChannels::open(AcrossExec::Close), Ok)?;
        let fd = channels.as_fd();
        let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).map_err(HostError::from_errno)?);
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(HostError::from_errno)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE).map_err(HostError::Poll)?;
        let grants = GrantTable::open()?;
        grants.set_max_grants(MOST_GRANTS)?;
        // Only needed where a guest's ring is not granted.
        let foreign = ForeignMemory::open().ok();
        let bound = match virq.and_then(|port| channels.adopt_if_bound(port)) {
            Some(port) => channels.unmask(port.port()).map(|()| port),
            None => channels.bind_virq(Virq::DOMAIN_STATE),
        };
        let (virq, failed) = match bound {
            Ok(port) => (Some(port), None),
            Err(error) => (None, Some(error)),
        };
        let mut guests = Self {
            channels,
            channels_are_kept,
            may_have_strays: channels_are_kept,
            promised: BTreeSet::new(),
            grants,
            limit: RingLimit::of_this_host(),
            foreign,
            virq,
            states: DomainStates::open()?,
            lives: BTreeMap::new(),
            guests: Vec::new(),
            by_domid: BTreeMap::new(),
            by_port: BTreeMap::new(),
            to_look_at: Vec::new(),
            looking: Vec::new(),
            to_signal: Vec::new(),
            signalled: Vec::new(),
        };
        guests.promised = promised;
        // A daemon that died in its start may have bound it.
        if failed.is_some() && guests.find_strays() {
            guests.virq = guests.channels.bind_virq(Virq::DOMAIN_STATE).ok();
        }
        if let Some(error) = failed.filter(|_| guests.virq.is_none()) {
            warn!(error = &error as &dyn std::error::Error, "deaths of domains will not be noticed");
        }
        Ok(guests)
    }

    /// Serves the ring of the domain that the daemon runs in: its kernel's.
    ///
    /// # Errors
    /// Where the kernel offers no ring, or its port cannot be bound.
    pub(crate) fn serve_own_kernel(&mut self, engine: &mut Journaled, domid: DomId) -> Result<(), HostError> {
        let ring = Ring::new(map_own_ring(Path::new(RING_FILE))?);
        let remote = read_own_port(Path::new(PORT_FILE))?;
        let port = self.channels.bind_interdomain(xen(domid), remote)?;
        ring.set_features(feature::OFFERED);
        let reach = Reach { domid, remote, local: port.port(), gfn: 0, life: None };
        let conn = engine.introduce(reach, position(&ring));
        self.add(conn, reach, ring, port);
        // The kernel may have waited for this for long.
        self.signal(conn);
        self.list(conn);
        Ok(())
    }

    /// Maps a domain's ring and binds its port, so that its requests can be served. A domain that is known already gets
    /// its port bound anew.
    ///
    /// # Errors
    /// What the host said, as near as the wire can tell.
    pub(crate) fn introduce(
        &mut self,
        engine: &Journaled,
        domid: DomId,
        gfn: u64,
        port: u32,
    ) -> Result<Prepared, XsError> {
        if let Some(&conn) = self.by_domid.get(&domid) {
            let guest = self.guest_mut(conn).ok_or(XsError::Io)?;
            let remote = guest.ring.port().unwrap_or(Port(port));
            // The port that is bound can be bound again only once it is let go; another one replaces it when it is there.
            if guest.reach.remote == remote
                && let Some(old) = guest.port.take()
            {
                self.by_port.remove(&old.port());
            }
            let bound = self.bind(domid, remote).map_err(|error| refused(domid, &error))?;
            let local = bound.port();
            let guest = self.guest_mut(conn).ok_or(XsError::Io)?;
            guest.reach = Reach { remote, local, ..guest.reach };
            let old = guest.port.replace(bound);
            guest.ring.reset();
            let reach = guest.reach;
            if let Some(old) = old {
                self.by_port.remove(&old.port());
            }
            self.by_port.insert(local, conn);
            return Ok(Prepared { reach, fresh: None });
        }
        if !self.limit.allows_one_more(self.by_domid.len(), domid.0) {
            return Err(XsError::NoMem);
        }
        let ring = Ring::new(self.map(domid, gfn).map_err(|error| refused(domid, &error))?);
        let remote = ring.port().unwrap_or(Port(port));
        let port = self.bind(domid, remote).map_err(|error| refused(domid, &error))?;
        let life = self.states.get(xen(domid)).ok().and_then(|state| state.unique_id);
        if let Some(id) = life {
            self.lives.insert(domid, id);
        }
        ring.set_features(engine.features(domid));
        ring.reset();
        let reach = Reach { domid, remote, local: port.port(), gfn, life };
        Ok(Prepared { reach, fresh: Some((ring, port)) })
    }

    /// Maps the page of a domain's ring: by its grant, or else by its frame.
    fn map(&self, domid: DomId, gfn: u64) -> Result<SharedPage, xen_ffi::Error> {
        self.grants.map(xen(domid), GrantRef::XENSTORE).or_else(|error| {
            let foreign = self.foreign.as_ref().and_then(|foreign| foreign.map(xen(domid), gfn).ok());
            foreign.ok_or(error)
        })
    }

    /// Takes a domain in whose ring [`Guests::introduce`] prepared, once the engine knows it as `conn`.
    pub(crate) fn introduced(&mut self, conn: ConnId, prepared: Prepared) {
        if let Some((ring, port)) = prepared.fresh {
            self.add(conn, prepared.reach, ring, port);
        }
        // From here on the guest may go on at once, so all else is done before.
        if let Some(guest) = self.guest_mut(conn)
            && guest.ring.connection() == ConnectionState::ReconnectRequested
        {
            guest.ring.set_connected();
        }
        self.signal(conn);
        self.list(conn);
    }

    /// Takes in the domains that run already and whose ring tells its port. Their rings go on as they are.
    pub(crate) fn introduce_running(&mut self, engine: &mut Journaled, own: DomId) {
        self.look_at_domains(engine);
        let running: Vec<DomId> = self.lives.keys().copied().filter(|&domid| domid != own).collect();
        for domid in running {
            if !self.limit.allows_one_more(self.by_domid.len(), domid.0) {
                break;
            }
            let Ok(page) = self.grants.map(xen(domid), GrantRef::XENSTORE) else { continue };
            let ring = Ring::new(page);
            let Some(remote) = ring.port() else { continue };
            match self.channels.bind_interdomain(xen(domid), remote) {
                Ok(port) => {
                    ring.set_features(engine.features(domid));
                    let life = self.lives.get(&domid).copied();
                    let reach = Reach { domid, remote, local: port.port(), gfn: 0, life };
                    let conn = engine.introduce(reach, position(&ring));
                    self.introduced(conn, Prepared { reach, fresh: Some((ring, port)) });
                    info!(domid = domid.0, "a running domain is introduced");
                }
                Err(error) => {
                    warn!(domid = domid.0, error = &error as &dyn std::error::Error, "a running domain is not served");
                }
            }
        }
    }

    /// Tells the engine what became of domains since this was last asked.
    pub(crate) fn look_at_domains(&mut self, engine: &mut Journaled) {
        let mut states = match self.states.changes() {
            Ok(changes) => changes,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the state of domains cannot be asked for");
                return;
            }
        };
        // Where changes are found by comparing, what came and went between two looks leaves no difference, and a domain
        // that resumed and shut down again none either. So those that matter are all looked at; what was told already is
        // not told again.
        states.extend(self.by_domid.keys().filter_map(|&domid| self.states.seen(xen(domid))));
        let (mut gone, mut shut_down, mut there) = (Vec::new(), Vec::new(), Vec::new());
        for state in states {
            let domid = DomId(state.domid.0);
            let alive = state.life < Life::Dead;
            let before = self.lives.get(&domid).copied();
            // Another life: the domain of before ended unseen.
            let other = alive && state.unique_id.is_some() && before.is_some() && before != state.unique_id;
            if !alive || other {
                self.lives.remove(&domid);
                gone.push(domid);
            }
            if let Some(id) = state.unique_id.filter(|_| alive) {
                self.lives.insert(domid, id);
            }
            if alive {
                there.push(domid);
            }
            if alive && state.shutdown {
                shut_down.push(domid);
            }
        }
        engine.domain_event(DomainEvent::Gone(gone));
        there.into_iter().for_each(|domid| engine.domain_event(DomainEvent::Appeared(domid)));
        engine.domain_event(DomainEvent::ShutDown(shut_down));
    }

    /// Those of `domids` that exist.
    pub(crate) fn existing(&self, domids: &[DomId]) -> Vec<DomId> {
        let exists = |&&domid: &&DomId| match self.states.get(xen(domid)) {
            Ok(state) => state.life < Life::Dead,
            Err(error) => {
                warn!(domid = domid.0, error = &error as &dyn std::error::Error, "a domain cannot be asked for");
                false
            }
        };
        domids.iter().filter(exists).copied().collect()
    }

    fn add(&mut self, conn: ConnId, reach: Reach, ring: Ring, port: BoundPort) {
        let domid = reach.domid;
        self.by_domid.insert(domid, conn);
        self.by_port.insert(port.port(), conn);
        if self.guests.len() <= conn.index() {
            self.guests.resize_with(conn.index() + 1, || None);
        }
        self.guests[conn.index()] = Some(Guest {
            domid,
            conn,
            ring,
            port: Some(port),
            reach,
            ignored: false,
            listed: false,
            held_back: false,
            signal: false,
            suspected: false,
            forgetful: false,
        });
    }

    /// Lets a ring go: unmaps it and unbinds its port.
    pub(crate) fn release(&mut self, conn: ConnId) {
        let Some(guest) = self.guests.get_mut(conn.index()).and_then(Option::take) else { return };
        if self.by_domid.get(&guest.domid) == Some(&conn) {
            self.by_domid.remove(&guest.domid);
        }
        if let Some(port) = guest.port {
            self.by_port.remove(&port.port());
        }
    }

    /// Leaves a bad ring alone from now on, and tells the guest why if it may be told.
    pub(crate) fn ignore(&mut self, conn: ConnId, reason: &CloseReason, tell: bool) {
        let Some(guest) = self.guest_mut(conn) else { return };
        guest.ignored = true;
        let fault = match reason {
            CloseReason::RingIndex => RingFault::Index,
            CloseReason::TooLong { .. } => RingFault::Protocol,
            CloseReason::OutputFull { .. } | CloseReason::Failed { .. } | CloseReason::Gone => RingFault::Communication,
        };
        if tell {
            guest.ring.set_error(Some(fault));
        }
        let domid = guest.domid.0;
        self.signal(conn);
        warn!(domid, ?fault, "a domain's ring is served no more");
    }

    /// Whether a connection is a guest's.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.guests.get(conn.index()).is_some_and(Option::is_some)
    }

    fn guest_mut(&mut self, conn: ConnId) -> Option<&mut Guest> {
        self.guests.get_mut(conn.index()).and_then(Option::as_mut)
    }

    /// Takes the signals that came in.
    pub(crate) fn take_signals(&mut self, engine: &mut Journaled) {
        // A port is masked from its signal on, so this comes to an end. Were each unmasked at once, guests that signal
        // without end would keep it going.
        let mut signalled = std::mem::take(&mut self.signalled);
        loop {
            match self.channels.pending() {
                Ok(Some(port)) => signalled.push(port),
                Ok(None) => break,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "signals of guests may be lost");
                    self.look_at_all();
                    break;
                }
            }
        }
        let mut domains_changed = false;
        for port in signalled.drain(..) {
            if self.virq.as_ref().is_some_and(|virq| virq.port() == port) {
                domains_changed = true;
            } else if let Some(&conn) = self.by_port.get(&port) {
                if let Some(guest) = self.guest_mut(conn) {
                    guest.suspected = false;
                }
                self.list(conn);
            }
            if let Err(error) = self.channels.unmask(port) {
                warn!(error = &error as &dyn std::error::Error, %port, "a port cannot be unmasked");
            }
        }
        self.signalled = signalled;
        if domains_changed {
            self.look_at_domains(engine);
        }
    }

    /// Looks at every ring in this turn.
    fn look_at_all(&mut self) {
        let all: Vec<ConnId> = self.by_domid.values().copied().collect();
        all.into_iter().for_each(|conn| self.list(conn));
    }

    /// Lists guests that have a request waiting which they did not signal, or that took replies while more wait and did
    /// not signal that. Those that still have not by the next call are told of, once. Guests that are held back are listed
    /// too: their limits may have been raised.
    pub(crate) fn look_for_forgetful(&mut self, engine: &Journaled) {
        let mut found = Vec::new();
        for guest in self.guests.iter_mut().flatten().filter(|guest| !guest.ignored) {
            if std::mem::take(&mut guest.suspected) && !std::mem::replace(&mut guest.forgetful, true) {
                info!(domid = guest.domid.0, "a domain forgets to signal");
            }
            let asks = || !guest.held_back && guest.ring.waiting() != Ok(0);
            let took = || !engine.output(guest.conn).is_empty() && guest.ring.room() != Ok(0);
            if !guest.listed && (asks() || took()) {
                guest.suspected = true;
                found.push(guest.conn);
            } else if guest.held_back {
                found.push(guest.conn);
            }
        }
        found.into_iter().for_each(|conn| self.list(conn));
    }

    /// Whether any guest's ring is served.
    pub(crate) fn any(&self) -> bool {
        !self.by_domid.is_empty()
    }

    /// Puts a guest onto the list of those to look at.
    fn list(&mut self, conn: ConnId) {
        if let Some(guest) = self.guest_mut(conn)
            && !guest.listed
        {
            guest.listed = true;
            self.to_look_at.push(conn);
        }
    }

    /// Whether guests are left to look at.
    pub(crate) fn has_work(&self, engine: &Journaled) -> bool {
        !self.to_look_at.is_empty() || engine.has_wanting()
    }

    /// Looks at the guests whose turn has come: takes requests out of their rings.
    pub(crate) fn serve(&mut self, engine: &mut Journaled, now: Time) {
        while let Some(conn) = engine.next_wanting() {
            self.list(conn);
        }
        // Guests that are listed meanwhile have their turn in the next.
        std::mem::swap(&mut self.to_look_at, &mut self.looking);
        for at in 0..self.looking.len() {
            self.look_at(self.looking[at], engine, now);
        }
        self.looking.clear();
    }

    fn look_at(&mut self, conn: ConnId, engine: &mut Journaled, now: Time) {
        let Some(guest) = self.guests.get_mut(conn.index()).and_then(Option::as_mut) else { return };
        guest.listed = false;
        guest.held_back = false;
        if guest.ignored {
            return;
        }
        if guest.ring.connection() == ConnectionState::ReconnectRequested
            && engine.features(guest.domid) & feature::RECONNECTION != 0
            && engine.reconnect(conn)
        {
            guest.ring.reset();
            guest.ring.set_connected();
            self.signal(conn);
            return;
        }
        if !engine.output(conn).is_empty() && guest.ring.room() != Ok(0) {
            self.flush(conn, engine);
        }
        let Some(guest) = self.guest_mut(conn) else { return };
        if !engine.wants_input(conn) {
            guest.held_back = true;
            engine.defer(conn);
            return;
        }
        let mut buffer = [0; RING_BYTES];
        match guest.ring.peek(&mut buffer) {
            Ok(0) => {}
            Ok(count) => {
                let bytes = &buffer[..count];
                let mut at = position(&guest.ring);
                at.requests = at.requests.wrapping_add(u32::try_from(count).unwrap_or(0));
                // What is taken is recorded before the guest learns that it is.
                engine.record_taken(conn, at, bytes);
                guest.ring.raise_request_consumer(at.requests);
                self.signal(conn);
                engine.serve_taken(conn, bytes, now);
                // Linux signals a request only where the one before was taken, as far as it could see. So what came while
                // these were taken may not be signalled; what comes from now on is.
                if self.guest_mut(conn).is_some_and(|guest| guest.ring.waiting() != Ok(0)) {
                    self.list(conn);
                }
            }
            Err(_) => engine.ring_failed(conn),
        }
    }

    /// Puts what waits for a guest into its ring, as far as there is room.
    pub(crate) fn flush(&mut self, conn: ConnId, engine: &mut Journaled) {
        // Linux signals that it has read only where the ring was full, as far as it could see. So where something is left,
        // only a look that finds the ring full after the last byte was put tells that a signal will come.
        for look in 0..2 {
            let Some(guest) = self.guest_mut(conn).filter(|guest| !guest.ignored) else { return };
            match guest.ring.write(engine.output(conn)) {
                Ok(0) if look > 0 => return,
                Ok(count) => {
                    let at = position(&guest.ring);
                    if count > 0 {
                        self.signal(conn);
                    }
                    engine.put(conn, count, at);
                    if count == 0 || engine.output(conn).is_empty() {
                        return;
                    }
                }
                Err(_) => {
                    engine.ring_failed(conn);
                    return;
                }
            }
        }
        // It reads while we write, and has its next turn.
        self.list(conn);
    }

    fn signal(&mut self, conn: ConnId) {
        if let Some(guest) = self.guest_mut(conn)
            && !guest.signal
        {
            guest.signal = true;
            self.to_signal.push(conn);
        }
    }

    /// Signals the guests whose rings changed, each once.
    pub(crate) fn send_signals(&mut self) {
        for conn in self.to_signal.drain(..) {
            let Some(guest) = self.guests.get_mut(conn.index()).and_then(Option::as_mut) else { continue };
            guest.signal = false;
            // A guest that is gone is told of by the hypervisor.
            if let Some(Err(error)) = guest.port.as_ref().map(BoundPort::notify) {
                tracing::debug!(domid = guest.domid.0, error = &error as &dyn std::error::Error, "no signal");
            }
        }
    }
}

/// A domain whose ring can be served.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// How it is reached.
    pub(crate) reach: Reach,
    /// Its ring and the local end of its event channel, where it was not known before.
    fresh: Option<(Ring, BoundPort)>,
}

/// What the host did not give.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// A call of a Xen library.
    #[error("this host offers no Xen to serve domains with; for sockets alone there is --no-domain-init")]
    Xen(#[from] xen_ffi::Error),
    /// A call of the kernel.
    #[error("the event channels cannot be waited for")]
    Poll(#[source] std::io::Error),
}

impl HostError {
    fn from_errno(errno: nix::errno::Errno) -> Self {
        Self::Poll(errno.into())
    }
}

/// Where the server's indices of a ring are.
fn position(ring: &Ring) -> RingPosition {
    let indices = ring.indices();
    RingPosition { requests: indices.request_consumer, replies: indices.reply_producer }
}

/// The number by which the host knows a domain.
fn xen(domid: DomId) -> xen_ffi::DomId {
    xen_ffi::DomId(domid.0)
}

/// Notes why a domain was not introduced; answers with the nearest error of the wire.
fn refused(domid: DomId, error: &xen_ffi::Error) -> XsError {
    warn!(domid = domid.0, error = error as &dyn std::error::Error, "a domain cannot be introduced");
    let errno = error.errno();
    XsError::ALL.iter().copied().find(|error| Some(error.errno()) == errno).unwrap_or(XsError::Inval)
}
