//! What the journal costs: the same work by a daemon that keeps one and by one that does not, by turns.

use super::guests::Worker;
use super::small::{PATH, VALUE};
use super::{Stage, big_store};
use crate::client::{Client, Outcome};
use crate::meter::{Cost, Phase};
use crate::process::CpuClock;
use crate::rows::{KEPT, UNKEPT};

/// Times that the two are compared: what else the machine does hits both.
const TURNS: usize = 3;
/// Domains of the quota benchmark that are made in a turn.
const DOMAINS: usize = 20;
/// Guests beside the one that works: who owns nodes must be there.
pub(super) const OTHERS: u16 = 60;
const _: () = assert!(TURNS * DOMAINS <= OTHERS as usize);

/// One of the two.
struct Side {
    clock: CpuClock,
    samples: [&'static str; 5],
    client: Client,
    worker: Worker,
    odd: bool,
    made: usize,
}

/// READs and WRITEs over a socket and a ring, and the quota benchmark, with a journal and without.
pub(super) fn journal(stage: &mut Stage<'_>) -> Outcome<()> {
    let mut sides = Vec::new();
    for (hosted, samples) in stage.hosts.iter().zip([KEPT, UNKEPT]) {
        let mut client = hosted.daemon.connect()?;
        client.write(0, PATH, VALUE)?;
        let worker = Worker::beside(hosted, OTHERS)?.0;
        sides.push(Side { clock: hosted.daemon.clock, samples, client, worker, odd: false, made: 0 });
    }
    for turn in 0..TURNS {
        if turn % 2 == 1 {
            sides.reverse();
        }
        for side in &mut sides {
            side.play(stage)?;
        }
    }
    Ok(())
}

impl Side {
    fn play(&mut self, stage: &mut Stage<'_>) -> Outcome<()> {
        let Self { clock, samples, client, worker, odd, made } = self;
        stage.measure_on(clock, samples[0], || client.read(PATH, VALUE.len()).map(drop))?;
        stage.measure_on(clock, samples[1], || {
            *odd = !*odd;
            client.write(0, "/bench/written", if *odd { b"12345679" } else { VALUE })
        })?;
        if stage.wants(samples[2]) {
            let mut create = Phase::default();
            create.time(clock, || {
                (0..DOMAINS).try_fold(0, |sum, _| {
                    *made += 1;
                    Ok(sum + big_store::make(client, *made)?)
                })
            })?;
            let cost: Cost = create.cost();
            stage.add(samples[2], cost);
        }
        stage.measure_on(clock, samples[3], || worker.read())?;
        stage.measure_on(clock, samples[4], || worker.write())
    }
}
