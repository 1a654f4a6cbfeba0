//! READ, WRITE, MKDIR, RM, DIRECTORY and DIRECTORY_PART.

use xenstore_wire::{PAYLOAD_MAX, XsError, payload};

use super::{
    Outcome, Request,
    edit::{self, Look, look, look_relying, rely},
    node_path, ok,
};
use crate::{
    connection::Caller, decimal, engine::Engine, path::parent, permission::Access, reliance::Relied, view::Nearest,
};

/// READ `path|`: the value, whatever its bytes.
pub(super) fn read(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    let id = look_relying(engine, request, path, Access::Read, Relied::CONTENT)?.found()?;
    out.extend_from_slice(engine.view().content(id).value.as_slice());
    Ok(())
}

/// DIRECTORY `path|`: the names of the children in the order of their bytes, each with a NUL.
pub(super) fn directory(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    let id = look_relying(engine, request, path, Access::Read, list_of(request.caller))?.found()?;
    let view = engine.view();
    if view.children(id).put_list(view.nodes(), 0, PAYLOAD_MAX, out) { Ok(()) } else { Err(XsError::TooBig.into()) }
}

/// DIRECTORY_PART `path|offset|`: the list's generation with a NUL, then whole names of the list from that byte on; at
/// its end one more NUL. A list whose generation stays is the same list. `E2BIG` for a name that fits no reply: one
/// without any name would be asked for for ever.
pub(super) fn directory_part(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let [path, offset] = payload::exactly::<2>(request.payload)?;
    let path = node_path(engine, request.caller, path)?;
    let offset = usize::try_from(payload::number::<u64>(offset)?).map_err(|_| XsError::Inval)?;
    let path = path.as_bytes();
    let id = look_relying(engine, request, path, Access::Read, list_of(request.caller))?.found()?;
    let view = engine.view();
    let start = out.len();
    decimal::put(out, view.list_generation(id));
    out.push(0);
    // One byte stays free, so that the mark of the end always fits.
    let room = PAYLOAD_MAX - 1 - (out.len() - start);
    let names = out.len();
    if view.children(id).put_list(view.nodes(), offset, room, out) {
        out.push(0);
    } else if out.len() == names {
        return Err(XsError::TooBig.into());
    }
    Ok(())
}

/// What is relied on by who reads a child list: the list, and by those who need it the permission.
fn list_of(caller: Caller) -> Relied {
    if caller.privileged { Relied::LIST } else { Relied::LIST.with(Relied::PERMISSIONS) }
}

/// WRITE `path|value`: sets the value, which may be any bytes, making the node and its ancestors where they are missing.
pub(super) fn write(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let (path, value) = payload::string_and_rest(request.payload)?;
    let path = node_path(engine, request.caller, path)?;
    let path = path.as_bytes();
    match look_for_writing(engine, request, path)? {
        Look::Found(id) => edit::set_value(engine, request, id, path, value)?,
        Look::Missing(nearest) => edit::create(engine, request, nearest, path, value)?,
    }
    ok(out)
}

/// MKDIR `path|`: makes the node where it is missing; otherwise nothing changes, but the caller must be allowed to write.
pub(super) fn mkdir(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    if let Look::Missing(nearest) = look_for_writing(engine, request, path)? {
        edit::create(engine, request, nearest, path, b"")?;
    }
    ok(out)
}

/// Looks a node up that the caller will write, and notes what a transaction relies on.
fn look_for_writing(engine: &mut Engine, request: &Request<'_>, path: &[u8]) -> Result<Look, XsError> {
    let looked = look(engine.view(), request, path, Access::Write)?;
    if engine.in_hand.is_some() {
        match looked {
            Look::Found(id) => {
                let relied = if request.caller.privileged { Relied::EXISTENCE } else { Relied::PERMISSIONS };
                rely(engine, request, path, Some(id), relied)?;
            }
            Look::Missing(Nearest { id, path_len, .. }) => {
                // The first missing ancestor must stay missing, and the one that lends its permissions must keep them.
                let below = path.iter().skip(path_len + 1).position(|&byte| byte == b'/');
                let first = below.map_or(path.len(), |at| path_len + 1 + at);
                rely(engine, request, &path[..path_len], Some(id), Relied::PERMISSIONS)?;
                rely(engine, request, &path[..first], None, Relied::EXISTENCE)?;
            }
        }
    }
    Ok(looked)
}

/// RM `path|`: removes the node with all below it; a missing node whose parent exists is removed already.
pub(super) fn rm(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = node_path(engine, request.caller, payload::one_string(request.payload)?)?;
    let path = path.as_bytes();
    match look(engine.view(), request, path, Access::Write)? {
        Look::Found(_) if path == b"/" => Err(XsError::Inval.into()),
        Look::Found(id) => {
            rely(engine, request, path, Some(id), Relied::SUBTREE)?;
            edit::remove(engine, request, path);
            ok(out)
        }
        Look::Missing(Nearest { id, missing: 1, .. }) => {
            rely(engine, request, path, None, Relied::EXISTENCE)?;
            rely(engine, request, parent(path), Some(id), Relied::EXISTENCE)?;
            ok(out)
        }
        Look::Missing(_) => {
            rely(engine, request, parent(path), None, Relied::EXISTENCE)?;
            Err(XsError::NoEnt.into())
        }
    }
}
