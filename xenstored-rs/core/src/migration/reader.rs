//! From the migration stream to a state.

use std::collections::BTreeMap;

use super::{
    error::{Fault, StreamError},
    fields::Fields,
    record::{
        BIG_ENDIAN, HAS_UNIQUE_ID, HEADER, IDENT, IGNORED, NO_DEPTH, NO_DOMAIN, RECORD_HEADER, RING, SOCKET, aligned,
        kind,
    },
    state::{Named, Peer, SavedConnection, SavedDomain, SavedNode, SavedWatch, State},
};
use crate::{
    id::DomId,
    permission::{Access, Permission},
};

/// Reads a whole stream of version 1 or 2.
///
/// Records of open transactions are passed over: no daemon writes them, and none can be restored by what they tell.
/// Watches with a depth as C daemons up to 4.22 wrote them, four bytes too short, are understood.
///
/// # Errors
/// What is wrong first, and at which byte. Nothing is returned of a stream that is wrong anywhere.
pub fn read_stream(bytes: &[u8]) -> Result<State, StreamError> {
    let mut reader = Reader { bytes, at: HEADER, state: State::default(), by_id: BTreeMap::new() };
    reader.header()?;
    while reader.record()? {}
    Ok(reader.state)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    state: State,
    /// Index of each connection, by its number in the stream.
    by_id: BTreeMap<u32, usize>,
}

impl<'a> Reader<'a> {
    fn header(&self) -> Result<(), StreamError> {
        let error = |offset, fault| Err(StreamError { offset, fault });
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return error(0, Fault::NotAStream) };
        if !header.starts_with(IDENT) {
            return error(0, Fault::NotAStream);
        }
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let version = u32::from_be_bytes(word(8));
        if !matches!(version, 1 | 2) {
            return error(8, Fault::Version(version));
        }
        // The document has the flags big-endian, the C daemon writes them in the machine's order: with one bit in them,
        // either can be told.
        let flags = [u32::from_be_bytes(word(12)), u32::from_le_bytes(word(12))];
        let big = flags.contains(&BIG_ENDIAN);
        if flags[0] != 0 && !big {
            return error(12, Fault::Value("flags"));
        }
        if big != cfg!(target_endian = "big") {
            return error(12, Fault::ByteOrder);
        }
        Ok(())
    }

    /// Takes one record; false where it is the end.
    fn record(&mut self) -> Result<bool, StreamError> {
        let start = self.at;
        let short = StreamError { offset: start, fault: Fault::Short };
        let rest = self.bytes.get(start..).unwrap_or_default();
        let (header, rest) = rest.split_first_chunk::<RECORD_HEADER>().ok_or(short)?;
        let mut fields = Fields::new(header, start);
        let (kind, len) = (fields.u32()?, fields.u32()? as usize);
        let body_at = start + RECORD_HEADER;
        if kind == kind::WATCH_EXTENDED
            && let Some(used) = self.short_watch(rest, len, body_at)?
        {
            self.at = body_at + aligned(used);
            return Ok(true);
        }
        let body = rest.get(..len).ok_or(short)?;
        self.at = body_at + aligned(len);
        let mut fields = Fields::new(body, body_at);
        match kind {
            kind::END => {
                if self.bytes.len() > self.at {
                    return Err(StreamError { offset: self.at, fault: Fault::Long });
                }
                return Ok(false);
            }
            kind::GLOBAL => {
                let descriptor = |fd: i32| (fd >= 0).then_some(fd);
                self.state.listener = descriptor(fields.i32()?);
                self.state.event_channels = descriptor(fields.i32()?);
            }
            kind::CONNECTION => self.connection(&mut fields)?,
            kind::WATCH => self.watch(&mut fields, false)?,
            kind::WATCH_EXTENDED => self.watch(&mut fields, true)?,
            kind::TRANSACTION => {}
            kind::NODE => self.node(&mut fields)?,
            kind::GLOBAL_QUOTA => {
                let (domain, global) = (fields.u16()?, fields.u16()?);
                self.state.quotas = quotas(&mut fields, usize::from(domain) + usize::from(global))?;
            }
            kind::DOMAIN => {
                let (domid, count, features) = (DomId(fields.u16()?), fields.u16()?, fields.u32()?);
                let quotas = quotas(&mut fields, usize::from(count))?;
                // Version 1 has no features; 0 is what stands there.
                let features = Some(features).filter(|&features| features != 0);
                self.state.domains.push(SavedDomain { domid, features, quotas });
            }
            other => return Err(StreamError { offset: start, fault: Fault::Type(other) }),
        }
        Ok(true)
    }

    fn connection(&mut self, fields: &mut Fields<'a>) -> Result<(), StreamError> {
        let id_at = *fields;
        let id = fields.u32()?;
        let (which, present) = (fields.u16()?, fields.u16()?);
        let spec = *fields;
        let mut of_spec = Fields::new(fields.bytes(8)?, spec.offset);
        let peer = match which {
            RING => {
                let (domid, target, local_port) = (of_spec.u16()?, of_spec.u16()?, of_spec.u32()?);
                let target = (target != NO_DOMAIN).then_some(DomId(target));
                Peer::Ring { domid: DomId(domid), target, local_port, remote_port: None, gfn: None }
            }
            SOCKET => Peer::Socket { fd: of_spec.i32()? },
            _ => return Err(spec.error(Fault::Value("a kind of connection"))),
        };
        let (input_len, partial, output_len) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let data_at = *fields;
        let (input, output) = (fields.bytes(input_len.into())?, fields.bytes(output_len as usize)?);
        if usize::from(partial) > output.len() {
            return Err(data_at.error(Fault::Value("a part of the output")));
        }
        let unique_id = if present & HAS_UNIQUE_ID == 0 {
            None
        } else {
            let data = input.len() + output.len();
            // It stands at the next multiple of 8 behind the data, counted from the record's beginning.
            fields.bytes(aligned(data) - data)?;
            Some(fields.u64()?)
        };
        if id == 0 || self.by_id.insert(id, self.state.connections.len()).is_some() {
            return Err(id_at.error(Fault::Value("a connection's number")));
        }
        self.state.connections.push(SavedConnection {
            conn: None,
            peer,
            unique_id,
            watches: Vec::new(),
            input: input.to_vec(),
            output: output.to_vec(),
            partial: partial.into(),
        });
        Ok(())
    }

    /// The watches of a connection, by its number in the stream.
    fn watches_of(&mut self, at: &Fields<'_>, id: u32) -> Result<&mut Vec<SavedWatch>, StreamError> {
        let index = self.by_id.get(&id).copied();
        let connection = index.and_then(|index| self.state.connections.get_mut(index));
        connection.map(|connection| &mut connection.watches).ok_or_else(|| at.error(Fault::Value("a connection")))
    }

    fn watch(&mut self, fields: &mut Fields<'a>, extended: bool) -> Result<(), StreamError> {
        let at = *fields;
        let (id, path_len, token_len) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let depth = match extended {
            true => {
                let depth = fields.u16()?;
                fields.u16()?;
                (depth != NO_DEPTH).then_some(depth)
            }
            false => None,
        };
        let (path, token) = (fields.string(path_len.into())?.into(), fields.string(token_len.into())?.into());
        self.watches_of(&at, id)?.push(SavedWatch { path, token, depth });
        Ok(())
    }

    /// Takes a watch with a depth that lacks the last four bytes of its header, depth included; tells its length. `None`
    /// where it is as documented. `promised` is the length that its header tells.
    fn short_watch(&mut self, rest: &'a [u8], promised: usize, offset: usize) -> Result<Option<usize>, StreamError> {
        if rest.get(..promised).is_some_and(|body| self.clone_reads(body, offset)) {
            return Ok(None);
        }
        let mut fields = Fields::new(rest, offset);
        let at = fields;
        let (id, path_len, token_len) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let (Ok(path), Ok(token)) = (fields.string(path_len.into()), fields.string(token_len.into())) else {
            return Ok(None);
        };
        let (path, token) = (path.into(), token.into());
        self.watches_of(&at, id)?.push(SavedWatch { path, token, depth: None });
        Ok(Some(8 + usize::from(path_len) + usize::from(token_len)))
    }

    /// Whether a watch with a depth is as documented.
    fn clone_reads(&self, body: &[u8], offset: usize) -> bool {
        let mut fields = Fields::new(body, offset);
        let mut read = || -> Result<(), StreamError> {
            let (_, path_len, token_len, _) = (fields.u32()?, fields.u16()?, fields.u16()?, fields.u32()?);
            fields.string(path_len.into())?;
            fields.string(token_len.into()).map(drop)
        };
        read().is_ok()
    }

    fn node(&mut self, fields: &mut Fields<'a>) -> Result<(), StreamError> {
        let at = *fields;
        let (id, _tx) = (fields.u32()?, fields.u32()?);
        let (path_len, value_len, _access, count) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
        let mut permissions = Vec::with_capacity(count.into());
        for _ in 0..count {
            let entry = *fields;
            let (letter, flags, domid) = (fields.u8()?, fields.u8()?, fields.u16()?);
            let access = Access::from_letter(letter).ok_or_else(|| entry.error(Fault::Value("a permission")))?;
            permissions.push(Permission { domid: DomId(domid), access, ignored: flags & IGNORED != 0 });
        }
        let path = fields.string(path_len.into())?;
        let value = fields.bytes(value_len.into())?;
        if id != 0 {
            return Ok(());
        }
        if permissions.is_empty() {
            return Err(at.error(Fault::Value("a node without permissions")));
        }
        self.state.nodes.push(SavedNode { path: path.into(), value: value.into(), permissions });
        Ok(())
    }
}

/// So many values, then their names in the same order.
fn quotas(fields: &mut Fields<'_>, count: usize) -> Result<Named, StreamError> {
    // What the record has room for, so that a wrong count costs nothing.
    if count > fields.rest.len() / 4 {
        return Err(fields.error(Fault::Record));
    }
    let values = (0..count).map(|_| fields.u32()).collect::<Result<Vec<u32>, _>>()?;
    values.into_iter().map(|value| Ok((fields.name()?.into(), value))).collect()
}
