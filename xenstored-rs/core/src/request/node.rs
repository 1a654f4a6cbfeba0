//! READ, WRITE, MKDIR, RM, DIRECTORY and DIRECTORY_PART.

use xenstore_wire::{PAYLOAD_MAX, XsError, payload};

use super::{
    Outcome, Request,
    edit::{self, Look, look, rely},
    node_path, ok,
};
use crate::{decimal, engine::Engine, path::parent, permission::Access, store::Nearest, transaction::Relied};

/// READ `path|`: the value, whatever its bytes.
pub(super) fn read(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    rely(engine, request, path, Relied::CONTENT)?;
    match look(request.store(engine), request, path, Access::Read)? {
        Look::Found(node) => out.extend_from_slice(node.value.as_slice()),
        Look::Missing(_) => return Err(XsError::NoEnt.into()),
    }
    Ok(())
}

/// DIRECTORY `path|`: the names of the children in the order of their bytes, each with a NUL.
pub(super) fn directory(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    rely_on_list(engine, request, path)?;
    match look(request.store(engine), request, path, Access::Read)? {
        Look::Found(node) if node.child_list_len() > PAYLOAD_MAX => return Err(XsError::TooBig.into()),
        Look::Found(node) => out.extend_from_slice(node.child_list()),
        Look::Missing(_) => return Err(XsError::NoEnt.into()),
    }
    Ok(())
}

/// DIRECTORY_PART `path|offset|`: the list's generation with a NUL, then whole names of the list from that byte on; at
/// its end one more NUL. A list whose generation stays is the same list.
pub(super) fn directory_part(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let [path, offset] = payload::exactly::<2>(request.payload)?;
    let path = node_path(engine, request.caller, path)?;
    let offset = usize::try_from(payload::number::<u64>(offset)?).map_err(|_| XsError::Inval)?;
    let path = path.as_bytes();
    rely_on_list(engine, request, path)?;
    let Look::Found(node) = look(request.store(engine), request, path, Access::Read)? else {
        return Err(XsError::NoEnt.into());
    };
    let start = out.len();
    decimal::put(out, node.list_generation());
    out.push(0);
    let list = node.child_list();
    let rest = list.get(offset..).unwrap_or_default();
    // One byte stays free, so that the mark of the end always fits.
    let room = PAYLOAD_MAX - 1 - (out.len() - start);
    let part = if rest.len() <= room {
        rest
    } else {
        let whole = rest[..room].iter().rposition(|&byte| byte == 0).map_or(0, |nul| nul + 1);
        &rest[..whole]
    };
    out.extend_from_slice(part);
    if part.len() == rest.len() {
        out.push(0);
    }
    Ok(())
}

/// Notes that the child list is relied on, and by those who need it the permission to read it.
fn rely_on_list(engine: &mut Engine, request: &mut Request<'_>, path: &[u8]) -> Result<(), XsError> {
    let list = Relied::LIST;
    let relied = if request.caller.privileged { list } else { list.with(Relied::PERMISSIONS) };
    rely(engine, request, path, relied)
}

/// WRITE `path|value`: sets the value, which may be any bytes, making the node and its ancestors where they are missing.
pub(super) fn write(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let (path, value) = payload::string_and_rest(request.payload)?;
    let path = node_path(engine, request.caller, path)?;
    let path = path.as_bytes();
    let there = rely_on_writing(engine, request, path)?;
    if there {
        edit::set_value(engine, request, path, value)?;
    } else {
        edit::create(engine, request, path, value)?;
    }
    ok(out)
}

/// MKDIR `path|`: makes the node where it is missing; otherwise nothing changes, but the caller must be allowed to write.
pub(super) fn mkdir(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    if !rely_on_writing(engine, request, path)? {
        edit::create(engine, request, path, b"")?;
    }
    ok(out)
}

/// Whether the node is there, for a caller who will write it; notes what the transaction relies on.
fn rely_on_writing(engine: &mut Engine, request: &mut Request<'_>, path: &[u8]) -> Result<bool, XsError> {
    let nearest = match look(request.store(engine), request, path, Access::Write)? {
        Look::Found(_) => None,
        Look::Missing(Nearest { path_len, .. }) => Some(path_len),
    };
    if request.tx.is_none() {
        return Ok(nearest.is_none());
    }
    let Some(above) = nearest else {
        let relied = if request.caller.privileged { Relied::EXISTENCE } else { Relied::PERMISSIONS };
        rely(engine, request, path, relied)?;
        return Ok(true);
    };
    // The first missing ancestor must stay missing, and the one that lends its permissions must keep them.
    let first = path[above.max(1)..].iter().skip(1).position(|&byte| byte == b'/');
    let first = first.map_or(path.len(), |at| above.max(1) + 1 + at);
    rely(engine, request, &path[..above], Relied::PERMISSIONS)?;
    rely(engine, request, &path[..first], Relied::EXISTENCE)?;
    Ok(false)
}

/// RM `path|`: removes the node with all below it; a missing node whose parent exists is removed already.
pub(super) fn rm(engine: &mut Engine, request: &mut Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    let missing = match look(request.store(engine), request, path, Access::Write)? {
        Look::Found(_) if path == b"/" => return Err(XsError::Inval.into()),
        Look::Found(_) => 0,
        Look::Missing(Nearest { missing, .. }) => missing,
    };
    match missing {
        0 => {
            rely(engine, request, path, Relied::SUBTREE)?;
            edit::remove(engine, request, path);
            ok(out)
        }
        1 => {
            rely(engine, request, path, Relied::EXISTENCE)?;
            rely(engine, request, parent(path), Relied::EXISTENCE)?;
            ok(out)
        }
        _ => {
            rely(engine, request, parent(path), Relied::EXISTENCE)?;
            Err(XsError::NoEnt.into())
        }
    }
}
