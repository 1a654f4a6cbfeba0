//! What is played: one file for each kind of scene.

mod big_store;
mod death;
mod fan;
mod flood;
mod guests;
mod journal;
mod restart;
mod small;
mod storm;
mod transactions;

use std::collections::HashMap;

use xenstore_wire::Op;

use crate::client::{Client, Outcome};
use crate::daemon::{Daemon, Kind};
use crate::hosted::Hosted;
use crate::meter::{Cost, Meter};
use crate::options::Options;
use crate::process::CpuClock;
use crate::rows::{Figure, Row, Scene};

pub(crate) use big_store::DOMAINS;
pub(crate) use guests::Worker;

/// All figures so far: one per run for each daemon and sample.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    costs: HashMap<(Kind, &'static str), Vec<Cost>>,
    /// What ours says about its loop, by scene; that of the last run.
    pub(crate) turns: Vec<(Scene, String)>,
    domains: HashMap<Kind, usize>,
}

impl Samples {
    /// The figures of a sample, one per run.
    pub(crate) fn of(&self, kind: Kind, id: &'static str) -> &[Cost] {
        self.costs.get(&(kind, id)).map_or(&[], Vec::as_slice)
    }

    /// Domains of a daemon's big store, where they are not [`DOMAINS`].
    pub(crate) fn domains(&self, kind: Kind) -> Option<usize> {
        self.domains.get(&kind).copied()
    }

    /// Says that a daemon's big store has fewer domains.
    pub(crate) fn set_domains(&mut self, kind: Kind, domains: usize) {
        self.domains.insert(kind, domains);
    }

    /// Adds the figure of one run.
    pub(crate) fn add(&mut self, kind: Kind, id: &'static str, cost: Cost) {
        self.costs.entry((kind, id)).or_default().push(cost);
    }
}

/// Whether any of `rows` needs this sample.
fn needs(rows: &[Row], id: &str) -> bool {
    rows.iter().any(|row| match row.figure {
        Figure::Ratio(above, below) => above == id || below == id,
        _ => row.id == id,
    })
}

/// Guests beside the one that works, for each host that a scene takes.
pub(crate) fn crowds(scene: Scene, rows: &[Row]) -> Vec<u16> {
    match scene {
        Scene::Guests => guests::crowds(rows),
        Scene::Deaf => vec![guests::DEAF],
        Scene::Flood => vec![flood::FLOODING],
        Scene::Storm => vec![storm::GUESTS],
        Scene::Death => vec![death::DYING],
        Scene::Journal => vec![journal::OTHERS; 2],
        Scene::Restart => vec![restart::GUESTS],
        _ => Vec::new(),
    }
}

/// One daemon while it plays one scene.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// Who plays.
    pub(crate) daemon: &'a Daemon,
    /// The same daemon once more with an empty store, where a scene compares.
    pub(crate) empty: Option<&'a Daemon>,
    /// The daemon on hosts with guests, one for each of [`crowds`], where a scene has them.
    pub(crate) hosts: &'a [Hosted],
    /// How much.
    pub(crate) meter: Meter,
    /// What was asked for.
    pub(crate) options: &'a Options,
    /// Rows that are wanted.
    pub(crate) rows: &'a [Row],
    /// Where figures go.
    pub(crate) samples: &'a mut Samples,
}

impl Stage<'_> {
    /// Plays `scene` on the daemon's empty store.
    pub(crate) fn play(&mut self, scene: Scene) -> Outcome<()> {
        match scene {
            Scene::Small => small::small(self)?,
            Scene::Idle(count) => small::idle(self, count)?,
            Scene::Wide => small::wide(self)?,
            Scene::Watchers => fan::watchers(self)?,
            Scene::FanTokens => fan::tokens(self)?,
            Scene::FanConnections => fan::connections(self)?,
            Scene::BigStore => big_store::big_store(self)?,
            Scene::Guests => guests::guests(self)?,
            Scene::Deaf => guests::deaf(self)?,
            Scene::Flood => flood::flood(self)?,
            Scene::Storm => storm::storm(self)?,
            Scene::Death => death::death(self)?,
            Scene::Journal => journal::journal(self)?,
            Scene::Restart => restart::restart(self)?,
        }
        if self.daemon.kind == Kind::Ours
            && let Ok(text) = self.turns()
        {
            self.samples.turns.retain(|(other, _)| *other != scene);
            self.samples.turns.push((scene, text));
        }
        Ok(())
    }

    /// Whether any wanted row needs this sample.
    fn wants(&self, id: &str) -> bool {
        needs(self.rows, id)
    }

    /// Whether the daemon has a store.
    fn has_store(&self) -> bool {
        self.daemon.kind != Kind::Floor
    }

    /// Measures `request` for a sample, if it is wanted.
    fn measure(&mut self, id: &'static str, parts: usize, request: impl FnMut() -> Outcome<()>) -> Outcome<()> {
        if self.wants(id) {
            let cost = self.meter.measure(&self.daemon.clock, request)?;
            self.add(id, cost.part(parts));
        }
        Ok(())
    }

    /// Measures `request`, which the daemon with this clock serves, for a sample, if it is wanted.
    fn measure_on(&mut self, clock: &CpuClock, id: &'static str, request: impl FnMut() -> Outcome<()>) -> Outcome<()> {
        if self.wants(id) {
            let cost = self.meter.measure(clock, request)?;
            self.add(id, cost);
        }
        Ok(())
    }

    /// Keeps a figure.
    fn add(&mut self, id: &'static str, cost: Cost) {
        self.samples.add(self.daemon.kind, id, cost);
    }

    /// Turn times of the daemon's loop, as it tells them.
    fn turns(&self) -> Outcome<String> {
        let mut client: Client = self.daemon.connect()?;
        let text = client.request(Op::Control, 0, b"turns\0", 0)?;
        Ok(String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).trim_end().to_owned())
    }
}
