//! From the text that oxenstored writes (`db` in its run directory) to a state.
//!
//! A line is a word and its fields, parted by commas; names and values are in hexadecimal. Lines of words that are not
//! known here are passed over, as oxenstored does.

use std::collections::BTreeMap;

use super::state::{Peer, SavedConnection, SavedNode, SavedWatch, State};
use crate::{
    id::DomId,
    permission::Permission,
    store::{INTRODUCE_DOMAIN, RELEASE_DOMAIN},
};

/// First line of the text.
const FORMAT: &[u8] = b"$xenstored-dump-format";

/// What is wrong with a text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Who a watch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Domain(u16),
    Socket(i32),
}

/// Reads a whole text.
///
/// # Errors
/// What is wrong first, and in which line. Nothing is returned of a text that is wrong anywhere.
pub fn read_text(text: &[u8]) -> Result<State, TextError> {
    let mut lines = (1..).zip(text.split(|&byte| byte == b'\n'));
    if lines.next().is_none_or(|(_, line)| line != FORMAT) {
        return Err(TextError { line: 1, what: "this is no dump of a store" });
    }
    let mut state = State::default();
    let mut by_owner = BTreeMap::new();
    for (number, line) in lines {
        take(&mut state, &mut by_owner, line).map_err(|what| TextError { line: number, what })?;
    }
    Ok(state)
}

fn take(state: &mut State, by_owner: &mut BTreeMap<Owner, usize>, line: &[u8]) -> Result<(), &'static str> {
    let mut fields = line.split(|&byte| byte == b',');
    let word = fields.next().unwrap_or_default();
    let mut field = || fields.next().ok_or("a field is missing");
    match word {
        b"global" => state.listener = Some(number(field()?)?).filter(|&fd: &i32| fd >= 0),
        b"evtchn-dev" => {
            state.event_channels = Some(number(field()?)?).filter(|&fd: &i32| fd >= 0);
            state.domain_state_port = Some(number(field()?)?);
        }
        b"socket" => {
            let fd = number(field()?)?;
            add(state, by_owner, Owner::Socket(fd), Peer::Socket { fd })?;
        }
        b"dom" => {
            let domid: u16 = number(field()?)?;
            let (gfn, remote, local) = (number(field()?)?, number(field()?)?, number(field()?)?);
            let peer = Peer::Ring {
                domid: DomId(domid),
                target: None,
                local_port: local,
                remote_port: Some(remote),
                gfn: Some(gfn),
            };
            add(state, by_owner, Owner::Domain(domid), peer)?;
        }
        b"watch" => {
            let owner: i64 = number(field()?)?;
            let owner = match u16::try_from(owner) {
                Ok(domid) => Owner::Domain(domid),
                Err(_) => Owner::Socket(i32::try_from(-owner).map_err(|_| "a watch's owner")?),
            };
            let (path, token) = (hex(field()?)?.into(), hex(field()?)?.into());
            let depth = fields.next().map(number).transpose()?;
            // The watches of a connection that is not told of are nobody's.
            let connection = by_owner.get(&owner).and_then(|&index| state.connections.get_mut(index));
            if let Some(connection) = connection {
                connection.watches.push(SavedWatch { path, token, depth });
            }
        }
        b"store" => {
            let path = named(hex(field()?)?);
            let permissions = permissions(&hex(field()?)?)?;
            let value = hex(field()?)?.into();
            state.nodes.push(SavedNode { path, value, permissions });
        }
        _ => {}
    }
    Ok(())
}

fn add(state: &mut State, by_owner: &mut BTreeMap<Owner, usize>, owner: Owner, peer: Peer) -> Result<(), &'static str> {
    if by_owner.insert(owner, state.connections.len()).is_some() {
        return Err("a connection is told of twice");
    }
    let (watches, input, output) = (Vec::new(), Vec::new(), Vec::new());
    state.connections.push(SavedConnection { conn: None, peer, unique_id: None, watches, input, output, partial: 0 });
    Ok(())
}

/// oxenstored has the special nodes below the root.
fn named(path: Vec<u8>) -> Box<[u8]> {
    [INTRODUCE_DOMAIN, RELEASE_DOMAIN]
        .into_iter()
        .find(|special| path.strip_prefix(b"/") == Some(special))
        .map_or_else(|| path.into(), Into::into)
}

fn number<N: std::str::FromStr>(field: &[u8]) -> Result<N, &'static str> {
    std::str::from_utf8(field).ok().and_then(|digits| digits.parse().ok()).ok_or("a number that is none")
}

fn hex(field: &[u8]) -> Result<Vec<u8>, &'static str> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|nibble| u8::try_from(nibble).ok());
    let (pairs, []) = field.as_chunks::<2>() else { return Err("hexadecimal digits that are not in pairs") };
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    pairs.iter().map(byte).collect::<Option<_>>().ok_or("digits that are not hexadecimal")
}

fn permissions(text: &[u8]) -> Result<Vec<Permission>, &'static str> {
    let entries = text.split(|byte| matches!(byte, 0 | b',')).filter(|entry| !entry.is_empty());
    let entries = entries.map(Permission::parse).collect::<Result<Vec<_>, _>>().map_err(|_| "permissions")?;
    if entries.is_empty() { Err("a node without permissions") } else { Ok(entries) }
}
