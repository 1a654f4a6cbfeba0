//! A thousand domains with homes full of nodes and with watches die at once, and another guest works on.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use xenstore_wire::{OK, Op};

use super::guests::{BATCH, make_homes};
use super::{Stage, Worker};
use crate::client::{Failure, Outcome};
use crate::hosted::Hosted;
use crate::meter::{Cost, percentile};
use crate::rows::{DEATH_CPU, DEATH_P99, DEATH_TIME};

/// Domains that die.
pub(super) const DYING: u16 = 1000;
/// Nodes of each, its home among them.
const NODES: usize = 60;
/// Watches of each.
const WATCHES: usize = 20;

/// Seconds from the deaths until the last home is gone, and how long the requests of another guest take meanwhile.
pub(super) fn death(stage: &mut Stage<'_>) -> Outcome<()> {
    let Some(hosted) = stage.hosts.first() else { return Ok(()) };
    if !stage.has_store() {
        return Ok(());
    }
    // The last one lives on.
    let domids: Vec<u16> = (1..=DYING + 1).collect();
    for &domid in &domids {
        hosted.host.create(domid)?;
    }
    make_homes(hosted, &domids)?;
    fill(hosted)?;
    hosted.host.introduce_all(&domids)?;
    for domid in 1..=DYING {
        let mut guest = hosted.guest(domid)?;
        for watch in 0..WATCHES {
            guest.request(Op::Watch, format!("n{watch}\0token\0").as_bytes(), OK.len())?;
        }
    }
    let mut worker = Worker::new(hosted.guest(DYING + 1)?)?;
    let mut toolstack = hosted.daemon.connect()?;
    let before = hosted.daemon.clock.now()?;
    // So that it finds them all gone at one look.
    kill(hosted.daemon.pid(), Signal::SIGSTOP)?;
    let destroyed = (1..=DYING).try_for_each(|domid| hosted.host.destroy(domid));
    kill(hosted.daemon.pid(), Signal::SIGCONT)?;
    destroyed?;
    let begun = Instant::now();
    let (mut gone, mut times) = (0, Vec::new());
    while gone < DYING {
        let asked = Instant::now();
        worker.write()?;
        times.push(asked.elapsed());
        let home = format!("/local/domain/{}\0", gone + 1);
        match toolstack.request(Op::Read, 0, home.as_bytes(), 0) {
            Err(Failure::Store { name, .. }) if name == "ENOENT" => gone += 1,
            other => drop(other?),
        }
    }
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (hosted.daemon.clock.now()? - before).as_secs_f64();
    stage.add(DEATH_TIME, Cost { cpu: wall, wall });
    stage.add(DEATH_CPU, Cost { cpu, wall });
    if let Some(latency) = percentile(times, 99) {
        stage.add(DEATH_P99, Cost { cpu: latency, wall: latency });
    }
    Ok(())
}

/// Makes the nodes below the homes of those that will die, which own them.
fn fill(hosted: &Hosted) -> Outcome<()> {
    let mut toolstack = hosted.daemon.connect()?;
    for domid in 1..=DYING {
        for nodes in (1..NODES).collect::<Vec<_>>().chunks(BATCH) {
            for node in nodes {
                let node = format!("/local/domain/{domid}/n{node}\0value");
                toolstack.queue(Op::Write, 0, node.as_bytes(), OK.len());
            }
            toolstack.send()?;
            for _ in nodes {
                toolstack.answer(Op::Write)?;
            }
        }
    }
    Ok(())
}
