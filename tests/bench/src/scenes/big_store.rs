//! The quota benchmark: a store as 999 domains leave it, made domain by domain in transactions, then listed.
//!
//! 999 domains make 260 739 leaves and 531 000 nodes. Each leaf is owned by its domain.

use xenstore_wire::Op;

use super::small::{PATH, VALUE};
use super::{Stage, transactions};
use crate::client::{Client, Failure, Outcome};
use crate::daemon::{Daemon, Kind};
use crate::meter::{Cost, Phase};
use crate::process::Memory;
use crate::rows::{BIG_READ, BIG_START, EMPTY_READ, EMPTY_START};

/// Domains of the full store.
pub(crate) const DOMAINS: usize = 999;
/// Directories of a domain.
const DIRECTORIES: usize = 9;
/// Leaves of a directory, each below a node of its own.
const LEAVES: usize = 29;
/// Domains that are listed.
const LISTED: usize = 100;

/// Times that the big store and an empty one are compared.
const TURNS: usize = 3;

/// The path of one leaf.
pub(super) fn leaf(domain: usize, directory: usize, number: usize) -> String {
    format!("/quotatest/{domain}/{directory}/{number}/x")
}

/// Creates, lists, weighs and works on the big store.
pub(super) fn big_store(stage: &mut Stage<'_>) -> Outcome<()> {
    let kind = stage.daemon.kind;
    let domains = domains(kind, stage.options.quick, stage.options.domains);
    if domains != DOMAINS {
        stage.samples.set_domains(kind, domains);
    }
    let mut client = stage.daemon.connect()?;
    let mut memory = 0.0f64;
    let mut create = Phase::default();
    let mut domain = 1;
    while domain <= domains {
        let last = (domain + 49).min(domains);
        create.time(&stage.daemon.clock, || (domain..=last).try_fold(0, |sum, id| Ok(sum + make(&mut client, id)?)))?;
        memory = memory.max(Memory::of(stage.daemon.pid())?.mebibytes());
        domain = last + 1;
    }
    if stage.wants("quota-create") {
        stage.add("quota-create", create.cost());
    }
    if stage.wants("quota-list") || stage.wants("quota-memory") {
        let mut listing = Phase::default();
        listing.time(&stage.daemon.clock, || {
            (1..=LISTED.min(domains)).try_fold(0, |sum, id| Ok(sum + list(&mut client, id)?))
        })?;
        stage.add("quota-list", listing.cost());
        memory = memory.max(Memory::of(stage.daemon.pid())?.mebibytes());
    }
    if stage.has_store() && stage.wants("quota-memory") {
        stage.add("quota-memory", Cost { cpu: memory, wall: memory });
    }
    drop(client);
    if let Some(empty) = stage.empty {
        flatness(stage, empty)?;
    }
    if ["tx-start", "tx-operation", "tx-commit"].iter().any(|id| stage.wants(id)) {
        transactions::overwrites(stage, domains)?;
    }
    if stage.has_store() && ["tx-create", "tx-again"].iter().any(|id| stage.wants(id)) {
        transactions::creates(stage, domains)?;
    }
    Ok(())
}

/// READ and transaction start, here and in an empty store by turns: what else the machine does hits both.
fn flatness(stage: &mut Stage<'_>, empty: &Daemon) -> Outcome<()> {
    let big = stage.daemon;
    for (daemon, read, start) in [(empty, EMPTY_READ, EMPTY_START), (big, BIG_READ, BIG_START)].repeat(TURNS) {
        if stage.wants(read) {
            let mut client = daemon.connect()?;
            client.write(0, PATH, VALUE)?;
            let cost = stage.meter.measure(&daemon.clock, || client.read(PATH, VALUE.len()).map(drop))?;
            stage.add(read, cost);
        }
        if stage.wants(start) {
            stage.add(start, transactions::starts(daemon)?);
        }
    }
    Ok(())
}

/// How many domains a daemon gets: C xenstored 4.17 does not finish the full store in minutes.
fn domains(kind: Kind, quick: bool, wish: Option<usize>) -> usize {
    let most = match (kind, quick) {
        (Kind::Ours, _) | (Kind::O | Kind::Floor, false) => DOMAINS,
        (Kind::C, false) => 300,
        (Kind::O | Kind::Floor, true) => 60,
        (Kind::C, true) => 60,
    };
    wish.map_or(most, |wish| wish.min(most))
}

/// All nodes of one domain in one transaction; returns the number of requests.
pub(super) fn make(client: &mut Client, domain: usize) -> Outcome<usize> {
    let tx_id = client.start()?;
    for directory in 1..=DIRECTORIES {
        for number in 1..=LEAVES {
            let path = leaf(domain, directory, number);
            client.write(tx_id, &path, b"value")?;
            client.set_owner(tx_id, &path, domain)?;
        }
    }
    client.end(tx_id, true)?;
    Ok(2 + 2 * DIRECTORIES * LEAVES)
}

/// One domain as `xenstore-ls -p` lists it: value and permissions of each node, and its children; returns the number
/// of requests. The shape is known, so that the floor can be asked the same.
fn list(client: &mut Client, domain: usize) -> Outcome<usize> {
    let root = format!("/quotatest/{domain}");
    let mut requests = children(client, &root, DIRECTORIES)?;
    for directory in 1..=DIRECTORIES {
        let path = format!("{root}/{directory}");
        requests += node(client, &path, 0, 3)?;
        requests += children(client, &path, LEAVES)?;
        for number in 1..=LEAVES {
            let path = format!("{path}/{number}");
            requests += node(client, &path, 0, 3)?;
            requests += children(client, &path, 1)?;
            let path = format!("{path}/x");
            requests += node(client, &path, 5, 4)?;
            requests += children(client, &path, 0)?;
        }
    }
    Ok(requests)
}

fn node(client: &mut Client, path: &str, value: usize, permissions: usize) -> Outcome<usize> {
    client.read(path, value)?;
    client.with_path(Op::GetPerms, 0, path, b"", permissions)?;
    Ok(2)
}

fn children(client: &mut Client, path: &str, count: usize) -> Outcome<usize> {
    let size = (1..=count).map(|number| if number < 10 { 2 } else { 3 }).sum();
    let body = client.with_path(Op::Directory, 0, path, b"", size)?;
    let len = body.len();
    if len == size { Ok(1) } else { Err(Failure::Unusable(format!("{path} lists {len} bytes, not {size}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_store_has_as_many_leaves_as_published() {
        assert_eq!(DOMAINS * DIRECTORIES * LEAVES, 260_739);
        assert_eq!(leaf(999, 9, 29), "/quotatest/999/9/29/x");
    }

    #[test]
    fn slow_peers_get_smaller_stores() {
        assert_eq!(domains(Kind::C, false, None), 300);
        assert_eq!(domains(Kind::Ours, true, None), 999);
        assert_eq!(domains(Kind::Ours, true, Some(50)), 50);
        assert_eq!(domains(Kind::C, true, Some(500)), 60);
    }
}
