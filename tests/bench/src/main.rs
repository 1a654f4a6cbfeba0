//! Side-by-side speed of xenstore daemons.
//!
//! A client plays the same work against each daemon in turn on the same machine: xenstored-rs, Debian's C xenstored
//! and oxenstored 4.17, and the floor, an echo server with no store behind it. What counts is the CPU time that the
//! daemon itself uses for a request; the time that passes is shown too, but a shared machine makes it noise. Figures
//! are medians of interleaved runs, and the order of the daemons changes with each run.

mod callgrind;
mod client;
mod daemon;
mod floor;
mod hosted;
mod interrupt;
mod meter;
mod options;
mod process;
mod report;
mod ring;
mod ring_floor;
mod rows;
mod scenes;
mod schedule;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::Outcome;
use daemon::{Ground, Kind};
use meter::Meter;
use options::{Command, Options};
use process::{Layout, Place};
use rows::{ROWS, Row, Scene};
use scenes::{Samples, Stage};

fn main() -> ExitCode {
    let done = match options::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => help().map_err(Into::into),
        Ok(Command::Floor(socket)) => floor::serve(&socket).map_err(Into::into),
        Ok(Command::RingFloor(socket)) => ring_floor::serve(&socket),
        Ok(Command::Measure(options)) => measure(&options),
        Err(text) => {
            say(&format!("xenstore-bench: {text}; --help lists what there is"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("xenstore-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn help() -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{}", options::HELP)?;
    for row in ROWS {
        writeln!(out, "  {:<16}  {}", row.id, row.title.trim_start())?;
    }
    Ok(())
}

/// A line for whoever watches; the table alone goes to standard output.
fn say(text: &str) {
    let _written = writeln!(io::stderr(), "{text}");
}

fn measure(options: &Options) -> Outcome<()> {
    let root = tempfile::Builder::new().prefix("xenstore-bench-").tempdir()?;
    interrupt::remove_on_signal(root.path())?;
    let descriptors = process::raise_descriptor_limit()?;
    let layout = Layout::choose(options.place);
    if let Some(places) = layout.sockets {
        places.take_client()?;
    }
    let mut ground = Ground::new(root.path(), layout);
    let mut daemons = Vec::new();
    for &kind in &options.daemons {
        match ground.offers(kind) {
            Ok(_) => daemons.push(kind),
            Err(text) => say(&format!("{}: {text}", kind.name())),
        }
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", machine(descriptors, options.place))?;
    if options.callgrind {
        write!(out, "{}", callgrind::table(&mut ground, root.path(), &daemons))?;
        return Ok(());
    }
    let rows: Vec<Row> = ROWS.iter().copied().filter(|row| rows::selected(row, &options.only)).collect();
    let (samples, failures) = play(options, &mut ground, &rows, &daemons);
    write!(out, "\n{}", report::table(&rows, &options.daemons, &samples))?;
    write!(out, "\n{}", report::wall_table(&rows, &options.daemons, &samples))?;
    for &kind in &daemons {
        if let Some(domains) = samples.domains(kind) {
            writeln!(out, "{}: the big store has {domains} domains, not {}", kind.name(), scenes::DOMAINS)?;
        }
    }
    for failure in failures {
        writeln!(out, "{failure}")?;
    }
    write!(out, "\n{}", report::turns_table(&samples.turns))?;
    Ok(())
}

/// Plays every scene that `rows` need, on a fresh daemon each; what fails is said once and leaves no figure.
fn play(options: &Options, ground: &mut Ground, rows: &[Row], daemons: &[Kind]) -> (Samples, Vec<String>) {
    let mut samples = Samples::default();
    let mut failures = Vec::new();
    let begun = Instant::now();
    for run in 0..options.runs {
        for scene in rows::scenes(rows) {
            for kind in schedule::plays(scene, daemons, run) {
                let seconds = begun.elapsed().as_secs();
                say(&format!("{seconds:4} s  run {} of {}  {scene:?}  {}", run + 1, options.runs, kind.name()));
                if let Err(error) = play_one(options, ground, rows, scene, kind, &mut samples) {
                    let text = format!("{}, {scene:?}: {error}", kind.name());
                    if !failures.contains(&text) {
                        failures.push(text);
                    }
                }
            }
        }
    }
    (samples, failures)
}

fn play_one(
    options: &Options,
    ground: &mut Ground,
    rows: &[Row],
    scene: Scene,
    kind: Kind,
    samples: &mut Samples,
) -> Outcome<()> {
    let meter = match options.quick {
        true => Meter { stretches: 3, requests: 1500, budget: Duration::from_millis(400) },
        false => Meter { stretches: 5, requests: 3000, budget: Duration::from_millis(2500) },
    };
    if scene.has_guests() {
        let crowds = scenes::crowds(scene, rows);
        let start = |(at, _)| ground.start_on_host(kind, &[], scene.arguments(at));
        let hosts = crowds.iter().enumerate().map(start).collect::<Outcome<Vec<_>>>()?;
        let Some(last) = hosts.last() else { return Ok(()) };
        return Stage { daemon: &last.daemon, empty: None, hosts: &hosts, meter, options, rows, samples }.play(scene);
    }
    let daemon = ground.start(kind, &[])?;
    let empty = if scene == Scene::BigStore { Some(ground.start(kind, &[])?) } else { None };
    Stage { daemon: &daemon, empty: empty.as_ref(), hosts: &[], meter, options, rows, samples }.play(scene)
}

/// What the figures were measured on.
fn machine(descriptors: u64, place: Place) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    let place = match place {
        Place::Together => "client and daemon on one core, guests and daemon on a core each",
        Place::Apart => "client and daemon on a core each",
        Place::Free => "client and daemon wherever the kernel puts them",
    };
    format!("{cores} cores ({model}), Linux {}, {descriptors} descriptors, load {load}, {place}", kernel.trim())
}
