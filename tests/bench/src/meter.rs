//! From clock readings to figures that noise moves little.

use std::time::{Duration, Instant};

use crate::client::Outcome;
use crate::process::CpuClock;

/// What one request cost, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// CPU time of the daemon.
    pub(crate) cpu: f64,
    /// Time that passed for the client.
    pub(crate) wall: f64,
}

impl Cost {
    /// The cost of one of `count` equal parts.
    pub(crate) fn part(self, count: usize) -> Self {
        Self { cpu: self.cpu / count as f64, wall: self.wall / count as f64 }
    }
}

/// How much of a request is played for one figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Stretches that are timed each; the figure is their median.
    pub(crate) stretches: usize,
    /// Most requests of a stretch.
    pub(crate) requests: usize,
    /// Most time that all stretches may take, so that slow daemons end too.
    pub(crate) budget: Duration,
}

impl Meter {
    /// The same effort with at most `requests` a stretch, for what is slow by nature.
    pub(crate) fn at_most(self, requests: usize) -> Self {
        Self { requests: self.requests.min(requests), ..self }
    }

    /// Plays `request` again and again; a tenth of a stretch goes before, untimed.
    pub(crate) fn measure(&self, clock: &CpuClock, mut request: impl FnMut() -> Outcome<()>) -> Outcome<Cost> {
        let share = self.budget / u32::try_from(self.stretches).unwrap_or(1);
        let warm = Instant::now();
        for _ in 0..self.requests.div_ceil(10) {
            request()?;
            if warm.elapsed() > share {
                break;
            }
        }
        let mut costs = Vec::with_capacity(self.stretches);
        for _ in 0..self.stretches {
            let mut phase = Phase::default();
            phase.time(clock, || {
                let begun = Instant::now();
                let mut played = 0;
                while played < self.requests && (played == 0 || begun.elapsed() < share) {
                    request()?;
                    played += 1;
                }
                Ok(played)
            })?;
            costs.push(phase.cost());
        }
        Ok(median_cost(&costs))
    }
}

/// Time gathered over many short stretches of the same kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phase {
    cpu: Duration,
    wall: Duration,
    requests: usize,
}

impl Phase {
    /// Adds what `play` costs; it returns how many requests it played.
    pub(crate) fn time(&mut self, clock: &CpuClock, play: impl FnOnce() -> Outcome<usize>) -> Outcome<()> {
        let cpu = clock.now()?;
        let begun = Instant::now();
        self.requests += play()?;
        self.wall += begun.elapsed();
        self.cpu += clock.now()?.saturating_sub(cpu);
        Ok(())
    }

    /// Requests played so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// The mean cost of a request.
    pub(crate) fn cost(&self) -> Cost {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / self.requests.max(1) as f64;
        Cost { cpu: micros(self.cpu), wall: micros(self.wall) }
    }
}

/// The middle of `values`, or the mean of the two in the middle; `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Microseconds within which `percent` of 100 of `times` lie; `None` of nothing.
pub(crate) fn percentile(mut times: Vec<Duration>, percent: usize) -> Option<f64> {
    times.sort_unstable();
    let at = (times.len() * percent).div_ceil(100);
    Some(times.get(at.checked_sub(1)?)?.as_secs_f64() * 1e6)
}

/// Half the distance between the least and the most, as a share of the median.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values.iter().copied())?;
    let most = values.iter().copied().reduce(f64::max)?;
    let least = values.iter().copied().reduce(f64::min)?;
    (values.len() > 1 && middle > 0.0).then(|| (most - least) / 2.0 / middle)
}

fn median_cost(costs: &[Cost]) -> Cost {
    let of = |part: fn(&Cost) -> f64| median(costs.iter().map(part)).unwrap_or(0.0);
    Cost { cpu: of(|cost| cost.cpu), wall: of(|cost| cost.wall) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Pid;
    use rstest::rstest;

    #[rstest]
    #[case::nothing(&[], None)]
    #[case::one(&[3.0], Some(3.0))]
    #[case::odd(&[9.0, 1.0, 4.0], Some(4.0))]
    #[case::even(&[9.0, 1.0, 4.0, 2.0], Some(3.0))]
    fn the_median_is_the_middle(#[case] values: &[f64], #[case] want: Option<f64>) {
        assert_eq!(median(values.iter().copied()), want);
    }

    #[rstest]
    #[case::all(100, Some(200.0))]
    #[case::most(99, Some(198.0))]
    #[case::half(50, Some(100.0))]
    fn a_percentile_has_so_many_at_or_below_it(#[case] percent: usize, #[case] want: Option<f64>) {
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(times, percent), want);
        assert_eq!(percentile(Vec::new(), percent), None);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.1));
        assert_eq!(spread(&[10.0]), None);
        assert_eq!(spread(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_stretch_ends_at_its_count_or_at_its_time() {
        let clock = CpuClock::of(Pid::this()).unwrap();
        let mut played = 0;
        let meter = Meter { stretches: 3, requests: 10, budget: Duration::from_secs(60) };
        let mut count = || {
            played += 1;
            Ok(())
        };
        meter.measure(&clock, &mut count).unwrap();
        assert_eq!(played, 1 + 30, "one to warm up, three stretches of ten");
        played = 0;
        let slow = Meter { budget: Duration::ZERO, ..meter };
        let mut count = || {
            played += 1;
            Ok(())
        };
        slow.measure(&clock, &mut count).unwrap();
        assert_eq!(played, 1 + 3, "no time left: one request a stretch");
    }
}
