//! Fifty connections with a transaction each, phase by phase.

use super::Stage;
use super::big_store::leaf;
use crate::client::{Client, Failure, Outcome};
use crate::daemon::Daemon;
use crate::meter::{Cost, Phase};

/// Connections at once.
const CONNECTIONS: usize = 50;
/// Times that all of them start, where starts alone are timed.
const STARTS: usize = 20;
/// Requests in each transaction.
const OPERATIONS: usize = 10;

/// What the rounds cost.
#[derive(Debug, Default)]
struct Rounds {
    start: Phase,
    operation: Phase,
    commit: Phase,
    again: usize,
}

/// Cost of a start alone; the transactions are aborted untimed.
pub(super) fn starts(daemon: &Daemon) -> Outcome<Cost> {
    let mut clients = daemon.connect_many(CONNECTIONS)?;
    let mut phase = Phase::default();
    for round in 0..=STARTS {
        let mut open = Vec::with_capacity(CONNECTIONS);
        if round == 0 {
            start_all(&mut clients, &mut open)?;
        } else {
            phase.time(&daemon.clock, || start_all(&mut clients, &mut open))?;
        }
        for (client, &tx_id) in clients.iter_mut().zip(&open) {
            client.end(tx_id, false)?;
        }
    }
    Ok(phase.cost())
}

/// Each connection overwrites leaves of a domain of its own: nobody is in anybody's way.
pub(super) fn overwrites(stage: &mut Stage<'_>, domains: usize) -> Outcome<()> {
    let rounds = play(stage, domains, |client, tx_id, index, round, operation| {
        let path = leaf(index + 1, operation % 9 + 1, round % 29 + 1);
        client.write(tx_id, &path, b"changed")
    })?;
    stage.add("tx-start", rounds.start.cost());
    stage.add("tx-operation", rounds.operation.cost());
    stage.add("tx-commit", rounds.commit.cost());
    Ok(())
}

/// Each connection creates nodes of its own below one parent.
pub(super) fn creates(stage: &mut Stage<'_>, domains: usize) -> Outcome<()> {
    stage.daemon.connect()?.write(0, "/siblings", b"")?;
    let rounds = play(stage, domains, |client, tx_id, index, round, operation| {
        client.write(tx_id, &format!("/siblings/{index}-{round}-{operation}"), b"new")
    })?;
    stage.add("tx-create", rounds.commit.cost());
    let again = rounds.again as f64 * 1000.0 / rounds.commit.requests().max(1) as f64;
    stage.add("tx-again", Cost { cpu: again, wall: again });
    Ok(())
}

fn play(
    stage: &Stage<'_>,
    domains: usize,
    mut operation: impl FnMut(&mut Client, u32, usize, usize, usize) -> Outcome<()>,
) -> Outcome<Rounds> {
    let clock = stage.daemon.clock;
    let mut clients = stage.daemon.connect_many(CONNECTIONS.min(domains))?;
    let mut rounds = Rounds::default();
    for round in 0..stage.options.rounds {
        let mut open = Vec::with_capacity(clients.len());
        rounds.start.time(&clock, || start_all(&mut clients, &mut open))?;
        rounds.operation.time(&clock, || {
            for at in 0..OPERATIONS {
                for (index, (client, &tx_id)) in clients.iter_mut().zip(&open).enumerate() {
                    operation(client, tx_id, index, round, at)?;
                }
            }
            Ok(OPERATIONS * open.len())
        })?;
        let again = &mut rounds.again;
        rounds.commit.time(&clock, || {
            for (client, &tx_id) in clients.iter_mut().zip(&open) {
                match client.end(tx_id, true) {
                    Err(Failure::Store { name, .. }) if name == "EAGAIN" => *again += 1,
                    other => other?,
                }
            }
            Ok(open.len())
        })?;
    }
    Ok(rounds)
}

fn start_all(clients: &mut [Client], open: &mut Vec<u32>) -> Outcome<usize> {
    for client in clients {
        open.push(client.start()?);
    }
    Ok(open.len())
}
