//! What a store sent to a connection, taken apart.

use std::fmt;
use xenstore_wire::{Decoder, Op};

/// One reply.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Message type.
    pub(crate) op: u32,
    /// The request's id.
    pub(crate) req_id: u32,
    /// The request's transaction.
    pub(crate) tx_id: u32,
    /// All of it.
    pub(crate) payload: Vec<u8>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Op::from_number(self.op).map_or("?", Op::name);
        write!(f, "{name} {:?} (request {}, transaction {})", text(&self.payload), self.req_id, self.tx_id)
    }
}

/// Everything sent, replies and events apart and each in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// Replies.
    pub(crate) replies: Vec<Reply>,
    /// Path and token of every event.
    pub(crate) events: Vec<(Vec<u8>, Vec<u8>)>,
    /// An event came before a reply.
    pub(crate) event_first: bool,
}

impl Output {
    /// Takes whole messages apart.
    ///
    /// # Panics
    /// When the bytes are no whole messages, or an event is ill-formed.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        let mut output = Self::default();
        while let Some(message) = decoder.next_message().expect("no message is too long") {
            let header = message.header;
            if header.op == Op::WatchEvent.number() {
                assert_eq!((header.req_id, header.tx_id), (0, 0), "an event has no ids");
                let parts: Vec<_> = message.payload.split(|&byte| byte == 0).collect();
                let [path, token, []] = parts.as_slice() else { panic!("{:?} is no event", text(message.payload)) };
                output.events.push((path.to_vec(), token.to_vec()));
            } else {
                output.event_first |= !output.events.is_empty();
                let (req_id, tx_id) = (header.req_id, header.tx_id);
                output.replies.push(Reply { op: header.op, req_id, tx_id, payload: message.payload.to_vec() });
            }
        }
        assert_eq!(decoder.pending(), 0, "a message was cut short");
        output
    }
}

/// Bytes as characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}
