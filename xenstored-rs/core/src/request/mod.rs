//! Requests: who may ask what, and the handlers.

mod domain;
mod edit;
mod feature;
mod node;
mod permission;
mod quota;
mod transaction;
mod watch;

use xenstore_wire::{Header, OK, Op, PAYLOAD_MAX, XsError, payload};

use crate::{
    connection::{Asked, Caller},
    control,
    effect::{Effect, Question},
    engine::Engine,
    id::{ConnId, DomId},
    path::{Path, counted_len},
    quota::{Quota, within},
};

/// A request on its way through its handler.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) conn: ConnId,
    pub(crate) caller: Caller,
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
}

/// Why a request has no ordinary reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It failed.
    Error(XsError),
    /// It waits, for the shell's answer or for domains; the reply comes later.
    Asked,
}

impl From<XsError> for Failure {
    fn from(error: XsError) -> Self {
        Self::Error(error)
    }
}

/// What a handler comes to: the payload of its reply is in the buffer, or there is none.
pub(crate) type Outcome = Result<(), Failure>;

/// Carries a request out; appends the payload of the reply.
type Handler = fn(&mut Engine, &Request<'_>, &mut Vec<u8>) -> Outcome;

/// How a message type is served.
#[derive(Clone, Copy)]
struct Entry {
    /// Only the privileged may ask.
    privileged: bool,
    /// The transaction number of the header is looked up.
    transactional: bool,
    handler: Handler,
}

const fn open(handler: Handler) -> Option<Entry> {
    Some(Entry { privileged: false, transactional: true, handler })
}

const fn outside(handler: Handler) -> Option<Entry> {
    Some(Entry { privileged: false, transactional: false, handler })
}

const fn privileged(handler: Handler) -> Option<Entry> {
    Some(Entry { privileged: true, transactional: true, handler })
}

/// Handlers by message type; types without one are answered `ENOSYS`.
static HANDLERS: [Option<Entry>; Op::COUNT] = {
    let mut table = [None; Op::COUNT];
    table[Op::Control as usize] = privileged(control::control);
    table[Op::Directory as usize] = open(node::directory);
    table[Op::Read as usize] = open(node::read);
    table[Op::GetPerms as usize] = open(permission::get_perms);
    table[Op::Watch as usize] = outside(watch::watch);
    table[Op::Unwatch as usize] = outside(watch::unwatch);
    table[Op::TransactionStart as usize] = open(transaction::start);
    table[Op::TransactionEnd as usize] = open(transaction::end);
    table[Op::Introduce as usize] = privileged(domain::introduce);
    table[Op::Release as usize] = privileged(domain::release);
    table[Op::GetDomainPath as usize] = open(domain::get_domain_path);
    table[Op::Write as usize] = open(node::write);
    table[Op::Mkdir as usize] = open(node::mkdir);
    table[Op::Rm as usize] = open(node::rm);
    table[Op::SetPerms as usize] = open(permission::set_perms);
    table[Op::IsDomainIntroduced as usize] = privileged(domain::is_domain_introduced);
    table[Op::Resume as usize] = privileged(domain::resume);
    table[Op::SetTarget as usize] = privileged(domain::set_target);
    table[Op::ResetWatches as usize] = open(watch::reset_watches);
    table[Op::DirectoryPart as usize] = open(node::directory_part);
    table[Op::GetFeature as usize] = open(feature::get_feature);
    table[Op::SetFeature as usize] = privileged(feature::set_feature);
    table[Op::GetQuota as usize] = privileged(quota::get_quota);
    table[Op::SetQuota as usize] = privileged(quota::set_quota);
    table
};

/// Serves a request: appends the payload of the reply to `out`.
///
/// The order of the checks is part of the protocol: an unknown type, then the caller's rights, then the transaction,
/// then the arguments, so that who may not ask learns nothing of what is wrong with the question.
///
/// # Errors
/// The error to answer with, or that the shell was asked; in neither case anything of `out` counts.
pub(crate) fn handle(engine: &mut Engine, conn: ConnId, header: Header, payload: &[u8], out: &mut Vec<u8>) -> Outcome {
    let entry = HANDLERS.get(header.op as usize).copied().flatten().ok_or(XsError::NoSys)?;
    let request = Request { conn, caller: engine.caller(conn), header, payload };
    if entry.privileged && !request.caller.privileged {
        return Err(XsError::Access.into());
    }
    if header.tx_id != 0 && entry.transactional {
        engine.take_in_hand(conn, header.tx_id)?;
    }
    let start = out.len();
    let mut outcome = (entry.handler)(engine, &request, out);
    engine.put_back(conn);
    if outcome.is_ok() && out.len() - start > PAYLOAD_MAX {
        outcome = Err(XsError::TooBig.into());
    }
    outcome
}

/// The plain answer.
pub(crate) fn ok(out: &mut Vec<u8>) -> Outcome {
    out.extend_from_slice(OK);
    Ok(())
}

/// Leaves the answer to the shell.
pub(crate) fn ask(engine: &mut Engine, request: &Request<'_>, question: Question) -> Outcome {
    if let Some(connection) = engine.connections.get_mut(request.conn.index()) {
        let payload = request.payload.into();
        engine.alterations += 1;
        connection.asked = Some(Asked { header: request.header, question: Some(question.clone()), payload });
        engine.effects.push_back(Effect::Ask { conn: request.conn, question });
    }
    Err(Failure::Asked)
}

/// Makes sure that nothing is under way with domains that a request names: neither that they end, nor that another
/// request introduces them.
///
/// # Errors
/// That the request waits; it is served anew afterwards.
fn settled(engine: &mut Engine, request: &Request<'_>, domids: &[DomId]) -> Outcome {
    if !domids.iter().any(|&domid| engine.is_unsettled(domid)) {
        return Ok(());
    }
    engine.wait(request.conn, request.header, request.payload);
    Err(Failure::Asked)
}

/// Makes sure that it is known whether domains exist, before anything is changed.
///
/// # Errors
/// That the shell was asked, or that the request waits.
fn know(engine: &mut Engine, request: &Request<'_>, domids: &[DomId]) -> Outcome {
    settled(engine, request, domids)?;
    let domids = domids.iter().copied();
    let unsure: Vec<DomId> = domids.filter(|&domid| engine.domains.is_unsure(domid)).collect();
    if unsure.is_empty() { Ok(()) } else { ask(engine, request, Question::Exist(unsure)) }
}

/// Reads the path of a node as the caller names it.
///
/// # Errors
/// `EINVAL` where it is ill-formed or longer than the caller's quota allows.
fn node_path<'p>(engine: &Engine, caller: Caller, raw: &'p [u8]) -> Result<Path<'p>, XsError> {
    let path = Path::parse(raw, caller.domid)?;
    check_path_len(engine, caller, path.as_bytes())?;
    Ok(path)
}

/// Refuses a path longer than the caller's quota allows.
fn check_path_len(engine: &Engine, caller: Caller, path: &[u8]) -> Result<(), XsError> {
    if caller.privileged || within(engine.domains.limit(caller.domid, Quota::PathMax), counted_len(path) as u64) {
        Ok(())
    } else {
        Err(XsError::Inval)
    }
}

/// Reads a domain id.
///
/// # Errors
/// `EINVAL` for anything but decimal digits, and above 65535.
pub(crate) fn domid(text: &[u8]) -> Result<DomId, XsError> {
    payload::number(text).map(DomId)
}
