//! One guest that asks now and then beside fifty that never stop asking.

use std::time::Instant;

use xenstore_wire::Op;

use super::{Stage, Worker};
use crate::client::Outcome;
use crate::meter::{Cost, median, percentile};
use crate::ring::RingClient;
use crate::rows::FLOOD_P99;

/// Guests that keep their rings full.
pub(super) const FLOODING: u16 = 50;

/// Microseconds within which 99 of 100 WRITEs of the one are answered, as the median of stretches.
pub(super) fn flood(stage: &mut Stage<'_>) -> Outcome<()> {
    let Some(hosted) = stage.hosts.first() else { return Ok(()) };
    let (mut worker, mut others) = Worker::beside(hosted, FLOODING)?;
    let flood =
        |others: &mut Vec<RingClient>| others.iter_mut().try_for_each(|other| other.flood(Op::Read, b"data\0", 0));
    let share = stage.meter.budget / u32::try_from(stage.meter.stretches).unwrap_or(1);
    let mut found = Vec::new();
    for _ in 0..stage.meter.stretches {
        let begun = Instant::now();
        let mut times = Vec::with_capacity(stage.meter.requests);
        while times.len() < stage.meter.requests && (times.is_empty() || begun.elapsed() < share) {
            let asked = Instant::now();
            worker.begin_write()?;
            while !worker.has_written()? {
                flood(&mut others)?;
            }
            times.push(asked.elapsed());
        }
        found.extend(percentile(times, 99));
    }
    let latency = median(found).unwrap_or(0.0);
    stage.add(FLOOD_P99, Cost { cpu: latency, wall: latency });
    Ok(())
}
