//! WATCH, UNWATCH and RESET_WATCHES.

use xenstore_wire::{XsError, payload};

use super::{Outcome, Request, check_path_len, edit::hit, ok};
use crate::{
    domain::feature,
    effect::Trace,
    engine::Engine,
    event::Change,
    path::{WatchPath, home},
    quota::{Quota, within},
    watch::NewWatch,
};

/// Most levels that a watch's depth may name: the number after it means no limit where watches are saved.
const DEPTH_MAX: u16 = 65534;

/// WATCH `path|token|` or `path|token|depth|`: registers a watch and sends its first event after the reply.
pub(super) fn watch(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut strings = payload::strings(request.payload);
    let caller = request.caller;
    let (Some(raw), Some(token), depth, None) = (strings.next(), strings.next(), strings.next(), strings.next()) else {
        return Err(XsError::Inval.into());
    };
    let path = WatchPath::parse(raw, caller.domid)?;
    check_path_len(engine, caller, path.as_bytes())?;
    let depth = depth.map(payload::number::<u16>).transpose()?;
    let special = matches!(path, WatchPath::Special(_));
    if let Some(depth) = depth {
        let offered = caller.privileged || engine.domains.features(caller.domid) & feature::WATCH_DEPTH != 0;
        if !offered || depth > DEPTH_MAX || (special && depth != 1) {
            return Err(XsError::Inval.into());
        }
    }
    let hidden = if special || raw.first() == Some(&b'/') { 0 } else { home(caller.domid).len() + 1 };
    if engine.watches.is_registered(request.conn, path.as_bytes(), token) {
        return Err(XsError::Exist.into());
    }
    if !caller.privileged {
        let held = engine.connections.get(request.conn.index()).map_or(0, |connection| connection.watches);
        let size = path.as_bytes().len() + token.len();
        if !within(engine.domains.limit(caller.domid, Quota::Watches), u64::from(held) + 1) {
            return Err(hit(engine, request, Quota::Watches).into());
        }
        if !within(engine.domains.limit(caller.domid, Quota::Memory), engine.memory(caller.domid) + (size as u64)) {
            hit(engine, request, Quota::Memory);
            return Err(XsError::NoMem.into());
        }
    }
    let new = NewWatch { conn: request.conn, path: &path, token, hidden, depth };
    let id = engine.watches.register(&new).ok_or(XsError::Exist)?;
    if let Some(connection) = engine.connections.get_mut(request.conn.index()) {
        connection.watches += 1;
        connection.watch_bytes += path.as_bytes().len() + token.len();
        let watches = u64::from(connection.watches);
        if !caller.privileged {
            engine.domains.note(caller.domid, Quota::Watches, watches);
        }
    }
    engine.trace(|_| Trace::Create { kind: "watch", conn: request.conn });
    engine.changes.push(Change::Registered(id));
    ok(out)
}

/// UNWATCH `path|token|`: ends a watch; events that wait already are still sent.
pub(super) fn unwatch(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let [path, token] = payload::exactly::<2>(request.payload)?;
    let path = WatchPath::parse(path, request.caller.domid)?;
    let watch = engine.watches.unregister(request.conn, path.as_bytes(), token).ok_or(XsError::NoEnt)?;
    if let Some(connection) = engine.connections.get_mut(request.conn.index()) {
        connection.watches -= 1;
        connection.watch_bytes -= watch.size();
    }
    engine.trace(|_| Trace::Destroy { kind: "watch", conn: request.conn });
    ok(out)
}

/// RESET_WATCHES: drops the caller's watches and transactions, the one that the request names included.
pub(super) fn reset_watches(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    engine.abort_in_hand();
    engine.reset_watches(request.conn);
    ok(out)
}
