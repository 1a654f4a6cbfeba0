//! How long the turns of the event loop take.

use std::fmt::Write;
use std::time::Duration;

/// Parts that each power of two is divided into: a percentile is off by at most an eighth.
const PARTS: usize = 8;

/// Powers of two of nanoseconds that are told apart, up to half an hour.
const POWERS: usize = 41;

/// A histogram of durations, of fixed size.
#[derive(Debug)]
pub(crate) struct TurnTimes {
    buckets: Box<[u64]>,
    count: u64,
    total: Duration,
    min: Duration,
    max: Duration,
}

impl Default for TurnTimes {
    fn default() -> Self {
        Self {
            buckets: vec![0; PARTS * POWERS].into_boxed_slice(),
            count: 0,
            total: Duration::ZERO,
            min: Duration::MAX,
            max: Duration::ZERO,
        }
    }
}

impl TurnTimes {
    /// Adds a turn.
    pub(crate) fn record(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        self.min = self.min.min(took);
        self.max = self.max.max(took);
        self.buckets[bucket(took)] += 1;
    }

    /// The duration that `percent` of all turns did not exceed, rounded up to the bucket's end and to what was seen.
    #[must_use]
    pub(crate) fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(at).clamp(self.min.min(self.max), self.max);
            }
        }
        self.max
    }

    /// The figures for a person, one a line, times in microseconds.
    #[must_use]
    pub(crate) fn report(&self) -> String {
        let mean = if self.count == 0 { Duration::ZERO } else { self.total.div_f64(to_f64(self.count)) };
        let min = if self.count == 0 { Duration::ZERO } else { self.min };
        let mut text = format!("{:<15}: {}\n", "count", self.count);
        let times = [
            ("min", min),
            ("median", self.percentile(50)),
            ("mean", mean),
            ("95th percentile", self.percentile(95)),
            ("max", self.max),
        ];
        for (name, time) in times {
            let _ = writeln!(text, "{name:<15}: {:.1} us", time.as_secs_f64() * 1e6);
        }
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits of its count")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

/// The bucket of a duration: its power of two, and the eighth of it.
fn bucket(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(PARTS as u64);
    let power = nanos.ilog2() as usize;
    let part = usize::try_from(nanos >> (power - 3)).unwrap_or(usize::MAX) - PARTS;
    ((power - 3) * PARTS + part).min(PARTS * POWERS - 1)
}

/// The longest duration of a bucket.
fn end_of(bucket: usize) -> Duration {
    let (power, part) = (bucket / PARTS, bucket % PARTS);
    Duration::from_nanos((((PARTS + part + 1) as u64) << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_off_by_an_eighth_at_most() {
        let mut times = TurnTimes::default();
        for micros in 1..=1000 {
            times.record(Duration::from_micros(micros));
        }
        for percent in [1u64, 50, 95, 100] {
            let (got, want) = (times.percentile(percent), Duration::from_micros(10 * percent));
            assert!(got >= want && got <= want * 9 / 8, "{percent} %: {got:?}");
        }
        assert_eq!(times.percentile(100), Duration::from_millis(1));
    }

    #[test]
    fn every_duration_has_a_bucket() {
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
            let at = bucket(took);
            assert!(at < PARTS * POWERS);
        }
        for nanos in [8u64, 9, 15, 16, 1000, 123_456_789] {
            let took = Duration::from_nanos(nanos);
            assert!(end_of(bucket(took)) >= took);
        }
    }

    #[test]
    fn the_report_names_each_figure() {
        let mut times = TurnTimes::default();
        assert!(times.report().starts_with("count          : 0\n"));
        times.record(Duration::from_micros(3));
        let names: Vec<String> =
            times.report().lines().map(|line| line.split(':').next().unwrap().trim().to_owned()).collect();
        assert_eq!(names, ["count", "min", "median", "mean", "95th percentile", "max"]);
    }
}
