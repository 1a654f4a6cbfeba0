//! The fixed part in front of every message.

/// Bytes of an encoded [`Header`].
pub const HEADER_SIZE: usize = 16;

/// Four numbers in host byte order; both ends share a machine (`struct xsd_sockmsg` of `xs_wire.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Message type as sent; [`crate::Op::from_number`] names the known ones.
    pub op: u32,
    /// The client's number of the request, echoed in its reply; 0 in a watch event.
    pub req_id: u32,
    /// The transaction that the request belongs to, 0 for none; echoed in the reply.
    pub tx_id: u32,
    /// Bytes of payload that follow. As received it may be anything up to `u32::MAX`.
    pub len: u32,
}

impl Header {
    /// Reads a header from its 16 bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_SIZE]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { op: word(0), req_id: word(4), tx_id: word(8), len: word(12) }
    }

    /// The 16 bytes of this header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        for (slot, word) in bytes.chunks_exact_mut(4).zip([self.op, self.req_id, self.tx_id, self.len]) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_and_decode_are_inverse() {
        let header = Header { op: 2, req_id: u32::MAX, tx_id: 7, len: 4096 };
        assert_eq!(Header::decode(&header.encode()), header);
    }
}
