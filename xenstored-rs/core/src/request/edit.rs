//! Changes of nodes, inside a transaction or outside, under the quotas of who makes them.

use xenstore_wire::XsError;

use super::Request;
use crate::{
    accounts::Accounts,
    effect::{Effect, Note},
    engine::Engine,
    event::Change,
    id::DomId,
    node::{self, NodeId},
    path::{names, parent},
    permission::{Access, Permissions},
    quota::{Quota, QuotaHit, within},
    reliance::Relied,
    view::{Nearest, View},
};

/// What a look at a node came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// It is there, and the caller may do what it asked for.
    Found(NodeId),
    /// It is not there, and the caller may know that.
    Missing(Nearest),
}

impl Look {
    /// The node.
    ///
    /// # Errors
    /// `ENOENT` where it is missing.
    pub(super) fn found(self) -> Result<NodeId, XsError> {
        match self {
            Self::Found(id) => Ok(id),
            Self::Missing(_) => Err(XsError::NoEnt),
        }
    }
}

/// Looks a node up for a caller who wants `access`.
///
/// # Errors
/// `EACCES` where the caller may not do it; where the node is missing, also to a caller without that right on the
/// nearest ancestor that exists, so that nobody learns what is there and what is not.
pub(super) fn look(view: View<'_>, request: &Request<'_>, path: &[u8], access: Access) -> Result<Look, XsError> {
    judge(view, request, view.nearest(path), access)
}

/// As [`look`], for a caller who will be told what the node holds: a transaction relies on that, whatever it is told.
///
/// # Errors
/// As [`look`], and as [`rely`].
pub(super) fn look_relying(
    engine: &mut Engine,
    request: &Request<'_>,
    path: &[u8],
    access: Access,
    relied: Relied,
) -> Result<Look, XsError> {
    let nearest = engine.view().nearest(path);
    rely(engine, request, path, Some(nearest.id).filter(|_| nearest.missing == 0), relied)?;
    judge(engine.view(), request, nearest, access)
}

fn judge(view: View<'_>, request: &Request<'_>, nearest: Nearest, access: Access) -> Result<Look, XsError> {
    let may = request.caller.privileged || request.caller.may(&view.content(nearest.id).permissions, access);
    match (may, nearest.missing) {
        (false, _) => Err(XsError::Access),
        (true, 0) => Ok(Look::Found(nearest.id)),
        (true, _) => Ok(Look::Missing(nearest)),
    }
}

/// Notes in the request's transaction, if it has one, what it relies on at a path, where it sees `seen`.
///
/// # Errors
/// `ENOSPC` where the transaction touched as many nodes as the caller may, `ENOMEM` where the paths that the caller's
/// transactions touched take as much memory as it may have; it can then only be aborted.
pub(super) fn rely(
    engine: &mut Engine,
    request: &Request<'_>,
    path: &[u8],
    seen: Option<NodeId>,
    relied: Relied,
) -> Result<(), XsError> {
    if engine.in_hand.is_none() {
        return Ok(());
    }
    may_touch(engine, request, path)?;
    if let Some(transaction) = &mut engine.in_hand {
        transaction.rely(&engine.store, path, seen, relied);
    }
    Ok(())
}

fn may_touch(engine: &mut Engine, request: &Request<'_>, path: &[u8]) -> Result<(), XsError> {
    let caller = request.caller;
    let Some(transaction) = &mut engine.in_hand else { return Ok(()) };
    if caller.privileged || transaction.touched(path) {
        return Ok(());
    }
    let limit = engine.domains.limit(caller.domid, Quota::TransactionNodes);
    let used = transaction.touched_count() as u64 + 1;
    engine.domains.note(caller.domid, Quota::TransactionNodes, used);
    if !within(limit, used) {
        return Err(refuse(engine, request, Quota::TransactionNodes, XsError::NoSpc));
    }
    // The path is kept to the transaction's end.
    transaction_may_hold(engine, request, path.len())
}

/// Refuses `more` bytes for the request's transaction where all transactions of the caller would then hold more than it may.
/// They are held to the quota by themselves: a domain whose nodes fill it can still look at them and remove them.
fn transaction_may_hold(engine: &mut Engine, request: &Request<'_>, more: usize) -> Result<(), XsError> {
    let Some(transaction) = &engine.in_hand else { return Ok(()) };
    if request.caller.privileged || more == 0 {
        return Ok(());
    }
    let others = engine.connections.get(request.conn.index()).into_iter();
    let others = others.flat_map(|connection| connection.transactions.values());
    let held: usize = others.chain([transaction]).map(|open| open.bytes + open.values).sum();
    if within(engine.domains.limit(request.caller.domid, Quota::Memory), (held + more) as u64) {
        return Ok(());
    }
    Err(refuse(engine, request, Quota::Memory, XsError::NoMem))
}

/// Refuses a change of a node in a transaction where its value, which will have `new` bytes, is more than the caller's
/// transactions may hold.
fn transaction_may_change(engine: &mut Engine, request: &Request<'_>, id: NodeId, new: usize) -> Result<(), XsError> {
    let Some(transaction) = &engine.in_hand else { return Ok(()) };
    let held = transaction.own_value_len(&engine.store, id).unwrap_or(0);
    transaction_may_hold(engine, request, new.saturating_sub(held))
}

/// Notes that the caller ran into a quota, and is what it is told.
pub(super) fn hit(engine: &mut Engine, request: &Request<'_>, quota: Quota) -> XsError {
    let domid = request.caller.domid;
    let limit = engine.domains.limit(domid, quota);
    engine.effects.push_back(Effect::Note(Note::QuotaHit(QuotaHit { domid, quota, limit })));
    XsError::NoSpc
}

/// A change that cannot be made for want of quota: a transaction that planned on it must not commit.
fn refuse(engine: &mut Engine, request: &Request<'_>, quota: Quota, error: XsError) -> XsError {
    hit(engine, request, quota);
    if let Some(transaction) = &mut engine.in_hand {
        transaction.poisoned = true;
    }
    error
}

/// What each domain owns, as the request sees it.
fn accounts(engine: &Engine) -> &Accounts {
    engine.in_hand.as_ref().map_or(&engine.store.accounts, |transaction| transaction.accounts())
}

/// Refuses `more` bytes for a node of `owner` where that domain would then hold more than it may.
fn may_hold(
    engine: &mut Engine,
    request: &Request<'_>,
    owner: DomId,
    more: usize,
    error: XsError,
) -> Result<(), XsError> {
    let limit = engine.domains.limit(owner, Quota::Memory);
    if request.caller.privileged || owner == engine.config.priv_domid || more == 0 {
        return Ok(());
    }
    let in_hand = engine.in_hand.as_ref().filter(|_| owner == request.caller.domid);
    let in_hand = in_hand.map_or(0, |transaction| transaction.bytes);
    // What a transaction makes counts as if it were there already.
    let (seen, real) = (accounts(engine).usage(owner).bytes, engine.store.accounts.usage(owner).bytes);
    let held = engine.memory(owner) - real + seen;
    if within(limit, held + ((in_hand + more) as u64)) {
        return Ok(());
    }
    Err(refuse(engine, request, Quota::Memory, error))
}

/// Refuses a node of `size` bytes that is larger than the caller may make one.
fn may_be_so_large(engine: &mut Engine, request: &Request<'_>, size: usize) -> Result<(), XsError> {
    let limit = engine.domains.limit(request.caller.domid, Quota::NodeSize);
    if request.caller.privileged || within(limit, size as u64) {
        return Ok(());
    }
    Err(refuse(engine, request, Quota::NodeSize, XsError::NoSpc))
}

/// Sets the value of a node that exists.
pub(super) fn set_value(
    engine: &mut Engine,
    request: &Request<'_>,
    id: NodeId,
    path: &[u8],
    value: &[u8],
) -> Result<(), XsError> {
    if !request.caller.privileged {
        let view = engine.view();
        let size = node::size_of(view.content(id).permissions.len(), value.len(), view.child_list_len(id));
        let (owner, more) = (view.content(id).permissions.owner(), size.saturating_sub(view.size(id)));
        may_be_so_large(engine, request, size)?;
        may_hold(engine, request, owner, more, XsError::NoMem)?;
        transaction_may_change(engine, request, id, value.len())?;
    }
    let generation = engine.next_generation();
    match &mut engine.in_hand {
        Some(transaction) => transaction.set_value(&mut engine.store, id, path, value.into(), generation),
        None => {
            engine.store.set_value(id, value.into(), generation);
            engine.note_writer(request.conn, [id]);
            changed(engine, path, None);
        }
    }
    Ok(())
}

/// Makes a node that is missing, and its missing ancestors, with the permissions of the nearest one that exists. What
/// an unprivileged caller makes is its own.
pub(super) fn create(
    engine: &mut Engine,
    request: &Request<'_>,
    nearest: Nearest,
    path: &[u8],
    value: &[u8],
) -> Result<(), XsError> {
    let inherited = engine.view().content(nearest.id).permissions.clone();
    let permissions = if request.caller.privileged { inherited } else { inherited.with_owner(request.caller.domid) };
    if !request.caller.privileged {
        may_create(engine, request, nearest, path, value, &permissions)?;
    }
    let permissions = engine.permissions.shared(permissions);
    let generation = engine.next_generation();
    match &mut engine.in_hand {
        Some(transaction) => transaction.create(&mut engine.store, path, value, &permissions, generation),
        None => {
            engine.store.create(path, value, &permissions, generation);
            let made = engine.store.find(path);
            engine.note_writer(request.conn, made.into_iter().chain([nearest.id]));
            changed(engine, path, None);
        }
    }
    Ok(())
}

/// Checks a creation against the quotas of who makes it: all nodes that it makes count together.
fn may_create(
    engine: &mut Engine,
    request: &Request<'_>,
    nearest: Nearest,
    path: &[u8],
    value: &[u8],
    permissions: &Permissions,
) -> Result<(), XsError> {
    let mut path_len = if nearest.path_len == 1 { 0 } else { nearest.path_len };
    let names: Vec<usize> = names(&path[path_len..]).map(<[u8]>::len).collect();
    let domid = request.caller.domid;
    let parent_owner = engine.view().content(nearest.id).permissions.owner();
    let mut above = engine.view().size(nearest.id);
    let mut more = value.len();
    for name in &names {
        may_be_so_large(engine, request, above + name + 1)?;
        above = node::size_of(permissions.len(), 0, 0);
        path_len += 1 + name;
        more += name + 1 + above + path_len;
    }
    may_be_so_large(engine, request, above + value.len())?;
    // The first name lengthens the list of a node that may be another's.
    let others = names.first().filter(|_| parent_owner != domid).map_or(0, |name| name + 1);
    let owned = u64::from(accounts(engine).usage(domid).nodes) + nearest.missing as u64;
    if !within(engine.domains.limit(domid, Quota::Nodes), owned) {
        return Err(refuse(engine, request, Quota::Nodes, XsError::NoSpc));
    }
    may_hold(engine, request, parent_owner, others, XsError::Io)?;
    may_hold(engine, request, domid, more - others, XsError::Io)?;
    transaction_may_hold(engine, request, value.len())
}

/// Sets the permissions of a node that exists, or of a special node.
pub(super) fn set_permissions(
    engine: &mut Engine,
    request: &Request<'_>,
    id: NodeId,
    path: &[u8],
    permissions: Permissions,
) -> Result<(), XsError> {
    let view = engine.view();
    let content = view.content(id);
    let old = content.permissions.clone();
    if !request.caller.privileged {
        let size = node::size_of(permissions.len(), content.value.len(), view.child_list_len(id));
        let (owner, more) = (old.owner(), size.saturating_sub(view.size(id)));
        let len = content.value.len();
        may_be_so_large(engine, request, size)?;
        may_hold(engine, request, owner, more, XsError::NoMem)?;
        transaction_may_change(engine, request, id, len)?;
    }
    let permissions = engine.permissions.shared(permissions);
    let generation = engine.next_generation();
    match &mut engine.in_hand {
        Some(transaction) => transaction.set_permissions(&mut engine.store, id, path, permissions, generation),
        None => {
            engine.store.set_permissions(id, path.len(), permissions, generation);
            engine.note_writer(request.conn, [id]);
            changed(engine, path, Some(old));
        }
    }
    Ok(())
}

/// Removes a node that exists, with all below it.
pub(super) fn remove(engine: &mut Engine, request: &Request<'_>, path: &[u8]) {
    let generation = engine.next_generation();
    match &mut engine.in_hand {
        Some(transaction) => transaction.remove(&mut engine.store, path, generation),
        None => {
            if let Some(root) = engine.store.remove(path, generation) {
                let above = engine.store.find(parent(path));
                engine.note_writer(request.conn, above.into_iter().chain([root]));
                engine.changes.push(Change::Removed { path: path.into(), root });
            }
        }
    }
}

fn changed(engine: &mut Engine, path: &[u8], old: Option<Permissions>) {
    if engine.watches.len() > 0 {
        engine.changes.push(Change::Set { path: path.into(), old });
    }
}
