//! Bytes to messages, however the bytes are split.

use crate::{HEADER_SIZE, Header, PAYLOAD_MAX};

/// One whole message, its payload still in the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The fixed part; `header.len` is the payload's length.
    pub header: Header,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// A header announces more than [`PAYLOAD_MAX`] bytes: the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The offending header.
    pub header: Header,
}

impl core::fmt::Display for TooLong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "a message of type {} announces a payload of {} bytes", self.header.op, self.header.len)
    }
}

impl core::error::Error for TooLong {}

/// Takes the first whole message off `bytes`; returns it with the bytes behind it, or `None` when more must come.
///
/// # Errors
/// [`TooLong`] as soon as a header announces more than [`PAYLOAD_MAX`] bytes, whether they are there or not
/// (`docs/misc/xenstore.txt`, "Communication with xenstore").
pub fn split_message(bytes: &[u8]) -> Result<Option<(Message<'_>, &[u8])>, TooLong> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_SIZE>() else { return Ok(None) };
    let header = Header::decode(head);
    let len = header.len as usize;
    if len > PAYLOAD_MAX {
        return Err(TooLong { header });
    }
    Ok(rest.split_at_checked(len).map(|(payload, rest)| (Message { header, payload }, rest)))
}

/// Gathers bytes and gives out whole messages in order.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// A decoder that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` when more bytes must come first.
    ///
    /// # Errors
    /// [`TooLong`] for a header that announces an oversized payload, now and on every later call.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, TooLong> {
        let pending = &self.buffer[self.taken..];
        Ok(split_message(pending)?.map(|(message, rest)| {
            self.taken += pending.len() - rest.len();
            message
        }))
    }

    /// Bytes that wait for the rest of their message.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::put_message;
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};

    fn messages() -> impl Strategy<Value = Vec<(u32, u32, u32, Vec<u8>)>> {
        let payload = proptest::collection::vec(any::<u8>(), 0..300);
        proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), payload), 0..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { ProptestConfig::default().cases }))]

        #[test]
        fn messages_survive_any_split(messages in messages(), cuts in proptest::collection::vec(1usize..50, 1..20)) {
            let mut bytes = Vec::new();
            for (op, req_id, tx_id, payload) in &messages {
                put_message(&mut bytes, *op, *req_id, *tx_id, payload);
            }
            let mut decoder = Decoder::new();
            let mut got = Vec::new();
            let mut rest = bytes.as_slice();
            for &cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                decoder.push(now);
                while let Some(Message { header, payload }) = decoder.next_message().unwrap() {
                    got.push((header.op, header.req_id, header.tx_id, payload.to_vec()));
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(decoder.pending(), 0);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_message() {}
        }
    }

    #[test]
    fn the_longest_payload_is_taken_and_one_more_is_refused() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 11, 1, 0, &[b'x'; PAYLOAD_MAX]);
        assert_eq!(split_message(&bytes).unwrap().unwrap().0.payload.len(), PAYLOAD_MAX);
        for len in [4097, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let header = Header { op: 2, req_id: 1, tx_id: 0, len };
            assert_eq!(split_message(&header.encode()), Err(TooLong { header }));
        }
    }

    #[test]
    fn an_empty_payload_is_whole_with_its_header() {
        let header = Header { op: 2, req_id: 1, tx_id: 0, len: 0 };
        let bytes = header.encode();
        assert_eq!(split_message(&bytes[..15]), Ok(None));
        assert_eq!(split_message(&bytes), Ok(Some((Message { header, payload: &[] }, &[][..]))));
    }
}
