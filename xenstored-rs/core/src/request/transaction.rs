//! TRANSACTION_START and TRANSACTION_END.

use xenstore_wire::{XsError, payload};

use super::{Failure, Outcome, Request, edit::hit, ok};
use crate::{
    decimal,
    effect::Trace,
    engine::Engine,
    event::Change,
    quota::{Quota, within},
    transaction::Transaction,
};

/// TRANSACTION_START: opens a transaction on the store as it is at this moment; answers with its number.
pub(super) fn start(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    if engine.in_hand.is_some() {
        return Err(XsError::Busy.into());
    }
    let holding = engine.holds_transactions();
    let Some(connection) = engine.connections.get_mut(request.conn.index()) else { return Err(XsError::Io.into()) };
    if holding && connection.transactions.is_empty() {
        engine.wait(request.conn, request.header, request.payload);
        return Err(Failure::Asked);
    }
    let open = connection.transactions.len() as u64 + 1;
    if !request.caller.privileged {
        let domid = request.caller.domid;
        if !within(engine.domains.limit(domid, Quota::Transactions), open) {
            return Err(hit(engine, request, Quota::Transactions).into());
        }
        engine.domains.note(domid, Quota::Transactions, open);
    }
    let id = connection.next_tx();
    let transaction = Transaction::new(id, &mut engine.store);
    let snapshot = transaction.snapshot;
    connection.transactions.insert(id, Box::new(transaction));
    if engine.guest(request.conn).is_some() {
        engine.store.snapshots.note_guest(snapshot, request.conn, id);
    }
    engine.trace(|_| Trace::Create { kind: "transaction", conn: request.conn });
    decimal::put(out, u64::from(id.0));
    out.push(0);
    Ok(())
}

/// TRANSACTION_END `T|` or `F|`: commits or aborts. Whatever comes of it, the transaction is over.
pub(super) fn end(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let commit = match payload::one_string(request.payload)? {
        b"T" => true,
        b"F" => false,
        _ => return Err(XsError::Inval.into()),
    };
    let mut transaction = engine.in_hand.take().ok_or(XsError::NoEnt)?;
    engine.trace(|_| Trace::Destroy { kind: "transaction", conn: request.conn });
    let refused = match commit {
        true if transaction.poisoned => Some(XsError::NoMem),
        true if transaction.outdated || !transaction.is_read_only() => {
            let held = transaction.validate(&engine.store).map_err(|node| {
                engine.blame(request.conn, node);
                XsError::Again
            });
            held.and_then(|()| check_growth(engine, request, &transaction)).err()
        }
        _ => None,
    };
    if let Some(error) = refused {
        transaction.abort(&mut engine.store);
        return Err(error.into());
    }
    if !commit || transaction.is_read_only() {
        transaction.abort(&mut engine.store);
        return ok(out);
    }
    // Who may see the events depends on the permissions before as well.
    let before = if engine.watches.len() == 0 {
        Vec::new()
    } else {
        transaction.changes().into_iter().map(|(path, _)| engine.store.permissions_at(path)).collect()
    };
    let generation = engine.next_generation();
    let removed = transaction.apply(&mut engine.store, generation);
    if engine.guest(request.conn).is_some() || !engine.writers.is_empty() {
        let paths = transaction.changes();
        let written: Vec<_> = paths.into_iter().filter_map(|(path, _)| engine.store.find(path)).collect();
        engine.note_writer(request.conn, written);
    }
    engine.changes.push(Change::Committed { transaction, before, removed });
    ok(out)
}

/// Refuses a commit after which its domain owned more nodes than it may, and more than now.
fn check_growth(engine: &mut Engine, request: &Request<'_>, transaction: &Transaction) -> Result<(), XsError> {
    if request.caller.privileged {
        return Ok(());
    }
    for (domid, then, more) in transaction.growth(&engine.store) {
        if more > 0 && !within(engine.domains.limit(domid, Quota::Nodes), then) {
            return Err(hit(engine, request, Quota::Nodes));
        }
    }
    Ok(())
}
