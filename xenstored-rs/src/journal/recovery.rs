//! From the journal of a daemon that is gone to the engine as it was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{info, warn};
use xenstore_core::{ConnId, Engine, ImageError, Time};
use xenstore_journal::{Directory, Image, Log, LogFile, Plan, Records};

use super::record::{Record, RingPosition};
use super::state::ShellState;
use super::verdict;

/// The store as it was, and the log that goes on.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The engine.
    pub(crate) engine: Engine,
    /// What the shell knew.
    pub(crate) state: ShellState,
    /// The last log, to go on with.
    pub(crate) log: Log,
    /// How many logs there were to go through.
    pub(crate) logs: usize,
}

/// Why a journal cannot be gone on with. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    /// A file cannot be used.
    #[error(transparent)]
    Journal(#[from] xenstore_journal::Error),
    /// An image that does not tell an engine.
    #[error("image {number} of the journal cannot be read")]
    Image {
        /// The image, or the log that begins with it.
        number: u64,
        /// What is wrong.
        source: ImageError,
    },
    /// An image whose other part is damaged.
    #[error("the shell's part of image {number} of the journal is damaged")]
    Shell {
        /// The image.
        number: u64,
    },
    /// A record that tells nothing, or nothing that can have been.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Record {
        /// The log.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

/// Goes through the journal in `directory`; `None` where there is none of this boot.
///
/// # Errors
/// If it is damaged, or of a newer version.
pub(crate) fn recover(directory: &Directory) -> Result<Option<Recovered>, RecoveryError> {
    let found = directory.newest()?;
    for file in &found.other_boot {
        info!(file = %file.display(), "a journal of another boot is of no use");
    }
    for file in &found.damaged {
        warn!(file = %file.display(), "a damaged image is passed over for an older one");
    }
    let Some(plan) = found.plan else { return Ok(None) };
    if plan.image.is_none() && !begins(directory, &plan)? {
        // It was begun anew after its files could not be written, and the image was not whole yet.
        warn!("the journal had been given up and was not whole again: the store of before is lost");
        return Ok(None);
    }
    follow(directory, &plan).map(Some)
}

/// Whether the first log of a journal begins with the store.
fn begins(directory: &Directory, plan: &Plan) -> Result<bool, RecoveryError> {
    let log = LogFile::open(directory, plan.oldest())?;
    let first = log.records().next().transpose()?;
    Ok(first.is_some_and(|first| matches!(Record::decode(first.kind, first.payload), Some(Record::Began(_)))))
}

/// As [`recover`], without writing anything, and with nothing but the shell's part to show for it. Where a daemon is at
/// work, what it does meanwhile can look like damage.
///
/// # Errors
/// As [`recover`].
pub(crate) fn look_through(directory: &Directory) -> Result<Option<ShellState>, RecoveryError> {
    let Some(plan) = directory.newest()?.plan else { return Ok(None) };
    let mut past = read_image(directory, &plan)?;
    for &number in &plan.logs {
        let log = LogFile::open(directory, number)?;
        let script = Script { path: log.path(), number, convicts: log.convicts().collect(), noted: None };
        replay(&script, log.records(), &mut past)?;
    }
    Ok(past.map(|(_, state)| state))
}

fn read_image(directory: &Directory, plan: &Plan) -> Result<Past, RecoveryError> {
    plan.image.map(|number| restore(&Image::open(directory, number)?)).transpose()
}

/// What an image tells.
///
/// # Errors
/// If that is nothing that can have been.
pub(crate) fn restore(image: &Image) -> Result<(Engine, ShellState), RecoveryError> {
    let number = image.heading().number;
    let (shell, engine) = split(image.content()).ok_or(RecoveryError::Shell { number })?;
    let state = ShellState::decode(shell).ok_or(RecoveryError::Shell { number })?;
    let engine = Engine::restore(engine).map_err(|source| RecoveryError::Image { number, source })?;
    Ok((engine, state))
}

fn follow(directory: &Directory, plan: &Plan) -> Result<Recovered, RecoveryError> {
    let mut past = read_image(directory, plan)?;
    let mut replayed = 0usize;
    let mut last = None;
    for &number in &plan.logs {
        // The last one gets a record of the call that the death cut off, so it is opened to be written.
        let log = Log::open(directory, number)?;
        let is_last = plan.logs.last() == Some(&number);
        if is_last {
            verdict::judge(&log);
        }
        let noted = is_last.then_some(&log);
        let script = Script { path: log.path(), number, convicts: log.convicts().collect(), noted };
        let seen = replay(&script, log.records(), &mut past)?;
        replayed += seen.records;
        // Turns that left no record moved rings all the same.
        if let Some((_, state)) = &mut past {
            for (conn, at) in &mut state.positions {
                let kept = log.position(conn.number());
                let newer = kept.filter(|kept| seen.rings.get(conn).is_none_or(|&seen| kept.at > seen));
                if let Some(kept) = newer {
                    *at = RingPosition::from_word(kept.value);
                }
            }
        }
        last = Some(log);
    }
    let (Some(log), Some((mut engine, state))) = (last, past) else {
        return Err(RecoveryError::Record {
            path: directory.path().into(),
            offset: 0,
            what: "a journal without a beginning",
        });
    };
    verdict::note_nothing(&mut engine);
    engine.resume();
    info!(records = replayed, connections = engine.connection_count(), "the store is as it was");
    Ok(Recovered { engine, state, log, logs: plan.logs.len() })
}

/// What one log tells of that begins a history.
///
/// # Errors
/// As [`recover`].
#[cfg(any(test, fuzzing))]
pub(super) fn recover_log(log: &LogFile<impl AsRef<[u8]>>) -> Result<Engine, RecoveryError> {
    let mut past = None;
    let script =
        Script { path: log.path(), number: log.heading().number, convicts: log.convicts().collect(), noted: None };
    replay(&script, log.records(), &mut past)?;
    let nothing =
        || RecoveryError::Record { path: log.path().into(), offset: 0, what: "a journal without a beginning" };
    past.map(|(engine, _)| engine).ok_or_else(nothing)
}

/// The two parts of an image: what the shell knows, with its length before it, and the engine.
fn split(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = content.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)
}

/// What the journal told so far.
type Past = Option<(Engine, ShellState)>;

/// What was seen in a log.
#[derive(Debug, Default)]
struct Seen {
    records: usize,
    /// Where the last record of each ring stands that tells its position.
    rings: BTreeMap<ConnId, u64>,
}

/// A log whose calls are made again.
#[derive(Debug)]
struct Script<'a> {
    path: &'a Path,
    number: u64,
    /// Requests that are not to be executed.
    convicts: Vec<u64>,
    /// Where it is noted which request of the last record is being executed.
    noted: Option<&'a Log>,
}

impl Script<'_> {
    fn refuse(&self, engine: &mut Engine) {
        self.convicts.iter().for_each(|&number| engine.refuse(number));
    }
}

/// Makes the calls that the records of a log tell of.
fn replay(script: &Script<'_>, records: Records<'_>, past: &mut Past) -> Result<Seen, RecoveryError> {
    let number = script.number;
    let mut seen = Seen::default();
    if let Some((engine, _)) = past {
        script.refuse(engine);
    }
    let mut records = records.peekable();
    while let Some(record) = records.next() {
        let record = record?;
        let damaged = |what| RecoveryError::Record { path: script.path.into(), offset: record.offset, what };
        let call = Record::decode(record.kind, record.payload).ok_or_else(|| damaged("a record of no known kind"))?;
        let conn = ConnId::from_number(record.conn);
        seen.records += 1;
        if let Record::Began(image) = call {
            if past.is_some() {
                return Err(damaged("a beginning that is not at the beginning"));
            }
            let mut engine = Engine::restore(image).map_err(|source| RecoveryError::Image { number, source })?;
            script.refuse(&mut engine);
            *past = Some((engine, ShellState::default()));
            continue;
        }
        let Some((engine, state)) = past else { return Err(damaged("a journal without a beginning")) };
        if let Some(log) = script.noted.filter(|_| records.peek().is_none()) {
            verdict::note_in(log, engine);
        }
        engine.set_now(Time(Duration::from_nanos(record.time)));
        let introduced = match &call {
            Record::Introduced(reach, _) => Some(reach.domid),
            Record::Taken(..) | Record::Put(..) | Record::Rebound(..) | Record::Reconnected => {
                seen.rings.insert(conn, record.offset);
                None
            }
            _ => None,
        };
        state.replay(engine, conn, call).map_err(damaged)?;
        if let Some(conn) = introduced.and_then(|domid| engine.guest_connection(domid)) {
            seen.rings.insert(conn, record.offset);
        }
    }
    Ok(seen)
}
