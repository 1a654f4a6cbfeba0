//! Messages between a daemon and its keeper: a kind and a key, and at most one descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::cli::TakeOver;

/// Bytes of a message.
const SIZE: usize = 16;

/// What a held descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The socket that clients connect to.
    Listener,
    /// The event channels.
    EventChannels,
    /// A client, by its connection's number among all that ever were.
    Client(u64),
    /// No descriptor that is of use, but a mark: what is held is of a take-over that is not done.
    Unfinished(TakeOver),
}

/// Lives of connections begin at 1, so that small keys are free for what there is one of.
const LISTENER: u64 = 0;
/// Above every life that a connection can have.
const EVENT_CHANNELS: u64 = u64::MAX;
const UNFINISHED_C: u64 = u64::MAX - 1;
const UNFINISHED_OXENSTORED: u64 = u64::MAX - 2;

impl Key {
    fn number(self) -> u64 {
        match self {
            Self::Listener => LISTENER,
            Self::EventChannels => EVENT_CHANNELS,
            Self::Client(life) => life,
            Self::Unfinished(TakeOver::C) => UNFINISHED_C,
            Self::Unfinished(TakeOver::Oxenstored) => UNFINISHED_OXENSTORED,
        }
    }

    fn from_number(number: u64) -> Self {
        match number {
            LISTENER => Self::Listener,
            EVENT_CHANNELS => Self::EventChannels,
            UNFINISHED_C => Self::Unfinished(TakeOver::C),
            UNFINISHED_OXENSTORED => Self::Unfinished(TakeOver::Oxenstored),
            life => Self::Client(life),
        }
    }
}

/// A message; see the table of the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Keep(Key),
    Drop(Key),
    Stopping,
    Dismissed,
    Held(Key),
    All,
}

impl Message {
    fn encode(self) -> [u8; SIZE] {
        let (kind, key) = match self {
            Self::Keep(key) => (1u64, key.number()),
            Self::Drop(key) => (2, key.number()),
            Self::Stopping => (3, 0),
            Self::Dismissed => (4, 0),
            Self::Held(key) => (5, key.number()),
            Self::All => (6, 0),
        };
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&kind.to_ne_bytes());
        bytes[8..].copy_from_slice(&key.to_ne_bytes());
        bytes
    }

    fn decode(bytes: [u8; SIZE]) -> Option<Self> {
        let ([kind, number], []) = bytes.as_chunks() else { return None };
        let key = Key::from_number(u64::from_ne_bytes(*number));
        Some(match u64::from_ne_bytes(*kind) {
            1 => Self::Keep(key),
            2 => Self::Drop(key),
            3 => Self::Stopping,
            4 => Self::Dismissed,
            5 => Self::Held(key),
            6 => Self::All,
            _ => return None,
        })
    }
}

/// Sends a message, with a descriptor or none. On a socket that does not block, `EAGAIN` where the other end is behind.
pub(super) fn send(socket: impl AsFd, message: Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// What came: a message with its descriptor, or the end.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message, Option<OwnedFd>),
    End,
}

/// Takes the next message.
///
/// # Errors
/// `InvalidData` for one that is none; on a socket that does not block, `WouldBlock` where none is there.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut bytes = [0; SIZE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let count = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?
    .bytes;
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.into_iter().next().or(descriptor);
        }
    }
    match count {
        0 => Ok(Received::End),
        SIZE => Message::decode(bytes)
            .map(|message| Received::Message(message, descriptor))
            .ok_or_else(|| io::ErrorKind::InvalidData.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn messages_come_back() {
        let marks = [TakeOver::C, TakeOver::Oxenstored].map(Key::Unfinished);
        for key in
            [Key::Listener, Key::EventChannels, Key::Client(1), Key::Client(u64::MAX >> 1)].into_iter().chain(marks)
        {
            for message in [Message::Keep(key), Message::Drop(key), Message::Held(key)] {
                assert_eq!(Message::decode(message.encode()), Some(message));
            }
        }
        for message in [Message::Stopping, Message::Dismissed, Message::All] {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode([0; SIZE]), None);
        assert_eq!(Message::decode([0xff; SIZE]), None);
    }

    #[test]
    fn a_descriptor_comes_along() {
        let (one, other) = UnixStream::pair().unwrap();
        let (kept, peer) = UnixStream::pair().unwrap();
        send(&one, Message::Keep(Key::Client(7)), Some(kept.as_fd())).unwrap();
        drop(kept);
        let Received::Message(Message::Keep(Key::Client(7)), Some(held)) = receive(&other).unwrap() else {
            panic!("not what was sent")
        };
        rustix::io::write(&held, b"x").unwrap();
        assert_eq!(rustix::io::read(&peer, &mut [0; 8]).unwrap(), 1);
    }

    #[test]
    fn the_end_is_told() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(one);
        assert!(matches!(receive(&other).unwrap(), Received::End));
    }
}
