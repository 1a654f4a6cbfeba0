//! A thousand guests that boot, fifty at a time.
//!
//! For each one a toolstack makes a home, fills it in a transaction of forty writes, and introduces the domain, all over
//! a socket; then the guest reads, writes and watches over its ring. Each asks its next question once it has the answer
//! to the last, and all fifty do so at once. They began one after the other, so that at any time some are at every
//! stage.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use xenstore_wire::{OK, Op};

use super::Stage;
use crate::client::{Client, Failure, Outcome};
use crate::daemon::Kind;
use crate::hosted::Hosted;
use crate::meter::{Cost, percentile};
use crate::ring::RingClient;

/// Guests that boot.
pub(super) const GUESTS: u16 = 1000;
/// Guests that boot at once.
const AT_ONCE: usize = 50;
/// Writes of the toolstack's transaction.
const FILLED: usize = 40;
/// What a guest does.
const READS: usize = 20;
const WRITES: usize = 10;
const WATCHES: usize = 5;
/// Value of every node.
const VALUE: &[u8] = b"12345678";

/// No answer to anybody for so long is the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked for a guest, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Home,
    Owner,
    Start,
    Fill(usize),
    Commit,
    Introduce,
    Read(usize),
    Write(usize),
    Watch(usize),
    /// The first events of the watches.
    Events,
}

/// Requests for one guest; the events at the end are none.
const STEPS: usize = 2 + 1 + FILLED + 1 + 1 + READS + WRITES + WATCHES;

impl Step {
    fn next(self) -> Option<Self> {
        Some(match self {
            Self::Home => Self::Owner,
            Self::Owner => Self::Start,
            Self::Start => Self::Fill(0),
            Self::Fill(at) if at + 1 < FILLED => Self::Fill(at + 1),
            Self::Fill(_) => Self::Commit,
            Self::Commit => Self::Introduce,
            Self::Introduce => Self::Read(0),
            Self::Read(at) if at + 1 < READS => Self::Read(at + 1),
            Self::Read(_) => Self::Write(0),
            Self::Write(at) if at + 1 < WRITES => Self::Write(at + 1),
            Self::Write(_) => Self::Watch(0),
            Self::Watch(at) if at + 1 < WATCHES => Self::Watch(at + 1),
            Self::Watch(_) => Self::Events,
            Self::Events => return None,
        })
    }

    fn op(self) -> Op {
        match self {
            Self::Home | Self::Fill(_) | Self::Write(_) => Op::Write,
            Self::Owner => Op::SetPerms,
            Self::Start => Op::TransactionStart,
            Self::Commit => Op::TransactionEnd,
            Self::Introduce => Op::Introduce,
            Self::Read(_) => Op::Read,
            Self::Watch(_) | Self::Events => Op::Watch,
        }
    }
}

/// A guest while it boots.
#[derive(Debug)]
struct Boot {
    domid: u16,
    step: Step,
    /// Requests answered so far.
    answered: usize,
    tx_id: u32,
    ring: RingClient,
    asked: Instant,
}

/// A toolstack's connection, and the guest that it boots.
#[derive(Debug)]
struct Slot {
    toolstack: Client,
    boot: Option<Boot>,
}

/// All of them.
#[derive(Debug)]
struct Storm<'a> {
    hosted: &'a Hosted,
    slots: Vec<Slot>,
    /// The last guest that began.
    last: u16,
    guests: u16,
    done: u16,
    /// How long each request on a ring took.
    times: Vec<Duration>,
    /// Anything was answered since this was last looked at.
    moved: bool,
}

/// Boots all guests; CPU seconds of the daemon, and how long the guests' requests take.
pub(super) fn storm(stage: &mut Stage<'_>) -> Outcome<()> {
    let Some(hosted) = stage.hosts.first() else { return Ok(()) };
    if stage.options.quick && stage.daemon.kind == Kind::C {
        return Err(Failure::Unusable(format!("too slow with {GUESTS} guests for --quick")));
    }
    for domid in 1..=GUESTS {
        hosted.host.create(domid)?;
    }
    let slots = hosted.daemon.connect_many(AT_ONCE)?;
    let slots = slots.into_iter().map(|toolstack| Slot { toolstack, boot: None }).collect();
    let mut storm =
        Storm { hosted, slots, last: 0, guests: GUESTS, done: 0, times: Vec::with_capacity(100_000), moved: false };
    let (clock, begun) = (hosted.daemon.clock, Instant::now());
    let before = clock.now()?;
    storm.play()?;
    let (cpu, wall) = ((clock.now()? - before).as_secs_f64(), begun.elapsed().as_secs_f64());
    stage.add("storm-cpu", Cost { cpu, wall });
    if let Some(latency) = percentile(storm.times, 99) {
        stage.add("storm-p99", Cost { cpu: latency, wall: latency });
    }
    Ok(())
}

impl Storm<'_> {
    fn play(&mut self) -> Outcome<()> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, slot) in self.slots.iter().enumerate() {
            epoll.add(slot.toolstack.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        }
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let mut heard = Instant::now();
        self.begin(0)?;
        while self.done < self.guests {
            let count = epoll.wait(&mut events, EpollTimeout::ZERO)?;
            for event in &events[..count] {
                if let Ok(index) = usize::try_from(event.data()) {
                    self.take_answer(index)?;
                }
            }
            for index in 0..self.slots.len() {
                self.look_at_ring(index)?;
            }
            if std::mem::take(&mut self.moved) {
                heard = Instant::now();
            } else if heard.elapsed() > PATIENCE {
                return Err(Failure::Unusable("nobody is answered any more".to_owned()));
            }
        }
        Ok(())
    }

    /// Begins with the next guest, if there is one.
    fn begin(&mut self, index: usize) -> Outcome<()> {
        if self.last < self.guests {
            self.last += 1;
            let (domid, ring) = (self.last, self.hosted.guest(self.last)?);
            self.slots[index].boot =
                Some(Boot { domid, step: Step::Home, answered: 0, tx_id: 0, ring, asked: Instant::now() });
            self.ask(index)?;
        }
        Ok(())
    }

    /// Takes the answer that came over a socket, and goes on.
    fn take_answer(&mut self, index: usize) -> Outcome<()> {
        let slot = &mut self.slots[index];
        let Some(boot) = &mut slot.boot else {
            return Err(Failure::Unusable("an answer that nobody asked for".to_owned()));
        };
        match boot.step {
            Step::Start => boot.tx_id = slot.toolstack.take_transaction()?,
            Step::Commit => match slot.toolstack.answer(Op::TransactionEnd) {
                // As toolstacks do, the same once more.
                Err(Failure::Store { name, .. }) if name == "EAGAIN" => {
                    boot.step = Step::Start;
                    return self.ask(index);
                }
                other => drop(other?),
            },
            step => drop(slot.toolstack.answer(step.op())?),
        }
        self.go_on(index)
    }

    /// Takes the answer that came over a ring, if one did, and goes on.
    fn look_at_ring(&mut self, index: usize) -> Outcome<()> {
        let Some(boot) = &mut self.slots[index].boot else { return Ok(()) };
        let came = match boot.step {
            Step::Read(_) | Step::Write(_) | Step::Watch(_) => boot.ring.try_answer(boot.step.op())?,
            Step::Events => boot.ring.try_events(WATCHES)?,
            _ => false,
        };
        if !came {
            return Ok(());
        }
        if boot.step != Step::Events {
            self.times.push(boot.asked.elapsed());
        }
        self.go_on(index)
    }

    fn go_on(&mut self, index: usize) -> Outcome<()> {
        self.moved = true;
        let Some(boot) = &mut self.slots[index].boot else { return Ok(()) };
        boot.answered += 1;
        let (answered, first) = (boot.answered, boot.domid == 1);
        let floor = self.hosted.daemon.kind == Kind::Floor;
        match boot.step.next().filter(|&next| next != Step::Events || !floor) {
            Some(next) => {
                boot.step = next;
                self.ask(index)?;
            }
            None => {
                self.slots[index].boot = None;
                self.done += 1;
                self.begin(index)?;
            }
        }
        // While the first guest boots, the others begin at even distances.
        if first {
            let due = (1 + answered * AT_ONCE / STEPS).min(AT_ONCE);
            for index in usize::from(self.last)..due {
                self.begin(index)?;
            }
        }
        Ok(())
    }

    /// Asks what is next.
    fn ask(&mut self, index: usize) -> Outcome<()> {
        let Slot { toolstack, boot: Some(boot) } = &mut self.slots[index] else { return Ok(()) };
        let (op, home) = (boot.step.op(), format!("/local/domain/{}", boot.domid));
        let node = |at: usize| format!("device/{}/{at}\0", at % 4);
        let with_value = |path: String| [path.as_bytes(), VALUE].concat();
        let over_ring = match boot.step {
            Step::Read(at) => Some((node(at * 2).into_bytes(), VALUE.len())),
            Step::Write(at) => Some((with_value(node(at * 3)), OK.len())),
            Step::Watch(at) => Some((format!("device/{at}\0token\0").into_bytes(), OK.len())),
            _ => None,
        };
        if let Some((body, size)) = over_ring {
            boot.asked = Instant::now();
            return boot.ring.send(op, &body, size);
        }
        let (tx_id, body) = match boot.step {
            Step::Home => (0, format!("{home}\0").into_bytes()),
            Step::Owner => (0, format!("{home}\0n{}\0", boot.domid).into_bytes()),
            Step::Start => (0, b"\0".to_vec()),
            Step::Fill(at) => (boot.tx_id, with_value(format!("{home}/{}", node(at)))),
            Step::Commit => (boot.tx_id, b"T\0".to_vec()),
            Step::Introduce => {
                let domain = self.hosted.host.domain(boot.domid);
                let domain = domain.ok_or_else(|| Failure::Unusable(format!("no domain {}", boot.domid)))?;
                (0, format!("{}\0{}\0{}\0", boot.domid, domain.gfn, domain.port).into_bytes())
            }
            _ => return Ok(()),
        };
        let size = if boot.step == Step::Start { 2 } else { OK.len() };
        toolstack.queue(op, tx_id, &body, size);
        toolstack.send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_as_many_requests_as_its_steps() {
        let steps: Vec<Step> = std::iter::successors(Some(Step::Home), |step| step.next()).collect();
        assert_eq!(steps.len(), STEPS + 1, "and the events at the end");
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Fill(_))).count(), 40);
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Read(_))).count(), 20);
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Write(_))).count(), 10);
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Watch(_))).count(), 5);
    }
}
