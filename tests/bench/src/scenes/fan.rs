//! Watch events: one of a thousand watchers, and a thousand watches on one path.

use super::Stage;
use crate::client::{Client, Outcome};

/// Watches in each scene.
const WATCHES: usize = 1000;
/// Writes of a stretch, at most: each fires a thousand events.
const FANNED: usize = 20;

/// Each of 1000 connections watches its own path; a write falls under one of them.
pub(super) fn watchers(stage: &mut Stage<'_>) -> Outcome<()> {
    if !stage.has_store() {
        return Ok(());
    }
    let mut writer = stage.daemon.connect()?;
    let mut watching = stage.daemon.connect_many(WATCHES)?;
    for (index, client) in watching.iter_mut().enumerate() {
        client.watch(&format!("/watched/{index}"), "token")?;
    }
    let mut at = 0;
    stage.measure("watchers", 1, || {
        at = (at + 7) % WATCHES;
        writer.write(0, &format!("/watched/{at}/state"), b"4")?;
        watching[at].take_events(1)
    })
}

/// One connection with a token for each watch.
pub(super) fn tokens(stage: &mut Stage<'_>) -> Outcome<()> {
    if !stage.has_store() {
        return Ok(());
    }
    let mut writer = stage.daemon.connect()?;
    let mut watching = stage.daemon.connect()?;
    for index in 0..WATCHES {
        watching.watch("/fan/out", &format!("token-{index}"))?;
    }
    fan(stage, "fan-tokens", &mut writer, || watching.take_events(WATCHES))
}

/// A connection for each watch.
pub(super) fn connections(stage: &mut Stage<'_>) -> Outcome<()> {
    if !stage.has_store() {
        return Ok(());
    }
    let mut writer = stage.daemon.connect()?;
    let mut watching = stage.daemon.connect_many(WATCHES)?;
    for client in &mut watching {
        client.watch("/fan/out", "token")?;
    }
    fan(stage, "fan-connections", &mut writer, || watching.iter_mut().try_for_each(|client| client.take_events(1)))
}

/// A write, then all its events; the cost is that of one event.
fn fan(
    stage: &mut Stage<'_>,
    id: &'static str,
    writer: &mut Client,
    mut take: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    stage.meter = stage.meter.at_most(FANNED);
    stage.measure(id, WATCHES, || {
        writer.write(0, "/fan/out", b"1")?;
        take()
    })
}
