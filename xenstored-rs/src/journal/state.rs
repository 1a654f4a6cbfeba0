//! What the shell knows beside the engine and must know again: how guests are reached, and where their rings stand.

use std::collections::{BTreeMap, BTreeSet};

use xen_ffi::Port;
use xenstore_core::{Config, ConnId, DomId, Effect, Engine};

use super::record::{HostPorts, NOBODY, Reach, Record, RingPosition};
use super::settings;

/// The shell's part of an image, and what records make of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShellState {
    /// What the last daemon was started with.
    pub(crate) started: Config,
    /// The daemon's own ports.
    pub(crate) ports: HostPorts,
    /// How guests are reached.
    pub(crate) reached: BTreeMap<DomId, Reach>,
    /// Where rings stand, by connection.
    pub(crate) positions: BTreeMap<ConnId, RingPosition>,
    /// Ports of guests that were to be let go since the image. A death may have come before that.
    pub(crate) left: BTreeSet<Port>,
}

/// Bytes of a guest in the encoded state.
const GUEST: usize = Reach::SIZE + 12;

impl ShellState {
    /// The settings with their length before them, the daemon's port, then each guest.
    pub(crate) fn encode(
        started: &Config,
        ports: HostPorts,
        guests: impl Iterator<Item = (ConnId, Reach, RingPosition)>,
    ) -> Vec<u8> {
        let settings = settings::encode(started);
        let mut out = (settings.len() as u64).to_le_bytes().to_vec();
        out.extend_from_slice(settings.as_bytes());
        out.extend_from_slice(&ports.domain_state.map_or(0, |port| port.0).to_le_bytes());
        for (conn, reach, at) in guests {
            reach.encode(&mut out);
            out.extend_from_slice(&conn.number().to_le_bytes());
            out.extend_from_slice(&at.to_word().to_le_bytes());
        }
        out
    }

    /// As [`ShellState::encode`], of this state beside that engine, for a daemon with these settings.
    pub(crate) fn encode_again(&self, engine: &Engine, started: &Config) -> Vec<u8> {
        let guests = self.reached.values().filter_map(|reach| {
            let conn = engine.guest_connection(reach.domid)?;
            Some((conn, *reach, self.positions.get(&conn).copied().unwrap_or_default()))
        });
        Self::encode(started, self.ports, guests)
    }

    /// The state that [`ShellState::encode`] wrote; `None` where it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (len, bytes) = bytes.split_first_chunk()?;
        let (text, bytes) = bytes.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        let (port, guests) = bytes.split_first_chunk()?;
        let port = u32::from_le_bytes(*port);
        let (guests, []) = guests.as_chunks::<GUEST>() else { return None };
        let mut state = Self {
            started: settings::decode(text)?,
            ports: HostPorts { domain_state: (port != 0).then_some(Port(port)) },
            ..Self::default()
        };
        for guest in guests {
            let (reach, rest) = guest.split_at(Reach::SIZE);
            let reach = Reach::decode(reach)?;
            let (conn, at) = rest.split_first_chunk()?;
            let at = u64::from_le_bytes(at.try_into().ok()?);
            state.reached.insert(reach.domid, reach);
            state.positions.insert(ConnId::from_number(u32::from_le_bytes(*conn)), RingPosition::from_word(at));
        }
        Some(state)
    }

    /// Makes the call that a record tells of.
    pub(crate) fn replay(&mut self, engine: &mut Engine, conn: ConnId, record: Record<'_>) -> Result<(), &'static str> {
        let now = engine.now();
        match record {
            Record::Open => {
                if engine.open_socket_again() != conn {
                    return Err("a connection has another number than it had");
                }
            }
            Record::Received(bytes) => engine.receive(conn, bytes, now),
            Record::Taken(at, bytes) => {
                self.positions.insert(conn, at);
                engine.receive(conn, bytes, now);
            }
            Record::Sent(count) => self.sent(engine, conn, count)?,
            Record::Put(count, at) => {
                self.positions.insert(conn, at);
                self.sent(engine, conn, count.into())?;
            }
            Record::Step => engine.step(now),
            Record::Closed => engine.close(conn),
            Record::Answered(answer) => engine.answer(conn, answer.map(<[u8]>::to_vec)),
            Record::Existing(existing) => engine.answer_existence(conn, &existing),
            Record::Introduced(reach, at) => {
                if conn.number() != NOBODY {
                    engine.answer(conn, Ok(xenstore_wire::OK.to_vec()));
                }
                let conn = engine.introduce(reach.domid);
                self.reached.insert(reach.domid, reach);
                self.positions.insert(conn, at);
            }
            Record::Domains(event) => engine.domain_event(event),
            Record::RingFailed => engine.ring_failed(conn),
            Record::Reconnected => {
                if engine.reconnect(conn) {
                    self.positions.insert(conn, RingPosition::default());
                }
            }
            Record::Hold(on) => engine.hold_transactions(on),
            Record::Started(settings) => {
                let now = settings::decode(settings).ok_or("settings that are none")?;
                engine.reconfigure(&self.started, &now);
                self.started = now;
            }
            Record::Rebound(reach, at) => {
                self.reached.insert(reach.domid, reach);
                self.positions.insert(conn, at);
            }
            Record::Host(ports) => self.ports = ports,
            Record::Began(_) => return Err("a beginning that is not at the beginning"),
        }
        // What was done then is done. What was not is asked for again by the engine as it is in the end.
        while let Some(effect) = engine.next_effect() {
            if let Effect::Release { domid, .. } = effect {
                self.left.extend(self.reached.remove(&domid).map(|reach| reach.local));
            }
        }
        Ok(())
    }

    fn sent(&mut self, engine: &mut Engine, conn: ConnId, count: u64) -> Result<(), &'static str> {
        match usize::try_from(count) {
            Ok(count) if count <= engine.output(conn).len() => {
                engine.sent(conn, count);
                Ok(())
            }
            _ => Err("more was sent than waited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_comes_back() {
        let reach = |domid| Reach { domid: DomId(domid), remote: Port(1), local: Port(2), gfn: 3, life: None };
        let at = RingPosition { requests: 9, replies: u32::MAX };
        let ports = HostPorts { domain_state: Some(Port(77)) };
        let guests = [(ConnId::from_number(4), reach(1), at), (ConnId::from_number(0), reach(9), at)];
        let started = Config { priv_domid: DomId(5), ..Config::default() };
        let bytes = ShellState::encode(&started, ports, guests.into_iter());
        let state = ShellState::decode(&bytes).unwrap();
        assert_eq!(state.started, started);
        assert_eq!(state.ports, ports);
        assert_eq!(state.reached.into_values().collect::<Vec<_>>(), [reach(1), reach(9)]);
        assert_eq!(state.positions.get(&ConnId::from_number(4)), Some(&at));
        let guests = bytes.len() - 2 * GUEST;
        for cut in 0..bytes.len() {
            let whole = cut >= guests && (cut - guests).is_multiple_of(GUEST);
            assert_eq!(ShellState::decode(&bytes[..cut]).is_some(), whole, "{cut}");
        }
    }
}
