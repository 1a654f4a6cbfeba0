//! The daemon's loop turn by turn, with a clock that is told the time. It is there for the fuzz targets only: built with
//! `--cfg fuzzing`, as cargo-fuzz does.
//!
//! Whoever holds it stands where the kernel's scheduler and clock stand; the loop, its guests and the Xen libraries
//! under them are the daemon's own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::net::UnixListener;
use xenstore_core::Config;

use crate::cli::{self, Command};
use crate::effects::Effects;
use crate::event_loop::EventLoop;
use crate::journal;
use crate::run_dir::RunDir;
use crate::signals::Signals;
use crate::trace::Trace;
use crate::trace_switch::TraceSwitches;

/// A daemon that runs only when it is told to.
#[derive(Debug)]
pub struct Turns {
    events: EventLoop,
    socket: PathBuf,
}

impl Turns {
    /// A daemon with a fresh store, that serves clients of `socket` and the domains of the host, with a journal beside the
    /// socket if wanted. What has the name of the socket is replaced, and so is the journal of a daemon before.
    ///
    /// # Errors
    /// Where the socket cannot be made, or the host offers no Xen.
    pub fn new(socket: &Path, config: Config, with_journal: bool) -> io::Result<Self> {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let dir = socket.parent().unwrap_or(Path::new("/")).to_owned();
        let files = RunDir {
            socket: socket.to_owned(),
            pid_file: dir.join("xenstored.pid"),
            lib_dir: dir.clone(),
            run_dir: dir,
        };
        let store_domid = config.store_domid;
        let argument = if with_journal { "--no-recovery" } else { "--no-journal" };
        let Ok(Command::Run(options)) = cli::parse([argument]) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let journaled = journal::start(&options, &files, config).map_err(io::Error::other)?.journaled;
        let effects = Effects::new(Trace::new(TraceSwitches::default()), files);
        let mut events = EventLoop::new(Signals::new()?, journaled, effects)?;
        events.serve_domains(store_domid).map_err(io::Error::other)?;
        events.serve_sockets(listener)?;
        Ok(Self { events, socket: socket.to_owned() })
    }

    /// Takes one turn at the time `now`, which never goes back; does not wait for anything. Tells whether the next turn
    /// has something to do whatever happens.
    ///
    /// # Errors
    /// If polling fails.
    pub fn turn(&mut self, now: Duration) -> io::Result<bool> {
        self.events.run_once(now)
    }

    /// Looks for guests that forgot to signal, as the daemon does once a second.
    pub fn look_for_forgetful(&mut self) {
        self.events.look_for_forgetful();
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}
