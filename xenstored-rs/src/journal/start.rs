//! What a daemon starts with: a fresh store, or that of a daemon that is gone.

use std::io;
use std::path::{Path, PathBuf};

use tracing::{info, warn};
use xenstore_core::{Config, DomainEvent, Engine};
use xenstore_journal::{Directory, Image, Log, LogFile, Record as Written};

use super::journaled::{Journaled, WRITER};
use super::left;
use super::record::Record;
use super::recovery::{Recovered, RecoveryError, look_through, recover, restore};
use super::settings::{self, Unchangeable};
use super::state::ShellState;
use crate::cli::Options;
use crate::run_dir::RunDir;

/// Logs to go through at a start after which the journal is made short before anybody is served.
const LOGS_MOST: usize = 4;

/// Name of the journal's directory in the run directory.
const DIRECTORY: &str = "journal";

/// The engine to serve with.
#[derive(Debug)]
pub(crate) struct Start {
    /// The engine behind its journal.
    pub(crate) journaled: Journaled,
    /// What the shell of the daemon before knew, where there was one.
    pub(crate) past: Option<ShellState>,
}

/// Why there is nothing to start with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// What an earlier daemon left cannot be gone on with.
    #[error("the store of before cannot be recovered (--no-recovery begins with a fresh one)")]
    Recovery(#[from] RecoveryError),
    /// It belongs to a daemon that this one cannot stand in for.
    #[error("the store of before cannot be served (--no-recovery begins with a fresh one)")]
    Settings(#[from] Unchangeable),
    /// There is no memory for a log.
    #[error("no memory for a log")]
    Memory(#[source] io::Error),
}

/// Why a state cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// It is damaged, or of a newer version.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// It belongs to a daemon that one with these options cannot stand in for.
    #[error(transparent)]
    Settings(#[from] Unchangeable),
    /// There is none.
    #[error("{} has no journal of this boot", place.display())]
    Nothing {
        /// A directory.
        place: PathBuf,
    },
}

/// Goes on where an earlier daemon of this boot ended, or begins afresh, with these settings.
///
/// # Errors
/// Where the journal is damaged, or written by a newer version: nothing of it is changed then. A directory that cannot
/// be written is no error: the store is served without a journal, and the log says so.
pub(crate) fn start(options: &Options, files: &RunDir, config: Config) -> Result<Start, StartError> {
    if options.no_journal {
        let log = Log::in_memory(WRITER).map_err(StartError::Memory)?;
        return Ok(Start { journaled: Journaled::new(Engine::new(config.clone()), log, None, config), past: None });
    }
    let directory = match Directory::open(&place(options, files)) {
        Ok(directory) => directory,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(error, "there is no journal: the death of the daemon will lose the store");
            let log = Log::in_memory(WRITER).map_err(StartError::Memory)?;
            return Ok(Start { journaled: Journaled::new(Engine::new(config.clone()), log, None, config), past: None });
        }
    };
    if options.no_recovery || is_taken(&directory) {
        clear(&directory);
    } else if let Some(Recovered { engine, state, log, logs }) = recover(&directory)? {
        settings::check(&state.started, &config)?;
        if let Err(error) = directory.remove_unfinished() {
            warn!(error = &error as &dyn std::error::Error, "half-written files of the journal stay");
        }
        // A request that is suspected of a death stays in the log that has counted it.
        let at_once = logs > LOGS_MOST && log.suspect().is_none();
        let mut journaled = Journaled::new(engine, log, Some(directory), config);
        journaled.follow(&state.started);
        // Should this daemon die too, the next need not go through all of that again. Where daemons died before they came to
        // that, it is done before anybody is served: else the journal would become longer with each death.
        if at_once && let Err(error) = journaled.compact_now(&state) {
            warn!(error = &*error, "the journal cannot be made short now");
        } else if !at_once {
            journaled.compact_soon();
        }
        return Ok(Start { journaled, past: Some(state) });
    } else {
        clear(&directory);
    }
    let journaled = begin(Engine::new(config.clone()), directory, config)?;
    Ok(Start { journaled, past: None })
}

/// Sees whether an image, or the whole journal in a directory, can be gone on with, without touching it. An image does not
/// change any more, so its daemon may be at work.
///
/// # Errors
/// As [`start`], and for a directory without a journal of this boot.
pub(crate) fn check(file: &Path, config: &Config) -> Result<(), CheckError> {
    let state = if file.is_dir() {
        let state = look_through(&Directory::open_as_it_is(file).map_err(RecoveryError::from)?)?;
        state.ok_or_else(|| CheckError::Nothing { place: file.into() })?
    } else {
        restore(&Image::open_file(file).map_err(RecoveryError::from)?)?.1
    };
    Ok(settings::check(&state.started, config)?)
}

/// Whether a daemon of this boot has left a journal, be it good or not.
pub(crate) fn is_there(options: &Options, files: &RunDir) -> bool {
    let place = place(options, files);
    !options.no_journal && place.exists() && {
        let newest = Directory::open(&place).and_then(|directory| directory.newest());
        newest.map_or(true, |found| found.plan.is_some())
    }
}

/// Begins a journal with an engine that came from elsewhere; an old journal is of no use then.
///
/// # Errors
/// Where there is no memory for a log.
pub(crate) fn start_with(
    engine: Engine,
    options: &Options,
    files: &RunDir,
    config: Config,
) -> Result<Journaled, StartError> {
    if !options.no_journal {
        match Directory::open(&place(options, files)) {
            Ok(directory) => {
                clear(&directory);
                return begin(engine, directory, config);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "there is no journal: the death of the daemon will lose the store");
            }
        }
    }
    let log = Log::in_memory(WRITER).map_err(StartError::Memory)?;
    Ok(Journaled::new(engine, log, None, config))
}

/// The engine behind a new journal; where none can be made, behind none.
fn begin(engine: Engine, directory: Directory, config: Config) -> Result<Journaled, StartError> {
    match Log::first(&directory, WRITER) {
        Ok(log) => {
            let mut journaled = Journaled::new(engine, log, Some(directory), config);
            journaled.begin();
            Ok(journaled)
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(error, "there is no journal: the death of the daemon will lose the store");
            let log = Log::in_memory(WRITER).map_err(StartError::Memory)?;
            Ok(Journaled::new(engine, log, None, config))
        }
    }
}

fn place(options: &Options, files: &RunDir) -> PathBuf {
    options.state_dir.clone().unwrap_or_else(|| files.run_dir.join(DIRECTORY))
}

/// Whether another daemon has gone on with the store that the journal tells of. If it was to, and has not, nobody will any
/// more.
fn is_taken(directory: &Directory) -> bool {
    match left::look(directory) {
        left::Left::Nowhere => false,
        left::Left::Taken => {
            info!("another daemon went on with the store of the journal, which is of no use any more");
            true
        }
        left::Left::In(file) => {
            warn!("the daemon that was to go on with the store did not begin to");
            let forgotten = left::forget(directory).and_then(|()| std::fs::remove_file(&file));
            if let Err(error) = forgotten {
                warn!(%error, file = %file.display(), "what was left for another daemon stays");
            }
            false
        }
    }
}

/// Removes what is of no use any more.
pub(super) fn clear(directory: &Directory) {
    for removed in [directory.remove_before(u64::MAX), directory.remove_unfinished()] {
        if let Err(error) = removed {
            warn!(error = &error as &dyn std::error::Error, "an old journal stays");
        }
    }
    // After the journal: without it, it would be good again.
    if let Err(error) = left::forget(directory) {
        warn!(%error, "the note on an old journal stays");
    }
}

/// Prints a log for a person, a record a line.
///
/// # Errors
/// If the file is no log, or damaged, or cannot be read.
pub(crate) fn dump(file: &Path, out: &mut impl io::Write) -> Result<(), DumpError> {
    let whole = xenstore_journal::dump(&LogFile::open_any(file)?, out, describe)?;
    if whole { Ok(()) } else { Err(DumpError::Damaged) }
}

/// Why a file cannot be printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DumpError {
    /// The file.
    #[error(transparent)]
    Journal(#[from] xenstore_journal::Error),
    /// What is printed says where.
    #[error("the log is damaged")]
    Damaged,
    /// The output.
    #[error("it cannot be printed")]
    Output(#[from] io::Error),
}

/// A record in words.
fn describe(written: &Written<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match Record::decode(written.kind, written.payload) {
        None => format!("kind {} {}", written.kind, text(written.payload)),
        Some(Record::Open) => "a client connects".into(),
        Some(Record::Received(bytes)) => format!("received {}", text(bytes)),
        Some(Record::Taken(at, bytes)) => format!("taken from the ring, to {}: {}", at.requests, text(bytes)),
        Some(Record::Sent(count)) => format!("sent {count} bytes"),
        Some(Record::Put(count, at)) => format!("put {count} bytes into the ring, to {}", at.replies),
        Some(Record::Step) => "goes on with what was left".into(),
        Some(Record::Closed) => "the client is gone".into(),
        Some(Record::Answered(Ok(payload))) => format!("answered {}", text(payload)),
        Some(Record::Answered(Err(error))) => format!("answered {}", error.name()),
        Some(Record::Existing(domids)) => format!("domains that exist: {domids:?}"),
        Some(Record::Introduced(reach, _)) => format!("domain {} introduced, port {}", reach.domid, reach.remote),
        Some(Record::Domains(DomainEvent::Appeared(domid))) => format!("domain {domid} is there"),
        Some(Record::Domains(DomainEvent::ShutDown(domids))) => format!("domains shut down: {domids:?}"),
        Some(Record::Domains(DomainEvent::Gone(domids))) => format!("domains gone: {domids:?}"),
        Some(Record::Hold(true)) => "new transactions wait".into(),
        Some(Record::Hold(false)) => "new transactions wait no more".into(),
        Some(Record::Reconnected) => "asks for a new connection".into(),
        Some(Record::RingFailed) => "the ring is bad".into(),
        Some(Record::Began(image)) => format!("a fresh store, {} bytes", image.len()),
        Some(Record::Started(settings)) => format!("a daemon started: {}", text(settings)),
        Some(Record::Rebound(reach, _)) => format!("domain {} is reached by port {}", reach.domid, reach.local),
        Some(Record::Host(ports)) => format!("the daemon's own ports: {ports:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xen_ffi::Port;
    use xenstore_core::DomId;

    use super::*;
    use crate::cli::{self, Command};
    use crate::journal::record::{Reach, RingPosition};

    /// What is in the journal's directory.
    fn names(files: &RunDir) -> Vec<String> {
        let entries = fs::read_dir(files.run_dir.join(DIRECTORY)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn daemons_that_die_before_they_make_the_journal_short_do_not_make_it_longer_and_longer() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().to_owned();
        let files =
            RunDir { socket: run_dir.join("socket"), pid_file: run_dir.join("pid"), lib_dir: run_dir.clone(), run_dir };
        let Ok(Command::Run(options)) = cli::parse([] as [&str; 0]) else { panic!("nothing is a command line") };
        let config = Config::default();
        let mut first = start(&options, &files, config.clone()).unwrap().journaled;
        let reach = |local| Reach { domid: DomId(7), remote: Port(5), local: Port(local), gfn: 77, life: None };
        let at = |requests| RingPosition { requests, replies: 3 };
        let guest = first.introduce(reach(4), at(0));
        first.end_turn();
        drop(first);
        for round in 1..=30 {
            let Start { mut journaled, past } = start(&options, &files, config.clone()).unwrap();
            let past = past.unwrap();
            // What the one before had noted last is known.
            let before = if round == 1 { (reach(4), at(0)) } else { (reach(round - 1), at(round - 1)) };
            assert_eq!((past.reached[&DomId(7)], past.positions[&guest]), before, "round {round}");
            assert!(names(&files).len() <= LOGS_MOST + 2, "{:?}", names(&files));
            journaled.rebound(guest, reach(round), at(round));
            // The copy that would write it down dies with the daemon.
            journaled.rotate().unwrap();
            journaled.end_turn();
        }
    }
}
