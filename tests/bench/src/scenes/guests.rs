//! One guest that works beside many that do not. Each has a home of its own and four watches in it.

use std::time::Instant;

use xenstore_wire::{OK, Op};

use super::{Stage, needs};
use crate::client::{Failure, Outcome};
use crate::daemon::Kind;
use crate::hosted::Hosted;
use crate::meter::{Cost, median, percentile};
use crate::ring::RingClient;
use crate::rows::{CROWDS, GUEST_DEAF, GUEST_P99, GUEST_READ, GUEST_WRITE, Row};

/// The node of the guest that works, below its home; nobody watches it.
const NODE: &[u8] = b"data/value\0";
/// Values that it writes by turns.
const VALUES: [&[u8]; 2] = [b"12345678", b"12345679"];
/// What every guest watches, below its home.
const WATCHED: [&str; 4] = ["control/shutdown", "device/vif", "device/vbd", "memory/target"];
/// Homes that are made with one write to the socket.
pub(super) const BATCH: usize = 25;
/// Times that the hosts are compared: what else the machine does hits all.
const TURNS: usize = 3;
/// Guests that take no answer.
pub(super) const DEAF: u16 = 1000;
/// Times that each of them fills its ring: with requests that are served, with those that are taken, and some more.
const DEAF_ROUNDS: usize = 8;
/// The crowd beside which latency counts.
const P99_CROWD: u16 = 1000;

/// The crowds that `rows` need.
pub(super) fn crowds(rows: &[Row]) -> Vec<u16> {
    let wanted = |&(at, crowd): &(usize, u16)| {
        needs(rows, GUEST_READ[at]) || needs(rows, GUEST_WRITE[at]) || (crowd == P99_CROWD && needs(rows, GUEST_P99))
    };
    CROWDS.into_iter().enumerate().filter(wanted).map(|(_, crowd)| crowd).collect()
}

/// READ and WRITE of one guest on each host by turns, and how long they take.
pub(super) fn guests(stage: &mut Stage<'_>) -> Outcome<()> {
    let mut workers = Vec::new();
    let mut refused = Ok(());
    for (crowd, hosted) in crowds(stage.rows).into_iter().zip(stage.hosts) {
        if stage.options.quick && crowd > 1000 && matches!(stage.daemon.kind, Kind::C | Kind::O) {
            refused = Err(Failure::Unusable(format!("too slow beside {crowd} guests for --quick")));
            continue;
        }
        let at = CROWDS.iter().position(|&other| other == crowd).unwrap_or(0);
        workers.push((at, hosted.daemon.clock, Worker::beside(hosted, crowd)?.0));
    }
    for _ in 0..TURNS {
        for (at, clock, worker) in &mut workers {
            stage.measure_on(clock, GUEST_READ[*at], || worker.read())?;
            stage.measure_on(clock, GUEST_WRITE[*at], || worker.write())?;
        }
    }
    for (at, _, worker) in &mut workers {
        if CROWDS[*at] == P99_CROWD && stage.wants(GUEST_P99) {
            let latency = latency(stage, worker)?;
            stage.add(GUEST_P99, Cost { cpu: latency, wall: latency });
        }
    }
    refused
}

/// READ of one guest beside others that ask and take no answer.
pub(super) fn deaf(stage: &mut Stage<'_>) -> Outcome<()> {
    let Some(hosted) = stage.hosts.first() else { return Ok(()) };
    let clock = hosted.daemon.clock;
    let (mut worker, mut others) = Worker::beside(hosted, DEAF)?;
    for _ in 0..DEAF_ROUNDS {
        for other in &mut others {
            other.fill(Op::Read, b"data\0", OK.len())?;
        }
        // Until it sleeps.
        clock.now()?;
    }
    stage.measure_on(&clock, GUEST_DEAF, || worker.read())
}

/// Microseconds within which 99 of 100 WRITEs are answered: the median of what the stretches say, since a moment in
/// which the machine does something else would be all that is seen.
fn latency(stage: &Stage<'_>, worker: &mut Worker) -> Outcome<f64> {
    let mut found = Vec::new();
    let share = stage.meter.budget / u32::try_from(stage.meter.stretches).unwrap_or(1);
    for _ in 0..stage.meter.stretches {
        let begun = Instant::now();
        let mut times = Vec::with_capacity(stage.meter.requests);
        while times.len() < stage.meter.requests && begun.elapsed() < share {
            let asked = Instant::now();
            worker.write()?;
            times.push(asked.elapsed());
        }
        found.extend(percentile(times, 99));
    }
    Ok(median(found).unwrap_or(0.0))
}

/// The guest that works.
#[derive(Debug)]
pub(crate) struct Worker {
    ring: RingClient,
    odd: bool,
}

impl Worker {
    /// Makes the guest and `crowd` others, all introduced, with homes of their own and their watches.
    pub(crate) fn beside(hosted: &Hosted, crowd: u16) -> Outcome<(Self, Vec<RingClient>)> {
        let domids: Vec<u16> = (1..=1 + crowd).collect();
        for &domid in &domids {
            hosted.host.create(domid)?;
        }
        make_homes(hosted, &domids)?;
        hosted.host.introduce_all(&domids)?;
        let mut guests = domids.iter().map(|&domid| hosted.guest(domid)).collect::<Outcome<Vec<_>>>()?;
        // All ask before anybody waits, so that daemons that look at every guest do so less often.
        for guest in &mut guests {
            for path in WATCHED {
                guest.send(Op::Watch, format!("{path}\0token\0").as_bytes(), OK.len())?;
            }
        }
        for guest in &mut guests {
            for _ in WATCHED {
                guest.answer(Op::Watch)?;
            }
            if hosted.daemon.kind != Kind::Floor {
                guest.take_events(WATCHED.len())?;
            }
        }
        let worker = Self::new(guests.swap_remove(0))?;
        Ok((worker, guests))
    }

    /// A guest that is introduced and has a home, and makes the node there that it will write.
    pub(super) fn new(ring: RingClient) -> Outcome<Self> {
        let mut worker = Self { ring, odd: false };
        worker.write()?;
        Ok(worker)
    }

    /// READ.
    pub(crate) fn read(&mut self) -> Outcome<()> {
        self.ring.request(Op::Read, NODE, VALUES[0].len())
    }

    /// WRITE of another value than the last.
    pub(crate) fn write(&mut self) -> Outcome<()> {
        self.begin_write()?;
        self.ring.answer(Op::Write)
    }

    /// Sends such a WRITE.
    pub(super) fn begin_write(&mut self) -> Outcome<()> {
        self.odd = !self.odd;
        self.ring.send(Op::Write, &[NODE, VALUES[usize::from(self.odd)]].concat(), OK.len())
    }

    /// Whether it is answered.
    pub(super) fn has_written(&mut self) -> Outcome<bool> {
        self.ring.try_answer(Op::Write)
    }
}

/// A home for each of `domids`, which it owns.
pub(super) fn make_homes(hosted: &Hosted, domids: &[u16]) -> Outcome<()> {
    let mut toolstack = hosted.daemon.connect()?;
    for domids in domids.chunks(BATCH) {
        for domid in domids {
            let home = format!("/local/domain/{domid}\0");
            toolstack.queue(Op::Write, 0, home.as_bytes(), OK.len());
            toolstack.queue(Op::SetPerms, 0, format!("{home}n{domid}\0").as_bytes(), OK.len());
        }
        toolstack.send()?;
        for _ in domids {
            toolstack.answer(Op::Write)?;
            toolstack.answer(Op::SetPerms)?;
        }
    }
    Ok(())
}
