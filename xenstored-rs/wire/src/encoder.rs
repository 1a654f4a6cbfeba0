//! Messages to bytes, appended to a buffer that the caller owns.

use crate::{HEADER_SIZE, Header, OK, Op, XsError};

/// Appends a message with any type number.
///
/// # Panics
/// When the payload is longer than a `u32` can tell; senders keep to [`crate::PAYLOAD_MAX`].
pub fn put_message(out: &mut Vec<u8>, op: u32, req_id: u32, tx_id: u32, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("a payload fits a message");
    out.reserve(HEADER_SIZE + payload.len());
    out.extend_from_slice(&Header { op, req_id, tx_id, len }.encode());
    out.extend_from_slice(payload);
}

/// Appends the reply to `request` whose payload `fill` writes, and returns what `fill` returned.
///
/// The payload is written in place behind its header, so a reply is never copied. Whatever `fill` leaves in `out`
/// counts as payload; on an error the buffer is as it was before.
///
/// # Errors
/// Those of `fill`.
///
/// # Panics
/// When `fill` shortens the buffer, or the payload is longer than a `u32` can tell.
pub fn put_with<E>(
    out: &mut Vec<u8>,
    request: &Header,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&Header { len: 0, ..*request }.encode());
    let payload = out.len();
    if let Err(error) = fill(out) {
        out.truncate(start);
        return Err(error);
    }
    let len = u32::try_from(out.len() - payload).expect("a payload fits a message");
    out[payload - 4..payload].copy_from_slice(&len.to_ne_bytes());
    Ok(())
}

/// Appends the plain `OK` reply to `request`.
pub fn put_ok(out: &mut Vec<u8>, request: &Header) {
    put_message(out, request.op, request.req_id, request.tx_id, OK);
}

/// Appends the error reply to `request`.
pub fn put_error(out: &mut Vec<u8>, request: &Header, error: XsError) {
    put_message(out, Op::Error.number(), request.req_id, request.tx_id, error.as_wire());
}

/// Appends a watch event: `path` and `token`, each with a NUL; its ids are 0.
pub fn put_event(out: &mut Vec<u8>, path: &[u8], token: &[u8]) {
    let len = u32::try_from(path.len() + token.len() + 2).expect("a payload fits a message");
    out.reserve(HEADER_SIZE + len as usize);
    out.extend_from_slice(&Header { op: Op::WatchEvent.number(), req_id: 0, tx_id: 0, len }.encode());
    out.extend_from_slice(path);
    out.push(0);
    out.extend_from_slice(token);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split_message;

    const REQUEST: Header = Header { op: 2, req_id: 9, tx_id: 4, len: 33 };

    fn only(bytes: &[u8]) -> (Header, &[u8]) {
        let (message, rest) = split_message(bytes).unwrap().unwrap();
        assert!(rest.is_empty());
        (message.header, message.payload)
    }

    #[test]
    fn a_reply_echoes_its_request() {
        let mut out = Vec::new();
        put_with(&mut out, &REQUEST, |out| -> Result<(), XsError> {
            out.extend_from_slice(b"value");
            Ok(())
        })
        .unwrap();
        assert_eq!(only(&out), (Header { len: 5, ..REQUEST }, &b"value"[..]));
    }

    #[test]
    fn a_failed_reply_leaves_the_buffer_as_it_was() {
        let mut out = b"before".to_vec();
        let failed = put_with(&mut out, &REQUEST, |out| {
            out.extend_from_slice(b"half");
            Err(XsError::Io)
        });
        assert_eq!((failed, out.as_slice()), (Err(XsError::Io), &b"before"[..]));
    }

    #[test]
    fn an_error_carries_the_name_and_the_ids() {
        let mut out = Vec::new();
        put_error(&mut out, &REQUEST, XsError::NoEnt);
        assert_eq!(only(&out), (Header { op: 16, req_id: 9, tx_id: 4, len: 7 }, &b"ENOENT\0"[..]));
    }

    #[test]
    fn an_event_has_no_ids() {
        let mut out = Vec::new();
        put_event(&mut out, b"/a", b"t");
        assert_eq!(only(&out), (Header { op: 15, req_id: 0, tx_id: 0, len: 5 }, &b"/a\0t\0"[..]));
    }
}
