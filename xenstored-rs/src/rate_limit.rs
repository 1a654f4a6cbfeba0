//! Keeping a flood of equal messages out of the log.
//!
//! A guest can make the daemon say the same thing a million times a second. This gate lets a few lines a key and
//! interval through, and then one line with the number of those that it held back. It has no clock: the time comes in
//! as a monotonic duration since any fixed moment.

use std::collections::BTreeMap;
use std::time::Duration;

/// What to do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Write it. `suppressed` lines of this key were held back before; if above zero, say so first.
    Write {
        /// Lines held back in the interval that is over.
        suppressed: u64,
    },
    /// Hold it back.
    Suppress,
}

/// A gate for log lines, by key (a kind of message and the domain that causes it, say).
#[derive(Debug)]
pub struct RateLimited<K> {
    limit: u32,
    interval: Duration,
    windows: BTreeMap<K, Window>,
}

#[derive(Debug)]
struct Window {
    end: Duration,
    written: u32,
    suppressed: u64,
}

impl<K: Ord + Clone> RateLimited<K> {
    /// Lets `limit` lines a key through in each `interval`, which begins with a key's first line.
    #[must_use]
    pub const fn new(limit: u32, interval: Duration) -> Self {
        Self { limit, interval, windows: BTreeMap::new() }
    }

    /// Asks for one line of this key at the time `now`.
    pub fn admit(&mut self, key: &K, now: Duration) -> Admission {
        let fresh = Window { end: now.saturating_add(self.interval), written: 1, suppressed: 0 };
        let Some(window) = self.windows.get_mut(key) else {
            if self.limit == 0 {
                self.windows.insert(key.clone(), Window { written: 0, suppressed: 1, ..fresh });
                return Admission::Suppress;
            }
            self.windows.insert(key.clone(), fresh);
            return Admission::Write { suppressed: 0 };
        };
        if now >= window.end && self.limit > 0 {
            let suppressed = window.suppressed;
            *window = fresh;
            return Admission::Write { suppressed };
        }
        if window.written < self.limit {
            window.written += 1;
            return Admission::Write { suppressed: 0 };
        }
        window.suppressed += 1;
        Admission::Suppress
    }

    /// Forgets the keys whose interval is over and returns those that had lines held back, with their number: one
    /// "suppressed n" line each. Keys that stay silent cost nothing after this.
    pub fn take_expired(&mut self, now: Duration) -> Vec<(K, u64)> {
        let mut expired = Vec::new();
        self.windows.retain(|key, window| {
            let over = now >= window.end;
            if over && window.suppressed > 0 {
                expired.push((key.clone(), window.suppressed));
            }
            !over
        });
        expired
    }

    /// When [`RateLimited::take_expired`] should be called next; `None` if no key is remembered.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.windows.values().map(|window| window.end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Admission = Admission::Write { suppressed: 0 };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_few_lines_pass_and_the_rest_is_counted() {
        let mut gate = RateLimited::new(3, ms(1000));
        let verdicts: Vec<_> = (0..6).map(|n| gate.admit(&"a", ms(n))).collect();
        assert_eq!(verdicts, [WRITE, WRITE, WRITE, Admission::Suppress, Admission::Suppress, Admission::Suppress]);
        assert_eq!(gate.take_expired(ms(999)), []);
        assert_eq!(gate.next_deadline(), Some(ms(1000)));
        assert_eq!(gate.take_expired(ms(1000)), [("a", 3)]);
        assert_eq!(gate.next_deadline(), None);
        assert_eq!(gate.admit(&"a", ms(1001)), WRITE);
    }

    #[test]
    fn the_next_line_tells_what_was_held_back_if_nobody_asked_before() {
        let mut gate = RateLimited::new(1, ms(1000));
        assert_eq!(gate.admit(&1, ms(0)), WRITE);
        assert_eq!(gate.admit(&1, ms(10)), Admission::Suppress);
        assert_eq!(gate.admit(&1, ms(20)), Admission::Suppress);
        assert_eq!(gate.admit(&1, ms(1000)), Admission::Write { suppressed: 2 });
        assert_eq!(gate.admit(&1, ms(1001)), Admission::Suppress);
        assert_eq!(gate.take_expired(ms(2000)), [(1, 1)]);
    }

    #[test]
    fn keys_do_not_disturb_each_other() {
        let mut gate = RateLimited::new(1, ms(1000));
        for domid in 0..100 {
            assert_eq!(gate.admit(&domid, ms(domid)), WRITE);
            assert_eq!(gate.admit(&domid, ms(domid)), Admission::Suppress);
        }
        assert_eq!(gate.take_expired(ms(1049)).len(), 50);
        assert_eq!(gate.next_deadline(), Some(ms(1050)));
    }

    #[test]
    fn silent_keys_are_forgotten_without_a_line() {
        let mut gate = RateLimited::new(2, ms(10));
        assert_eq!(gate.admit(&"a", ms(0)), WRITE);
        assert_eq!(gate.take_expired(ms(10)), []);
        assert!(gate.windows.is_empty());
    }

    #[test]
    fn a_flood_of_a_million_stays_short_and_nothing_is_uncounted() {
        let mut gate = RateLimited::new(5, ms(10_000));
        let (mut lines, mut suppressed) = (0_u64, 0_u64);
        for n in 0..1_000_000_u64 {
            // A minute of flood.
            match gate.admit(&(1, "missing node"), Duration::from_micros(n * 60)) {
                Admission::Write { suppressed: before } => {
                    lines += 1 + u64::from(before > 0);
                    suppressed += before;
                }
                Admission::Suppress => {}
            }
        }
        for (_, before) in gate.take_expired(Duration::MAX) {
            lines += 1;
            suppressed += before;
        }
        assert!(lines < 100, "{lines} lines");
        assert_eq!(suppressed, 1_000_000 - 30);
    }

    #[test]
    fn a_limit_of_zero_only_counts() {
        let mut gate = RateLimited::new(0, ms(10));
        for n in 0..5 {
            assert_eq!(gate.admit(&(), ms(n * 10)), Admission::Suppress);
        }
        assert_eq!(gate.take_expired(ms(10)), [((), 5)]);
    }
}
