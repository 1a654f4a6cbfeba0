//! The command line.

use std::path::PathBuf;

use crate::daemon::Kind;
use crate::process::Place;
use crate::rows::{ROWS, selected};

/// Text of `--help`; the names of the works follow it.
pub(crate) const HELP: &str = "\
Usage: xenstore-bench [OPTION]...
Plays each work against each daemon in turn and prints one table of CPU time per request.

  --quick           one run, fewer requests, smaller stores and fewer guests for the peers: a minute or two
  --runs N          interleaved runs whose median is shown (5; with --quick 1)
  --only NAME,...   only these works; a name also means all that begin with it and a dash
  --daemons NAME,.. only these daemons: ours, C, O, floor
  --domains N       domains of the big store (999; peers fewer where they are too slow)
  --rounds N        rounds of the transactions on the big store (20), more for a profiler
  --callgrind       user instructions of a READ and a WRITE instead of the table, over sockets and rings
  --place WHERE     together (default, steadiest): client and daemon on one processor; apart: on one each;
                    free: as the kernel likes. Guests spin, so that they and their daemon are always apart
  --help            this text

Latency is not judged (busy) where even the floor is slower than the target: the machine did something else.

XENSTORED_RS names the daemon under test (else the release build); XENSTORED_PRELOAD the built library that lets the
peers run without Xen (else it is built).

Works:
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print [`HELP`].
    Help,
    /// Be the echo that serves this socket.
    Floor(PathBuf),
    /// Be the echo that serves this socket and the rings of guests.
    RingFloor(PathBuf),
    /// Measure.
    Measure(Options),
}

/// How to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Fewer requests.
    pub(crate) quick: bool,
    /// Interleaved runs.
    pub(crate) runs: usize,
    /// Names of works; empty for all.
    pub(crate) only: Vec<String>,
    /// Daemons in the order of the table.
    pub(crate) daemons: Vec<Kind>,
    /// Domains of the big store, where set.
    pub(crate) domains: Option<usize>,
    /// Rounds of the transactions on the big store.
    pub(crate) rounds: usize,
    /// Count instructions instead.
    pub(crate) callgrind: bool,
    /// Which processors run client and daemon.
    pub(crate) place: Place,
}

/// Reads the command line, without the program's name.
///
/// # Errors
/// A text that says which word is wrong.
pub(crate) fn parse(words: impl IntoIterator<Item = impl Into<std::ffi::OsString>>) -> Result<Command, String> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut parser = lexopt::Parser::from_args(words);
    let mut runs = None;
    let mut options = Options {
        quick: false,
        runs: 0,
        only: Vec::new(),
        daemons: Kind::ALL.to_vec(),
        domains: None,
        rounds: 20,
        callgrind: false,
        place: Place::Together,
    };
    let text = |error: lexopt::Error| error.to_string();
    while let Some(word) = parser.next().map_err(text)? {
        match word {
            Long("help") => return Ok(Command::Help),
            Long("quick") => options.quick = true,
            Long("callgrind") => options.callgrind = true,
            Long("place") => {
                let name = parser.value().and_then(|value| value.string()).map_err(text)?;
                options.place = Place::named(&name).ok_or_else(|| format!("no place is called {name}"))?;
            }
            Long("runs") => runs = Some(at_least_one(&mut parser)?),
            Long("domains") => options.domains = Some(at_least_one(&mut parser)?),
            Long("rounds") => options.rounds = at_least_one(&mut parser)?,
            Long("only") => options.only = list(&parser.value().and_then(|value| value.string()).map_err(text)?),
            Long("daemons") => {
                let names = list(&parser.value().and_then(|value| value.string()).map_err(text)?);
                options.daemons = daemons(&names)?;
            }
            Value(value) if value == "floor" => {
                return parser.value().map(|socket| Command::Floor(socket.into())).map_err(text);
            }
            Value(value) if value == "ring-floor" => {
                return parser.value().map(|socket| Command::RingFloor(socket.into())).map_err(text);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    for name in &options.only {
        if !ROWS.iter().any(|row| selected(row, std::slice::from_ref(name))) {
            return Err(format!("no work is called {name}"));
        }
    }
    options.runs = runs.unwrap_or(if options.quick { 1 } else { 5 });
    Ok(Command::Measure(options))
}

fn at_least_one(parser: &mut lexopt::Parser) -> Result<usize, String> {
    use lexopt::prelude::ValueExt;
    let number: usize = parser.value().and_then(|value| value.parse()).map_err(|error| error.to_string())?;
    if number == 0 { Err("at least 1 is needed".to_owned()) } else { Ok(number) }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn daemons(names: &[String]) -> Result<Vec<Kind>, String> {
    let mut wanted = Vec::new();
    for name in names {
        wanted.push(Kind::named(name).ok_or_else(|| format!("no daemon is called {name}"))?);
    }
    Ok(Kind::ALL.into_iter().filter(|kind| wanted.contains(kind)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn measure(words: &[&str]) -> Options {
        match parse(words.iter().copied()).unwrap() {
            Command::Measure(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn five_runs_of_everything_are_the_default() {
        let options = measure(&[]);
        assert_eq!((options.runs, options.only.len(), options.daemons.len()), (5, 0, 4));
    }

    #[test]
    fn quick_means_one_run_unless_told_otherwise() {
        assert_eq!(measure(&["--quick"]).runs, 1);
        assert_eq!(measure(&["--quick", "--runs", "3"]).runs, 3);
    }

    #[test]
    fn daemons_keep_the_order_of_the_table() {
        assert_eq!(measure(&["--daemons", "floor,ours"]).daemons, [Kind::Ours, Kind::Floor]);
    }

    #[rstest]
    #[case::unknown_work(&["--only", "sleep"])]
    #[case::unknown_daemon(&["--daemons", "ours,x"])]
    #[case::no_run(&["--runs", "0"])]
    #[case::no_number(&["--runs", "many"])]
    #[case::unknown_option(&["--slow"])]
    #[case::floor_without_socket(&["floor"])]
    fn what_is_wrong_is_refused(#[case] words: &[&str]) {
        assert!(parse(words.iter().copied()).is_err());
    }

    #[test]
    fn the_floor_is_a_command_of_its_own() {
        assert_eq!(parse(["floor", "/tmp/s"]).unwrap(), Command::Floor("/tmp/s".into()));
        assert_eq!(parse(["ring-floor", "/tmp/s"]).unwrap(), Command::RingFloor("/tmp/s".into()));
    }
}
