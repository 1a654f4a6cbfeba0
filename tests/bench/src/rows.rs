//! The works: one row of the table each, and the scene in which it is measured.

/// A daemon with an empty store plays one scene; a scene gives the figures of one or more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// One connection, a handful of nodes.
    Small,
    /// That many connections which do nothing.
    Idle(usize),
    /// One node with 1000 children.
    Wide,
    /// 1000 connections that watch a path of their own each.
    Watchers,
    /// One connection with 1000 watches on one path.
    FanTokens,
    /// 1000 connections that watch one path.
    FanConnections,
    /// A store as 999 domains leave it.
    BigStore,
    /// One guest at work beside any number of others on a host each.
    Guests,
    /// One guest beside a thousand that ask and read no answer.
    Deaf,
    /// One guest beside fifty that never stop asking.
    Flood,
    /// A thousand guests that boot.
    Storm,
    /// A thousand guests that die.
    Death,
    /// Ours with a journal beside ours without.
    Journal,
    /// A big store with a thousand guests, whose daemon is killed, makes its journal short, and is replaced.
    Restart,
}

impl Scene {
    /// Whether it takes a host with guests.
    pub(crate) fn has_guests(self) -> bool {
        matches!(self, Self::Guests | Self::Deaf | Self::Flood | Self::Storm | Self::Death) || self.is_of_ours()
    }

    /// Whether it is about what no other daemon does.
    pub(crate) fn is_of_ours(self) -> bool {
        matches!(self, Self::Journal | Self::Restart)
    }

    /// Arguments of the daemon on the host of that number.
    pub(crate) fn arguments(self, host: usize) -> &'static [&'static str] {
        if self == Self::Journal && host == 1 { &["--no-journal"] } else { &[] }
    }
}

/// Where the figure of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// CPU µs a request.
    Micros,
    /// MiB.
    Mebibytes,
    /// Plain count.
    Count,
    /// CPU seconds of the whole work.
    Seconds,
    /// Seconds that passed until the whole work was done.
    Elapsed,
    /// Microseconds that 99 of 100 requests took no longer than, as the client saw them.
    Percentile,
    /// Microseconds that no request took longer than, as the client saw them.
    Longest,
    /// CPU of one sample over that of another, both of the same daemon.
    Ratio(&'static str, &'static str),
}

/// What ours has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    /// Nothing set.
    Open,
    /// No more than this, in the row's unit.
    AtMost(f64),
    /// No more than this many times the floor of the same row.
    TimesFloor(f64),
}

/// One work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Name on the command line; also of its sample.
    pub(crate) id: &'static str,
    /// What the table calls it.
    pub(crate) title: &'static str,
    /// Where it is played.
    pub(crate) scene: Scene,
    /// Unit and origin.
    pub(crate) figure: Figure,
    /// Target.
    pub(crate) reach: Reach,
}

const fn row(id: &'static str, title: &'static str, scene: Scene, figure: Figure, reach: Reach) -> Row {
    Row { id, title, scene, figure, reach }
}

use Figure::{Count, Elapsed, Longest, Mebibytes, Micros, Percentile, Ratio, Seconds};
use Reach::{AtMost, Open, TimesFloor};
use Scene::{
    BigStore, Deaf, Death, FanConnections, FanTokens, Flood, Guests, Idle, Journal, Restart, Small, Storm, Watchers,
    Wide,
};

/// Every work in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    row("read", "READ", Small, Micros, TimesFloor(1.35)),
    row("write", "WRITE", Small, Micros, TimesFloor(1.35)),
    row("read-16", "READ, 16 in flight", Small, Micros, AtMost(1.0)),
    row("tx-empty", "transaction, start + end", Small, Micros, Open),
    row("idle-100", "READ, 100 open connections", Idle(100), Micros, TimesFloor(1.5)),
    row("idle-1000", "READ, 1000 open connections", Idle(1000), Micros, TimesFloor(1.5)),
    row("idle-4000", "READ, 4000 open connections", Idle(4000), Micros, TimesFloor(1.5)),
    row("watchers", "WRITE seen by 1 of 1000 watching", Watchers, Micros, AtMost(15.0)),
    row("fan-tokens", "event, 1000 watches of 1 connection", FanTokens, Micros, AtMost(2.5)),
    row("fan-connections", "event, 1 watch of 1000 connections", FanConnections, Micros, AtMost(2.5)),
    row("directory", "DIRECTORY, 1000 children", Wide, Micros, AtMost(6.0)),
    row("directory-part", "DIRECTORY_PART, 1000 children", Wide, Micros, AtMost(6.0)),
    row("quota-create", "quota benchmark, create", BigStore, Micros, AtMost(9.0)),
    row("quota-list", "quota benchmark, list 100 domains", BigStore, Micros, TimesFloor(1.35)),
    row("quota-memory", "quota benchmark, anonymous MiB", BigStore, Mebibytes, AtMost(80.0)),
    row("tx-start", "big store, transaction start", BigStore, Micros, AtMost(6.0)),
    row("tx-operation", "big store, operation", BigStore, Micros, AtMost(7.0)),
    row("tx-commit", "big store, commit", BigStore, Micros, AtMost(12.0)),
    row("tx-create", "big store, commit of siblings", BigStore, Micros, Open),
    row("tx-again", "  of 1000 commits, EAGAIN", BigStore, Count, AtMost(0.0)),
    row("flat-start", "transaction start, big / empty", BigStore, Ratio(BIG_START, EMPTY_START), AtMost(1.15)),
    row("flat-read", "READ, big / empty", BigStore, Ratio(BIG_READ, EMPTY_READ), AtMost(1.15)),
    row(GUEST_READ[0], "guest's READ beside 1 other", Guests, Micros, TimesFloor(1.5)),
    row(GUEST_READ[1], "guest's READ beside 1000", Guests, Micros, TimesFloor(1.5)),
    row(GUEST_READ[2], "guest's READ beside 4000", Guests, Micros, TimesFloor(1.5)),
    row("guest-read-flat-1000", "  beside 1000 / 1", Guests, Ratio(GUEST_READ[1], GUEST_READ[0]), AtMost(1.2)),
    row("guest-read-flat-4000", "  beside 4000 / 1", Guests, Ratio(GUEST_READ[2], GUEST_READ[0]), AtMost(1.2)),
    row(GUEST_DEAF, "  beside 1000 that read nothing", Deaf, Micros, TimesFloor(1.5)),
    row(GUEST_WRITE[0], "guest's WRITE beside 1 other", Guests, Micros, TimesFloor(2.5)),
    row(GUEST_WRITE[1], "guest's WRITE beside 1000", Guests, Micros, TimesFloor(2.5)),
    row(GUEST_WRITE[2], "guest's WRITE beside 4000", Guests, Micros, TimesFloor(2.5)),
    row("guest-write-flat-1000", "  beside 1000 / 1", Guests, Ratio(GUEST_WRITE[1], GUEST_WRITE[0]), AtMost(1.2)),
    row("guest-write-flat-4000", "  beside 4000 / 1", Guests, Ratio(GUEST_WRITE[2], GUEST_WRITE[0]), AtMost(1.2)),
    row(GUEST_P99, "guest's WRITE beside 1000, p99 µs", Guests, Percentile, AtMost(100.0)),
    row(FLOOD_P99, "  beside 50 that flood, p99 µs", Flood, Percentile, AtMost(100_000.0)),
    row("storm-cpu", "boot storm of 1000 guests, CPU s", Storm, Seconds, AtMost(1.9)),
    row("storm-p99", "  ring request in it, p99 µs", Storm, Percentile, AtMost(1000.0)),
    row(DEATH_TIME, "1000 full domains die at once, s", Death, Elapsed, AtMost(5.0)),
    row(DEATH_CPU, "  CPU s", Death, Seconds, Open),
    row(DEATH_P99, "  WRITE of another guest, p99 µs", Death, Percentile, AtMost(100_000.0)),
    row("journal-read", "READ, with / without journal", Journal, Ratio(KEPT[0], UNKEPT[0]), AtMost(1.05)),
    row("journal-write", "WRITE, with / without journal", Journal, Ratio(KEPT[1], UNKEPT[1]), AtMost(1.15)),
    row("journal-create", "quota benchmark, with / without", Journal, Ratio(KEPT[2], UNKEPT[2]), AtMost(1.15)),
    row("journal-guest-read", "guest's READ, with / without", Journal, Ratio(KEPT[3], UNKEPT[3]), Open),
    row("journal-guest-write", "guest's WRITE, with / without", Journal, Ratio(KEPT[4], UNKEPT[4]), Open),
    row(RESTART_LOG, "kill to 1st answer, long log, s", Restart, Elapsed, AtMost(1.0)),
    row(RESTART_IMAGE, "  from an image, s", Restart, Elapsed, AtMost(1.0)),
    row(COMPACTION, "longest WRITE in a compaction, µs", Restart, Longest, AtMost(20_000.0)),
    row(UPDATE, "longest WRITE in a live update, µs", Restart, Longest, Open),
];

/// Samples: READ and WRITE over a socket, the quota benchmark, READ and WRITE of a guest, by a daemon with a journal.
pub(crate) const KEPT: [&str; 5] = ["kept-read", "kept-write", "kept-create", "kept-guest-read", "kept-guest-write"];
/// Samples: the same by a daemon without.
pub(crate) const UNKEPT: [&str; 5] =
    ["unkept-read", "unkept-write", "unkept-create", "unkept-guest-read", "unkept-guest-write"];
/// Sample: seconds from a kill until a guest is answered, where the journal is as long as it becomes.
pub(crate) const RESTART_LOG: &str = "restart-log";
/// Sample: the same where it was made short before.
pub(crate) const RESTART_IMAGE: &str = "restart-image";
/// Sample: how long a guest's WRITE takes at most while the journal is made short.
pub(crate) const COMPACTION: &str = "restart-compaction";
/// Sample: the same while another build of the daemon takes over.
pub(crate) const UPDATE: &str = "restart-update";

/// Sample: a transaction start in an empty store.
pub(crate) const EMPTY_START: &str = "empty-start";
/// Sample: a READ in an empty store.
pub(crate) const EMPTY_READ: &str = "empty-read";
/// Sample: a transaction start in the big store.
pub(crate) const BIG_START: &str = "big-start";
/// Sample: a READ in the big store.
pub(crate) const BIG_READ: &str = "big-read";

/// Guests beside the one that works, in the order of [`GUEST_READ`] and [`GUEST_WRITE`].
pub(crate) const CROWDS: [u16; 3] = [1, 1000, 4000];
/// Samples: a guest's READ beside so many others.
pub(crate) const GUEST_READ: [&str; 3] = ["guest-read-1", "guest-read-1000", "guest-read-4000"];
/// Samples: a guest's WRITE beside so many others.
pub(crate) const GUEST_WRITE: [&str; 3] = ["guest-write-1", "guest-write-1000", "guest-write-4000"];
/// Sample: a guest's READ beside a thousand that take no answer.
pub(crate) const GUEST_DEAF: &str = "guest-read-deaf";
/// Sample: how long a guest's WRITE takes beside a thousand others.
pub(crate) const GUEST_P99: &str = "guest-p99";

/// Sample: how long a guest's WRITE takes beside fifty that flood.
pub(crate) const FLOOD_P99: &str = "flood-p99";
/// Sample: how long it takes until a thousand domains that die at once are gone.
pub(crate) const DEATH_TIME: &str = "death-time";
/// Sample: what that costs.
pub(crate) const DEATH_CPU: &str = "death-cpu";
/// Sample: how long another guest's WRITE takes meanwhile.
pub(crate) const DEATH_P99: &str = "death-p99";

/// Whether a row is meant by one of `names`: its id, or the part of it in front of a dash. No name means all.
pub(crate) fn selected(row: &Row, names: &[String]) -> bool {
    let meant =
        |name: &String| row.id.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    names.is_empty() || names.iter().any(meant)
}

/// The scenes that `rows` need, each once.
pub(crate) fn scenes(rows: &[Row]) -> Vec<Scene> {
    let mut found = Vec::new();
    for scene in rows.iter().map(|row| row.scene) {
        if !found.contains(&scene) {
            found.push(scene);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        ROWS.iter().filter(|row| selected(row, &names)).map(|row| row.id).collect()
    }

    #[test]
    fn a_name_selects_its_row_and_those_with_a_dash_behind_it() {
        assert_eq!(ids(&["read"]), ["read", "read-16"]);
        assert_eq!(ids(&["read-16"]), ["read-16"]);
        assert_eq!(ids(&["directory", "fan"]), ["fan-tokens", "fan-connections", "directory", "directory-part"]);
        assert_eq!(ids(&["rea"]), [""; 0]);
        assert_eq!(ids(&[]).len(), ROWS.len());
    }

    #[test]
    fn ids_are_unique() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.id != row.id), "{}", row.id);
        }
    }

    #[test]
    fn each_scene_is_played_once() {
        let rows: Vec<Row> = ROWS.iter().copied().filter(|row| row.id.starts_with("tx")).collect();
        assert_eq!(scenes(&rows), [Small, BigStore]);
        let rows: Vec<Row> = ROWS.iter().copied().filter(|row| row.scene.has_guests()).collect();
        assert_eq!(scenes(&rows), [Guests, Deaf, Flood, Storm, Death, Journal, Restart]);
    }
}
