//! Taking over from another daemon, which executed this program in its own place.
//!
//! The C daemon does so at a live update, with its own arguments and `-U`; oxenstored with `--live --restart`. Both leave a
//! file with what they know in the run directory, and their descriptors open. Nothing of that is touched until the store is
//! whole here; where it cannot be read, the other daemon is executed again, with all as it left it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tracing::{error, info, warn};
use xen_ffi::process::{close_inherited_one, duplicate_inherited};
use xenstore_core::migration::{self, LoadError, Loaded, Peer, State};
use xenstore_core::{Config, Engine};

use crate::cli::TakeOver;
use crate::former;
use crate::keeper::Kept;
use crate::run_dir::RunDir;

/// Most bytes of a file that is taken for a state: a store of a million nodes has a quarter of it.
const STATE_MAX: u64 = 1 << 30;

/// A store that another daemon left, with its descriptors.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The engine, which has the store.
    pub(crate) engine: Engine,
    /// What else the other daemon told.
    pub(crate) state: State,
    /// The engine's connections, in the order of those of the state.
    pub(crate) connections: Vec<xenstore_core::ConnId>,
    /// The socket that clients connect to.
    pub(crate) listener: Option<OwnedFd>,
    /// The event channels, with all ports bound.
    pub(crate) event_channels: Option<OwnedFd>,
    /// Sockets of clients, in the order of the state's connections; none for rings, and for those that are gone.
    pub(crate) sockets: Vec<Option<OwnedFd>>,
    /// Which daemon that was.
    pub(crate) from: TakeOver,
    file: PathBuf,
    /// Its descriptors were inherited, and their first copies are open still.
    inherited: bool,
}

/// Why a store cannot be taken over. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    /// The file cannot be read.
    #[error("cannot read {}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is no stream.
    #[error("{} cannot be taken over", file.display())]
    Stream {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: migration::StreamError,
    },
    /// The file is no dump of oxenstored.
    #[error("{} cannot be taken over", file.display())]
    Text {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: migration::TextError,
    },
    /// What it tells cannot be.
    #[error("{} tells of what cannot be", file.display())]
    Load {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: LoadError,
    },
}

/// The file in which a daemon leaves its state.
fn state_file(from: TakeOver, files: &RunDir) -> PathBuf {
    files.run_dir.join(match from {
        TakeOver::C => "state_dump",
        TakeOver::Oxenstored => "db",
    })
}

/// Reads what another daemon left; `None` where it left nothing, and the journal tells everything. `is_journaled` tells
/// whether there is one, and `own` is a listener that this process has from elsewhere.
///
/// # Errors
/// Where it cannot be read, or is wrong anywhere.
pub(crate) fn read(
    from: TakeOver,
    files: &RunDir,
    config: Config,
    own: Option<&OwnedFd>,
    is_journaled: impl FnOnce() -> bool,
) -> Result<Option<Taken>, TakeOverError> {
    let file = state_file(from, files);
    let Some(state) = parse(from, &file)? else { return Ok(None) };
    let Loaded { engine, connections } = load(&file, &state, config)?;
    let inherit = |fd: Option<i32>, what: &str| {
        let made = duplicate_inherited(fd.filter(|fd| *fd > 2)?);
        made.map_err(|error| warn!(what, fd, %error, "a descriptor of the other daemon is not there")).ok()
    };
    let socket = |peer: &Peer| match peer {
        Peer::Socket { fd } => inherit(Some(*fd), "client"),
        Peer::Ring { .. } => None,
    };
    let sockets = state.connections.iter().map(|connection| socket(&connection.peer)).collect();
    let listener = inherit(state.listener, "listener");
    // A daemon that died before it was replaced leaves such a file too, and nothing to inherit.
    let is_listener = |socket: &OwnedFd| rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false);
    let is_own = own.is_some_and(|own| Some(own.as_raw_fd()) == state.listener);
    let is_here = !is_own && listener.as_ref().is_some_and(is_listener);
    if state.listener.is_some() && !is_here && is_journaled() {
        warn!(file = %file.display(), "what another daemon once left is of no use: its sockets are not here, and there is a journal");
        return Ok(None);
    }
    let event_channels = inherit(state.event_channels, "event channels");
    let inherited = true;
    Ok(Some(Taken { engine, state, connections, listener, event_channels, sockets, from, file, inherited }))
}

/// As [`read`], for a process that inherited nothing: what the other daemon left was given to a keeper by one that died.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_again(
    from: TakeOver,
    files: &RunDir,
    config: Config,
    kept: &mut Kept,
) -> Result<Option<Taken>, TakeOverError> {
    let file = state_file(from, files);
    let Some(state) = parse(from, &file)? else { return Ok(None) };
    // The same state makes the same engine, so connections have the lives that they were kept by.
    let Loaded { engine, connections } = load(&file, &state, config)?;
    let mut clients: BTreeMap<u64, OwnedFd> = kept.clients.drain(..).collect();
    let sockets = connections.iter().map(|&conn| clients.remove(&engine.life(conn)?)).collect();
    let (listener, event_channels) = (kept.listener.take(), kept.event_channels.take());
    let inherited = false;
    Ok(Some(Taken { engine, state, connections, listener, event_channels, sockets, from, file, inherited }))
}

/// Sees whether a stream of the C daemon's form could be taken over.
///
/// # Errors
/// Where it cannot be read, or is wrong anywhere.
pub(crate) fn check(file: &Path, config: Config) -> Result<(), TakeOverError> {
    let state = parse(TakeOver::C, file)?;
    state.map_or(Ok(()), |state| load(file, &state, config).map(drop))
}

/// What a file tells, if it is there.
fn parse(from: TakeOver, file: &Path) -> Result<Option<State>, TakeOverError> {
    let unreadable = |source| TakeOverError::Io { file: file.into(), source };
    let bytes = match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(there) if !there.is_file() => return Err(unreadable(io::Error::other("it is no plain file"))),
        Ok(there) if there.len() > STATE_MAX => {
            return Err(unreadable(io::Error::other("it is larger than any state")));
        }
        _ => fs::read(file).map_err(unreadable)?,
    };
    let state = match from {
        TakeOver::C => {
            migration::read_stream(&bytes).map_err(|source| TakeOverError::Stream { file: file.into(), source })
        }
        TakeOver::Oxenstored => {
            migration::read_text(&bytes).map_err(|source| TakeOverError::Text { file: file.into(), source })
        }
    };
    state.map(Some)
}

/// A store as a state tells of it.
fn load(file: &Path, state: &State, config: Config) -> Result<Loaded, TakeOverError> {
    Engine::load(config, state).map_err(|source| TakeOverError::Load { file: file.into(), source })
}

/// Closes what the other daemon had open and removes its file: the store is here now.
pub(crate) fn finish(taken: &Taken) {
    let Taken { state, file, .. } = taken;
    let mut descriptors: Vec<i32> = state.listener.into_iter().chain(state.event_channels).collect();
    descriptors.extend(state.connections.iter().filter_map(|connection| match connection.peer {
        Peer::Socket { fd } => Some(fd),
        Peer::Ring { .. } => None,
    }));
    descriptors.sort_unstable();
    descriptors.dedup();
    descriptors.into_iter().filter(|fd| taken.inherited && *fd > 2).for_each(close_inherited_one);
    if let Err(error) = fs::remove_file(file) {
        warn!(%error, file = %file.display(), "the state of the other daemon stays");
    }
    info!(connections = state.connections.len(), nodes = state.nodes.len(), "taken over");
}

/// Executes the daemon again that executed this program, with the arguments that it gave: all is as it left it. Returns
/// where that fails, and where no other daemon has left anything: the one before was of this kind then, and its keeper
/// starts it.
pub(crate) fn give_back(from: TakeOver, files: Option<&RunDir>, arguments: &[OsString]) {
    if !files.is_some_and(|files| state_file(from, files).exists()) {
        return;
    }
    let programs = former::programs(from);
    if programs.is_empty() {
        error!("the daemon of before is not found, so it cannot go on");
    }
    for program in programs {
        error!(program = %program.display(), "the daemon of before is executed again");
        let failed = Command::new(&program).args(arguments).exec();
        error!(%failed, "it cannot be executed");
    }
}
