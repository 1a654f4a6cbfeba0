//! GET_PERMS and SET_PERMS.

use xenstore_wire::{XsError, payload};

use super::{
    Outcome, Request, check_path_len,
    edit::{self, hit, look_relying, rely},
    know, ok,
};
use crate::{
    domain::feature,
    engine::Engine,
    id::DomId,
    node::NodeId,
    path::WatchPath,
    permission::{Access, Permission, Permissions},
    quota::{Quota, within},
    reliance::Relied,
};

/// GET_PERMS `path|`: the entries, each with a NUL. Special nodes have permissions too.
pub(super) fn get_perms(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let path = WatchPath::parse(payload::one_string(request.payload)?, request.caller.domid)?;
    check_path_len(engine, request.caller, path.as_bytes())?;
    let id = match &path {
        WatchPath::Node(path) => {
            look_relying(engine, request, path.as_bytes(), Access::Read, Relied::CONTENT)?.found()?
        }
        WatchPath::Special(name) => {
            let seen = engine.view().find(name);
            rely(engine, request, name, seen, Relied::CONTENT)?;
            let id = seen.ok_or(XsError::NoEnt)?;
            if !request.caller.may(&engine.view().content(id).permissions, Access::Read) {
                return Err(XsError::Access.into());
            }
            id
        }
    };
    engine.view().content(id).permissions.put(out);
    Ok(())
}

/// The node or special node, where the caller may set its permissions.
///
/// # Errors
/// `EACCES` where the caller does not own it; also where it is missing and the caller may neither write nor owns its
/// nearest ancestor.
fn owned(engine: &Engine, request: &Request<'_>, path: &WatchPath<'_>) -> Result<NodeId, XsError> {
    let (caller, view) = (request.caller, engine.view());
    let (id, missing) = match path {
        WatchPath::Node(path) => {
            let nearest = view.nearest(path.as_bytes());
            (nearest.id, nearest.missing)
        }
        WatchPath::Special(name) => (view.find(name).ok_or(XsError::NoEnt)?, 0),
    };
    let permissions = &view.content(id).permissions;
    match missing {
        0 if caller.owns(permissions) => Ok(id),
        0 => Err(XsError::Access),
        _ if caller.owns(permissions) || caller.may(permissions, Access::Write) => Err(XsError::NoEnt),
        _ => Err(XsError::Access),
    }
}

/// SET_PERMS `path|entry|+`: the first entry is the owner, with what all others may do in its letter.
pub(super) fn set_perms(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut strings = payload::strings(request.payload);
    let caller = request.caller;
    let path = WatchPath::parse(strings.next().ok_or(XsError::Inval)?, caller.domid)?;
    check_path_len(engine, caller, path.as_bytes())?;
    let mut entries = strings.map(Permission::parse).collect::<Result<Vec<_>, _>>()?;
    if entries.is_empty() {
        return Err(XsError::Inval.into());
    }
    if !caller.privileged {
        engine.domains.note(caller.domid, Quota::NodePermissions, entries.len() as u64);
        if !within(engine.domains.limit(caller.domid, Quota::NodePermissions), entries.len() as u64) {
            return Err(hit(engine, request, Quota::NodePermissions).into());
        }
    }
    let named: Vec<DomId> = entries.iter().map(|entry| entry.domid).collect();
    know(engine, request, &named)?;
    mark_unknown(engine, request, &mut entries)?;
    let owner = entries.remove(0);
    if owner.ignored {
        return Err(XsError::NoEnt.into());
    }
    let id = owned(engine, request, &path)?;
    if !caller.privileged && owner.domid != engine.view().content(id).permissions.owner() {
        return Err(XsError::Perm.into());
    }
    let relied = if caller.privileged { Relied::EXISTENCE } else { Relied::PERMISSIONS };
    rely(engine, request, path.as_bytes(), Some(id), relied)?;
    edit::set_permissions(engine, request, id, path.as_bytes(), Permissions::new(owner, entries))?;
    ok(out)
}

/// Marks entries of domains that do not exist: they must not come to life with a later domain of that id. Domains that
/// do exist are known from now on, so that what is set up for them before they are introduced stays.
///
/// # Errors
/// `EINVAL` for an entry of all domains by a caller who was not offered that.
fn mark_unknown(engine: &mut Engine, request: &Request<'_>, entries: &mut [Permission]) -> Result<(), XsError> {
    for (place, entry) in entries.iter_mut().enumerate() {
        if entry.domid == DomId::ANY && place > 0 {
            let features = engine.domains.features(request.caller.domid);
            if !request.caller.privileged && features & feature::ANY_DOMAIN == 0 {
                return Err(XsError::Inval);
            }
        } else if engine.domains.exists(entry.domid) {
            engine.domains.entry(entry.domid);
        } else {
            entry.ignored = true;
        }
    }
    Ok(())
}
