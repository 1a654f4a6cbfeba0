//! Changes of nodes, inside a transaction or outside, under the quotas of who makes them.

use xenstore_wire::XsError;

use super::Request;
use crate::{
    effect::{Effect, Note},
    engine::Engine,
    event::Change,
    node::Node,
    permission::{Access, Permissions},
    quota::{Quota, QuotaHit, within},
    store::{Nearest, Store},
    transaction::Relied,
};

/// What a look at a node came to.
#[derive(Debug)]
pub(super) enum Look<'a> {
    /// It is there, and the caller may do what it asked for.
    Found(&'a Node),
    /// It is not there, and the caller may know that.
    Missing(Nearest<'a>),
}

/// Looks a node up for a caller who wants `access`.
///
/// # Errors
/// `EACCES` where the caller may not do it; where the node is missing, also to a caller without that right on the
/// nearest ancestor that exists, so that nobody learns what is there and what is not.
pub(super) fn look<'a>(
    store: &'a Store,
    request: &Request<'_>,
    path: &[u8],
    access: Access,
) -> Result<Look<'a>, XsError> {
    let nearest = store.nearest(path);
    if nearest.missing == 0 {
        let may = request.caller.may(&nearest.node.permissions, access);
        return if may { Ok(Look::Found(nearest.node)) } else { Err(XsError::Access) };
    }
    let permissions = &nearest.node.permissions;
    let may_some = match access {
        Access::Both => request.caller.may(permissions, Access::Read) || request.caller.may(permissions, Access::Write),
        access => request.caller.may(permissions, access),
    };
    if may_some { Ok(Look::Missing(nearest)) } else { Err(XsError::Access) }
}

/// Notes in the request's transaction, if it has one, what it relies on at a path.
///
/// # Errors
/// `ENOSPC` where the transaction touched as many nodes as the caller may; it can then only be aborted.
pub(super) fn rely(engine: &mut Engine, request: &mut Request<'_>, path: &[u8], relied: Relied) -> Result<(), XsError> {
    may_touch(engine, request, path)?;
    if let Some(transaction) = &mut request.tx {
        transaction.rely(path, relied);
    }
    Ok(())
}

fn may_touch(engine: &mut Engine, request: &mut Request<'_>, path: &[u8]) -> Result<(), XsError> {
    let caller = request.caller;
    let Some(transaction) = &mut request.tx else { return Ok(()) };
    if caller.privileged || transaction.touched(path) {
        return Ok(());
    }
    let limit = engine.domains.limit(caller.domid, Quota::TransactionNodes);
    let used = transaction.touched_count() as u64 + 1;
    engine.domains.note(caller.domid, Quota::TransactionNodes, used);
    if within(limit, used) {
        return Ok(());
    }
    transaction.poisoned = true;
    Err(hit(engine, request, Quota::TransactionNodes))
}

/// Notes that the caller ran into a quota, and is what it is told.
pub(super) fn hit(engine: &mut Engine, request: &Request<'_>, quota: Quota) -> XsError {
    let domid = request.caller.domid;
    let limit = engine.domains.limit(domid, quota);
    engine.effects.push_back(Effect::Note(Note::QuotaHit(QuotaHit { domid, quota, limit })));
    XsError::NoSpc
}

/// A change that cannot be made for want of quota: a transaction that planned on it must not commit.
fn refuse(engine: &mut Engine, request: &mut Request<'_>, quota: Quota, error: XsError) -> XsError {
    hit(engine, request, quota);
    if let Some(transaction) = &mut request.tx {
        transaction.poisoned = true;
    }
    error
}

/// Bytes that a caller's domain holds, nodes and all else.
pub(super) fn memory(engine: &Engine, request: &Request<'_>) -> u64 {
    let connection = engine.connections.get(request.conn.index()).map_or(0, |connection| connection.bytes());
    let transaction = request.tx.as_ref().map_or(0, |transaction| transaction.bytes);
    request.store(engine).accounts.usage(request.caller.domid).bytes + ((connection + transaction) as u64)
}

/// Refuses `more` bytes where the caller's domain would then hold more than it may.
fn may_hold(engine: &mut Engine, request: &mut Request<'_>, more: usize, error: XsError) -> Result<(), XsError> {
    let limit = engine.domains.limit(request.caller.domid, Quota::Memory);
    if request.caller.privileged || more == 0 || within(limit, memory(engine, request) + (more as u64)) {
        return Ok(());
    }
    Err(refuse(engine, request, Quota::Memory, error))
}

/// Refuses a node of `size` bytes that is larger than the caller may make one.
fn may_be_so_large(engine: &mut Engine, request: &mut Request<'_>, size: usize) -> Result<(), XsError> {
    let limit = engine.domains.limit(request.caller.domid, Quota::NodeSize);
    if request.caller.privileged || within(limit, size as u64) {
        return Ok(());
    }
    Err(refuse(engine, request, Quota::NodeSize, XsError::NoSpc))
}

/// Sets the value of a node that exists.
pub(super) fn set_value(
    engine: &mut Engine,
    request: &mut Request<'_>,
    path: &[u8],
    value: &[u8],
) -> Result<(), XsError> {
    if !request.caller.privileged {
        let Some(node) = request.store(engine).find(path) else { return Err(XsError::Io) };
        let size = Node::size_of(node.permissions.len(), value.len(), node.child_list_len());
        let more = size.saturating_sub(node.size());
        may_be_so_large(engine, request, size)?;
        may_hold(engine, request, more, XsError::NoMem)?;
    }
    let generation = engine.next_generation();
    match &mut request.tx {
        Some(transaction) => {
            transaction.write(path, |written| written.value = true);
            transaction.store.set_value(path, value, generation);
        }
        None => {
            engine.store.set_value(path, value, generation);
            changed(engine, path, None);
        }
    }
    Ok(())
}

/// Makes a node that is missing, and its missing ancestors, with the permissions of the nearest one that exists. What
/// an unprivileged caller makes is its own.
pub(super) fn create(engine: &mut Engine, request: &mut Request<'_>, path: &[u8], value: &[u8]) -> Result<(), XsError> {
    let Nearest { node, path_len, missing } = request.store(engine).nearest(path);
    let (above, above_size) = (path_len, node.size());
    let inherited = node.permissions.clone();
    let permissions = if request.caller.privileged { inherited } else { inherited.with_owner(request.caller.domid) };
    if !request.caller.privileged {
        let names: Vec<usize> =
            crate::path::names(&path[if above == 1 { 0 } else { above }..]).map(<[u8]>::len).collect();
        let first = names.first().copied().unwrap_or(0);
        may_be_so_large(engine, request, above_size + first + 1)?;
        for below in names.iter().skip(1) {
            may_be_so_large(engine, request, Node::size_of(permissions.len(), 0, below + 1))?;
        }
        may_be_so_large(engine, request, Node::size_of(permissions.len(), value.len(), 0))?;
        let domid = request.caller.domid;
        let owned = u64::from(request.store(engine).accounts.usage(domid).nodes) + missing as u64;
        if !within(engine.domains.limit(domid, Quota::Nodes), owned) {
            return Err(refuse(engine, request, Quota::Nodes, XsError::NoSpc));
        }
        let mut path_len = if above == 1 { 0 } else { above };
        let mut more = value.len() + names.iter().map(|len| len + 1).sum::<usize>();
        for len in &names {
            path_len += 1 + len;
            more += Node::size_of(permissions.len(), 0, 0) + path_len;
        }
        may_hold(engine, request, more, XsError::Io)?;
    }
    let permissions = engine.permissions.shared(permissions);
    let generation = engine.next_generation();
    match &mut request.tx {
        Some(transaction) => {
            transaction.write(path, |written| written.value = true);
            transaction.store.create(path, value, &permissions, generation);
        }
        None => {
            engine.store.create(path, value, &permissions, generation);
            changed(engine, path, None);
        }
    }
    Ok(())
}

/// Sets the permissions of a node that exists, or of a special node.
pub(super) fn set_permissions(
    engine: &mut Engine,
    request: &mut Request<'_>,
    path: &[u8],
    permissions: Permissions,
) -> Result<(), XsError> {
    let Some(node) = request.store(engine).find(path) else { return Err(XsError::Io) };
    let old = node.permissions.clone();
    let size = Node::size_of(permissions.len(), node.value.len(), node.child_list_len());
    if !request.caller.privileged {
        let more = size.saturating_sub(node.size());
        may_be_so_large(engine, request, size)?;
        may_hold(engine, request, more, XsError::NoMem)?;
    }
    let permissions = engine.permissions.shared(permissions);
    let generation = engine.next_generation();
    match &mut request.tx {
        Some(transaction) => {
            transaction.write(path, |written| written.permissions = true);
            transaction.store.set_permissions(path, permissions, generation);
        }
        None => {
            engine.store.set_permissions(path, permissions, generation);
            changed(engine, path, Some(old));
        }
    }
    Ok(())
}

/// Removes a node that exists, with all below it.
pub(super) fn remove(engine: &mut Engine, request: &mut Request<'_>, path: &[u8]) {
    let generation = engine.next_generation();
    match &mut request.tx {
        Some(transaction) => {
            transaction.write(path, |written| {
                written.removed = true;
                written.value = false;
                written.permissions = false;
            });
            transaction.store.remove(path, generation);
        }
        None => {
            if let Some(subtree) = engine.store.remove(path, generation)
                && engine.watches.len() > 0
            {
                engine.changes.push(Change::Removed { path: path.into(), subtree });
            }
        }
    }
}

fn changed(engine: &mut Engine, path: &[u8], old: Option<Permissions>) {
    // Special nodes fire with their events, not with their permissions.
    if engine.watches.len() > 0 && path.first() != Some(&b'@') {
        engine.changes.push(Change::Set { path: path.into(), old });
    }
}
