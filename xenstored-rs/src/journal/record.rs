//! What the journal records: the calls that the engine was given, in their order.
//!
//! The engine has no clock and no descriptor, so the same calls bring it to the same state. Each record is sealed before
//! its call is made, and before anything is published that the call leads to.

use xen_ffi::{Port, domain_state::UniqueId};
use xenstore_core::{DomId, DomainEvent};
use xenstore_wire::XsError;

/// Where the streams of a ring stand: the indices that the server moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingPosition {
    /// Request bytes up to here are taken.
    pub(crate) requests: u32,
    /// Reply bytes up to here are put.
    pub(crate) replies: u32,
}

impl RingPosition {
    /// Both indices in one word.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.requests) << 32 | u64::from(self.replies)
    }

    /// The position that [`RingPosition::to_word`] told.
    pub(crate) fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
        Self { requests: u32::from_be_bytes([a, b, c, d]), replies: u32::from_be_bytes([e, f, g, h]) }
    }
}

/// How a domain is reached, so that it can be reached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The domain.
    pub(crate) domid: DomId,
    /// The domain's end of the event channel.
    pub(crate) remote: Port,
    /// This daemon's end, while the event channel descriptor lives.
    pub(crate) local: Port,
    /// Guest frame of its ring, for hosts that map by frame.
    pub(crate) gfn: u64,
    /// The life of the domain, where the host tells it.
    pub(crate) life: Option<UniqueId>,
}

/// Ports of this daemon that belong to no guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPorts {
    /// The one that tells of domains changing their state.
    pub(crate) domain_state: Option<Port>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A socket connection was accepted.
    Open,
    /// Bytes came from a socket.
    Received(&'a [u8]),
    /// Bytes were taken from a ring, which stood so afterwards.
    Taken(RingPosition, &'a [u8]),
    /// So many bytes went out to a socket.
    Sent(u64),
    /// So many bytes were put into a ring, which stood so afterwards.
    Put(u32, RingPosition),
    /// Work that was left was gone on with.
    Step,
    /// A connection ended.
    Closed,
    /// What the world answered to a question.
    Answered(Result<&'a [u8], XsError>),
    /// Which of the domains that were asked for exist.
    Existing(Vec<DomId>),
    /// A domain's ring is served from now on, or anew, and stands so; where a connection is named, it is answered.
    Introduced(Reach, RingPosition),
    /// Domains changed.
    Domains(DomainEvent),
    /// The indices of a ring cannot be.
    RingFailed,
    /// A domain asked in its ring for a new connection; the ring stands at its beginning then.
    Reconnected,
    /// No call: a fresh store, as its image, which is the first record of a journal.
    Began(&'a [u8]),
    /// A daemon began, with these settings ([`super::settings`]).
    Started(&'a [u8]),
    /// No call: a guest is reached in another way from now on, and its ring stands so.
    Rebound(Reach, RingPosition),
    /// TRANSACTION_START waits from now on, or goes on.
    Hold(bool),
    /// No call: the daemon's own ports.
    Host(HostPorts),
}

/// Numbers of the kinds. A number is never used for anything else.
mod kind {
    pub(super) const OPEN: u16 = 1;
    pub(super) const RECEIVED: u16 = 2;
    pub(super) const TAKEN: u16 = 3;
    pub(super) const SENT: u16 = 4;
    pub(super) const PUT: u16 = 5;
    pub(super) const STEP: u16 = 6;
    pub(super) const CLOSED: u16 = 7;
    pub(super) const ANSWERED: u16 = 8;
    pub(super) const FAILED: u16 = 9;
    pub(super) const EXISTING: u16 = 10;
    pub(super) const INTRODUCED: u16 = 11;
    pub(super) const APPEARED: u16 = 12;
    pub(super) const SHUT_DOWN: u16 = 13;
    pub(super) const GONE: u16 = 14;
    pub(super) const RING_FAILED: u16 = 15;
    pub(super) const REBOUND: u16 = 16;
    pub(super) const HOST: u16 = 17;
    pub(super) const BEGAN: u16 = 18;
    pub(super) const RECONNECTED: u16 = 19;
    pub(super) const STARTED: u16 = 20;
    pub(super) const HELD: u16 = 21;
    pub(super) const LET_GO: u16 = 22;
}

/// The connection of records that are about none.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Kind of [`Record::Received`], whose bytes the kernel puts into the log itself.
pub(crate) const RECEIVED: u16 = kind::RECEIVED;

/// Kind of [`Record::Sent`].
pub(crate) const SENT: u16 = kind::SENT;

impl<'a> Record<'a> {
    /// Kind, and the bytes that follow the fields, which are put into `fields`.
    pub(crate) fn encode(&self, fields: &mut Vec<u8>) -> (u16, &'a [u8]) {
        fields.clear();
        let none: &[u8] = &[];
        match self {
            Self::Open => (kind::OPEN, none),
            Self::Received(bytes) => (kind::RECEIVED, bytes),
            Self::Taken(at, bytes) => {
                put_position(fields, *at);
                (kind::TAKEN, bytes)
            }
            Self::Sent(count) => {
                fields.extend_from_slice(&count.to_le_bytes());
                (kind::SENT, none)
            }
            Self::Put(count, at) => {
                put_word(fields, *count);
                put_position(fields, *at);
                (kind::PUT, none)
            }
            Self::Step => (kind::STEP, none),
            Self::Closed => (kind::CLOSED, none),
            Self::Answered(Ok(payload)) => (kind::ANSWERED, payload),
            Self::Answered(Err(error)) => (kind::FAILED, error.name().as_bytes()),
            Self::Existing(existing) => {
                put_domids(fields, existing);
                (kind::EXISTING, none)
            }
            Self::Introduced(reach, at) => {
                reach.encode(fields);
                put_position(fields, *at);
                (kind::INTRODUCED, none)
            }
            Self::Domains(event) => {
                let (kind, domids) = match event {
                    DomainEvent::Appeared(domid) => (kind::APPEARED, std::slice::from_ref(domid)),
                    DomainEvent::ShutDown(domids) => (kind::SHUT_DOWN, &domids[..]),
                    DomainEvent::Gone(domids) => (kind::GONE, &domids[..]),
                };
                put_domids(fields, domids);
                (kind, none)
            }
            Self::RingFailed => (kind::RING_FAILED, none),
            Self::Reconnected => (kind::RECONNECTED, none),
            Self::Hold(true) => (kind::HELD, none),
            Self::Hold(false) => (kind::LET_GO, none),
            Self::Began(image) => (kind::BEGAN, image),
            Self::Started(settings) => (kind::STARTED, settings),
            Self::Rebound(reach, at) => {
                reach.encode(fields);
                put_position(fields, *at);
                (kind::REBOUND, none)
            }
            Self::Host(ports) => {
                put_word(fields, ports.domain_state.map_or(0, |port| port.0));
                (kind::HOST, none)
            }
        }
    }

    /// The record of a kind with that payload; `None` where it is none.
    pub(crate) fn decode(number: u16, payload: &'a [u8]) -> Option<Self> {
        let empty = |record: Self| payload.is_empty().then_some(record);
        Some(match number {
            kind::OPEN => empty(Self::Open)?,
            kind::RECEIVED => Self::Received(payload),
            kind::TAKEN => {
                let (at, bytes) = position(payload)?;
                Self::Taken(at, bytes)
            }
            kind::SENT => Self::Sent(xenstore_journal::sent_count(payload)?),
            kind::PUT => {
                let (count, rest) = word(payload)?;
                let (at, []) = position(rest)? else { return None };
                Self::Put(count, at)
            }
            kind::STEP => empty(Self::Step)?,
            kind::CLOSED => empty(Self::Closed)?,
            kind::ANSWERED => Self::Answered(Ok(payload)),
            kind::FAILED => Self::Answered(Err(XsError::from_name(payload)?)),
            kind::EXISTING => Self::Existing(domids(payload)?),
            kind::INTRODUCED => {
                let (reach, rest) = payload.split_at_checked(Reach::SIZE)?;
                let (at, []) = position(rest)? else { return None };
                Self::Introduced(Reach::decode(reach)?, at)
            }
            kind::APPEARED => {
                let [domid] = domids(payload)?[..] else { return None };
                Self::Domains(DomainEvent::Appeared(domid))
            }
            kind::SHUT_DOWN => Self::Domains(DomainEvent::ShutDown(domids(payload)?)),
            kind::GONE => Self::Domains(DomainEvent::Gone(domids(payload)?)),
            kind::RING_FAILED => empty(Self::RingFailed)?,
            kind::RECONNECTED => empty(Self::Reconnected)?,
            kind::HELD => empty(Self::Hold(true))?,
            kind::LET_GO => empty(Self::Hold(false))?,
            kind::BEGAN => Self::Began(payload),
            kind::STARTED => Self::Started(payload),
            kind::REBOUND => {
                let (reach, rest) = payload.split_at_checked(Reach::SIZE)?;
                let (at, []) = position(rest)? else { return None };
                Self::Rebound(Reach::decode(reach)?, at)
            }
            kind::HOST => {
                let (port, []) = word(payload)? else { return None };
                Self::Host(HostPorts { domain_state: (port != 0).then_some(Port(port)) })
            }
            _ => return None,
        })
    }
}

impl Reach {
    /// Bytes of an encoded reach.
    pub(crate) const SIZE: usize = 32;

    /// Appends domain id, ports, frame and life, [`Reach::SIZE`] bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, life) = match self.life {
            None => (0, 0),
            Some(UniqueId::Hypervisor(id)) => (1, id),
            Some(UniqueId::Handle(id)) => (2, id),
        };
        for word in [u32::from(self.domid.0), self.remote.0, self.local.0, kind] {
            put_word(out, word);
        }
        for long in [self.gfn, life] {
            out.extend_from_slice(&long.to_le_bytes());
        }
    }

    /// The reach that [`Reach::encode`] wrote; `None` where it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (domid, rest) = word(bytes)?;
        let (remote, rest) = word(rest)?;
        let (local, rest) = word(rest)?;
        let (kind, rest) = word(rest)?;
        let (gfn, rest) = long(rest)?;
        let (life, []) = long(rest)? else { return None };
        let life = match kind {
            0 => None,
            1 => Some(UniqueId::Hypervisor(life)),
            2 => Some(UniqueId::Handle(life)),
            _ => return None,
        };
        let domid = DomId(u16::try_from(domid).ok()?);
        Some(Self { domid, remote: Port(remote), local: Port(local), gfn, life })
    }
}

fn put_word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_position(out: &mut Vec<u8>, at: RingPosition) {
    put_word(out, at.requests);
    put_word(out, at.replies);
}

fn put_domids(out: &mut Vec<u8>, domids: &[DomId]) {
    domids.iter().for_each(|domid| out.extend_from_slice(&domid.0.to_le_bytes()));
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn long(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (long, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*long), rest))
}

fn position(bytes: &[u8]) -> Option<(RingPosition, &[u8])> {
    let (requests, rest) = word(bytes)?;
    let (replies, rest) = word(rest)?;
    Some((RingPosition { requests, replies }, rest))
}

fn domids(bytes: &[u8]) -> Option<Vec<DomId>> {
    let (domids, []) = bytes.as_chunks() else { return None };
    Some(domids.iter().map(|domid| DomId(u16::from_le_bytes(*domid))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let at = RingPosition { requests: 0xffff_fff0, replies: 7 };
        let reach = |life| Reach { domid: DomId(9), remote: Port(3), local: Port(77), gfn: 1 << 40, life };
        let (one, many) = (DomId(0x7fef), vec![DomId(1), DomId(300)]);
        let records = [
            Record::Open,
            Record::Received(b"bytes"),
            Record::Taken(at, b"bytes"),
            Record::Sent(1 << 40),
            Record::Put(1024, at),
            Record::Step,
            Record::Closed,
            Record::Answered(Ok(b"OK\0")),
            Record::Answered(Err(XsError::TooBig)),
            Record::Existing(many.clone()),
            Record::Existing(Vec::new()),
            Record::Introduced(reach(None), at),
            Record::Introduced(reach(Some(UniqueId::Hypervisor(5))), at),
            Record::Introduced(reach(Some(UniqueId::Handle(u64::MAX))), at),
            Record::Domains(DomainEvent::Appeared(one)),
            Record::Domains(DomainEvent::ShutDown(many.clone())),
            Record::Domains(DomainEvent::Gone(many)),
            Record::RingFailed,
            Record::Reconnected,
            Record::Hold(true),
            Record::Hold(false),
            Record::Began(b"image"),
            Record::Started(b"nodes 3\n"),
            Record::Rebound(reach(None), at),
            Record::Host(HostPorts { domain_state: None }),
            Record::Host(HostPorts { domain_state: Some(Port(12)) }),
        ];
        let mut fields = Vec::new();
        for record in records {
            let (kind, bytes) = record.encode(&mut fields);
            let payload = [&fields[..], bytes].concat();
            assert_eq!(Record::decode(kind, &payload), Some(record));
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        for (kind, payload) in [
            (0, &b""[..]),
            (kind::OPEN, b"x"),
            (kind::TAKEN, b"1234567"),
            (kind::SENT, b"12345"),
            (kind::PUT, b"1234"),
            (kind::FAILED, b"ENONE"),
            (kind::EXISTING, b"x"),
            (kind::INTRODUCED, &[0; 39]),
            (kind::INTRODUCED, &[9; 40]),
            (kind::APPEARED, b"1234"),
            (u16::MAX, b""),
        ] {
            assert_eq!(Record::decode(kind, payload), None, "{kind} {payload:?}");
        }
    }

    #[test]
    fn a_position_fits_into_a_word() {
        let at = RingPosition { requests: 0xdead_beef, replies: 0x0102_0304 };
        assert_eq!(RingPosition::from_word(at.to_word()), at);
    }
}
