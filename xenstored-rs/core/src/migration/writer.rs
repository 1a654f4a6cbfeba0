//! From a state to the migration stream.

use super::{
    record::{
        BIG_ENDIAN, HAS_UNIQUE_ID, IDENT, IGNORED, NO_DEPTH, NO_DOMAIN, RECORD_HEADER, RING, SOCKET, WRITTEN, aligned,
        kind,
    },
    state::{Named, Peer, SavedConnection, SavedWatch, State},
};

/// Most bytes of input or of the rest of a message that the stream has room for.
const SHORT_MAX: usize = u16::MAX as usize;

/// Something that the stream has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {len} bytes does not fit into the stream")]
pub struct Unwritable {
    /// What it is.
    pub what: &'static str,
    /// Its size.
    pub len: usize,
}

/// Writes a state as a stream of version 1 or 2, in the order of the C daemon.
///
/// Version 1 has no features of domains, and no depth of watches: they are left out.
///
/// # Errors
/// Where something is larger than the stream can tell, which nothing is that came over the wire.
pub fn write_stream(state: &State, version: u32) -> Result<Vec<u8>, Unwritable> {
    let mut out = Writer { bytes: Vec::new(), version };
    out.bytes.extend_from_slice(IDENT);
    out.bytes.extend_from_slice(&version.to_be_bytes());
    let flags = if cfg!(target_endian = "big") { BIG_ENDIAN } else { 0 };
    out.bytes.extend_from_slice(&flags.to_be_bytes());
    out.record(kind::GLOBAL, |out| {
        out.extend_from_slice(&state.listener.unwrap_or(-1).to_ne_bytes());
        out.extend_from_slice(&state.event_channels.unwrap_or(-1).to_ne_bytes());
    });
    if !state.quotas.is_empty() {
        out.record(kind::GLOBAL_QUOTA, |out| {
            put_u16(out, state.quotas.len());
            put_u16(out, 0);
            put_quotas(out, &state.quotas);
        });
    }
    for (id, connection) in (1u32..).zip(&state.connections) {
        out.connection(id, connection)?;
        for watch in &connection.watches {
            out.watch(id, watch)?;
        }
    }
    for node in &state.nodes {
        short("a path", node.path.len() + 1)?;
        short("a value", node.value.len())?;
        out.record(kind::NODE, |out| {
            out.extend_from_slice(&[0; 8]);
            put_u16(out, node.path.len() + 1);
            put_u16(out, node.value.len());
            out.extend_from_slice(&WRITTEN.to_ne_bytes());
            put_u16(out, node.permissions.len());
            for entry in &node.permissions {
                out.push(entry.access.letter());
                out.push(if entry.ignored { IGNORED } else { 0 });
                out.extend_from_slice(&entry.domid.0.to_ne_bytes());
            }
            put_string(out, &node.path);
            out.extend_from_slice(&node.value);
        });
    }
    for domain in &state.domains {
        let features = if version >= 2 { domain.features.unwrap_or(0) } else { 0 };
        out.record(kind::DOMAIN, |out| {
            out.extend_from_slice(&domain.domid.0.to_ne_bytes());
            put_u16(out, domain.quotas.len());
            out.extend_from_slice(&features.to_ne_bytes());
            put_quotas(out, &domain.quotas);
        });
    }
    out.record(kind::END, |_| {});
    Ok(out.bytes)
}

struct Writer {
    bytes: Vec<u8>,
    version: u32,
}

impl Writer {
    /// Writes a record, padded: the C daemon takes the length for a multiple of 8.
    fn record(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        let start = self.bytes.len();
        body(&mut self.bytes);
        let len = aligned(self.bytes.len() - start);
        self.bytes.resize(start + len, 0);
        // A record of four gigabytes would be one of a value that no message can carry.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.bytes[start - RECORD_HEADER / 2..start].copy_from_slice(&len.to_ne_bytes());
    }

    fn connection(&mut self, id: u32, connection: &SavedConnection) -> Result<(), Unwritable> {
        let SavedConnection { conn: _, peer, unique_id, watches: _, input, output, partial } = connection;
        short("what a connection sent", input.len())?;
        short("the rest of a message", *partial)?;
        let output_len = u32::try_from(output.len())
            .map_err(|_| Unwritable { what: "what waits for a connection", len: output.len() })?;
        self.record(kind::CONNECTION, |out| {
            out.extend_from_slice(&id.to_ne_bytes());
            let which = match peer {
                Peer::Ring { .. } => RING,
                Peer::Socket { .. } => SOCKET,
            };
            out.extend_from_slice(&which.to_ne_bytes());
            out.extend_from_slice(&unique_id.map_or(0, |_| HAS_UNIQUE_ID).to_ne_bytes());
            match peer {
                Peer::Ring { domid, target, local_port, .. } => {
                    out.extend_from_slice(&domid.0.to_ne_bytes());
                    out.extend_from_slice(&target.map_or(NO_DOMAIN, |target| target.0).to_ne_bytes());
                    out.extend_from_slice(&local_port.to_ne_bytes());
                }
                Peer::Socket { fd } => {
                    out.extend_from_slice(&fd.to_ne_bytes());
                    out.extend_from_slice(&[0; 4]);
                }
            }
            put_u16(out, input.len());
            put_u16(out, *partial);
            out.extend_from_slice(&output_len.to_ne_bytes());
            out.extend_from_slice(input);
            out.extend_from_slice(output);
            if let Some(id) = unique_id {
                let data = input.len() + output.len();
                out.resize(out.len() + aligned(data) - data, 0);
                out.extend_from_slice(&id.to_ne_bytes());
            }
        });
        Ok(())
    }

    fn watch(&mut self, id: u32, watch: &SavedWatch) -> Result<(), Unwritable> {
        short("a watch's path", watch.path.len() + 1)?;
        short("a watch's token", watch.token.len() + 1)?;
        let depth = watch.depth.filter(|_| self.version >= 2);
        let kind = if depth.is_some() { kind::WATCH_EXTENDED } else { kind::WATCH };
        self.record(kind, |out| {
            out.extend_from_slice(&id.to_ne_bytes());
            put_u16(out, watch.path.len() + 1);
            put_u16(out, watch.token.len() + 1);
            if let Some(depth) = depth {
                out.extend_from_slice(&depth.min(NO_DEPTH - 1).to_ne_bytes());
                out.extend_from_slice(&[0; 2]);
            }
            put_string(out, &watch.path);
            put_string(out, &watch.token);
        });
        Ok(())
    }
}

/// Whether a length fits into 16 bits.
fn short(what: &'static str, len: usize) -> Result<(), Unwritable> {
    if len <= SHORT_MAX { Ok(()) } else { Err(Unwritable { what, len }) }
}

/// A number that was held to 16 bits already.
fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_ne_bytes());
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(string);
    out.push(0);
}

fn put_quotas(out: &mut Vec<u8>, quotas: &Named) {
    quotas.iter().for_each(|(_, value)| out.extend_from_slice(&value.to_ne_bytes()));
    quotas.iter().for_each(|(name, _)| put_string(out, name));
}
