//! Executing another daemon in this one's place.

use std::ffi::{CString, OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use std::path::Path;

use nix::unistd::execv;
use rustix::io::{FdFlags, fcntl_setfd};
use tracing::{error, info, warn};
use xenstore_core::migration::{Peer, write_stream};
use xenstore_core::{ConnId, feature};

use super::EventLoop;
use crate::clock;
use crate::live_update::{Plan, Step};

/// Name of the file in which the state is handed over, in the run directory.
const STATE_FILE: &str = "state_dump";

/// What this daemon is told on its command line, and where its files are: what another one needs to follow it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Its run directory.
    pub(crate) run_dir: std::path::PathBuf,
}

/// Options of this daemon that others take for stray words, with whether a value follows.
const OWN_OPTIONS: [(&str, bool); 11] = [
    ("--keep", true),
    ("--state-dir", true),
    ("--no-journal", false),
    ("-R", false),
    ("--no-recovery", false),
    // Where this daemon took over from oxenstored, its options are there too.
    ("--live", false),
    ("--restart", false),
    ("--config-file", true),
    ("--no-access-log", false),
    ("--reraise-top-level", false),
    ("--replace", false),
];

impl EventLoop {
    /// Takes a step of a live update, and answers.
    pub(super) fn live_update(&mut self, conn: ConnId, words: &[Vec<u8>]) {
        let engine = &self.engine;
        let life = engine.life(conn).unwrap_or_default();
        let alive = |conn, life| engine.life(conn) == Some(life);
        let answer = match self.update.step(conn, life, words, clock::now(), alive) {
            Step::Text(text) => Ok(text),
            Step::Refused(error) => Err(error),
            Step::Start(plan) => match self.try_out(conn, life, plan) {
                Some(text) => Ok(text),
                None => return,
            },
            Step::HandOver => Ok(self.leave()),
        };
        let answer = answer.map(|text| text.bytes().chain([0]).collect());
        self.engine.answer(conn, answer);
        self.let_transactions_go();
    }

    /// Lets new transactions go on that nobody waits for any more.
    pub(super) fn let_transactions_go(&mut self) {
        let engine = &self.engine;
        if !engine.holds_transactions() {
            return;
        }
        let alive = |conn, life| engine.life(conn) == Some(life);
        if self.update.holds(clock::now(), alive) {
            self.ticker.wind();
        } else {
            self.engine.hold_transactions(false);
        }
    }

    /// Leaves everything to a daemon that was started by itself, at the end of this turn. Tells which process ends then, or
    /// why it does not.
    fn leave(&mut self) -> String {
        if !self.engine.is_journaled() {
            return "it has no journal".to_owned();
        }
        if let Err(error) = self.keep_everything() {
            return format!("its keeper does not hold all of its sockets: {error}");
        }
        info!("a daemon that was started by itself goes on");
        self.leaving = true;
        std::process::id().to_string()
    }

    /// What to say while transactions are open: another daemon does not know them.
    pub(super) fn wait_for_transactions(&mut self, plan: &Plan) -> Option<String> {
        let open = self.engine.open_transactions();
        if open.is_empty() {
            return None;
        }
        if plan.waited < plan.patience {
            self.engine.hold_transactions(true);
            return Some("BUSY".to_owned());
        }
        if plan.force {
            return None;
        }
        let mut words = "Domains with long running transactions:".to_owned();
        for (conn, _) in open {
            words.push_str(&format!("\nDomain {}: {} s", self.engine.domid(conn), plan.waited.as_secs()));
        }
        self.update.end();
        Some(words)
    }

    /// The arguments for another build of this program, which are this daemon's own where an update says nothing.
    pub(super) fn own_arguments(&self, plan: &Plan) -> Option<Vec<OsString>> {
        let own = || self.identity.as_ref().map(|identity| without_update(&identity.arguments));
        plan.arguments.clone().or_else(own)
    }

    /// Goes on as another build of this program: the journal and the keeper have everything. Returns only where that is
    /// not done, with what is to be said of it.
    pub(super) fn become_ours(&mut self, plan: &Plan) -> String {
        let Some(arguments) = self.own_arguments(plan) else { return self.not_replaced() };
        info!(program = %plan.program.display(), "another build goes on");
        if let Err(error) = self.keep_everything() {
            warn!(%error, "a client may be lost at the update");
        }
        let failed = execute(&plan.program, &arguments);
        error!(%failed, "the new binary cannot be executed");
        self.not_replaced()
    }

    /// Nothing was executed.
    pub(super) fn not_replaced(&mut self) -> String {
        self.update.end();
        "Error activating new binary.".to_owned()
    }

    /// Goes on as a daemon of another kind, which reads a stream and inherits the descriptors. Returns only where that is
    /// not done, with what is to be said of it.
    pub(super) fn become_another(&mut self, conn: ConnId, plan: &Plan) -> String {
        let Some(identity) = self.identity.clone() else { return self.not_replaced() };
        info!(program = %plan.program.display(), "another daemon goes on");
        let file = identity.run_dir.join(STATE_FILE);
        let failed = match self.hand_over(conn, plan, &file) {
            Ok(()) => {
                let own = without_own(&identity.arguments);
                let arguments = plan.arguments.as_ref().unwrap_or(&own);
                execute(&plan.program, arguments)
            }
            Err(error) => error,
        };
        error!(%failed, "the other daemon cannot be executed; this one goes on");
        self.take_back(&file);
        self.not_replaced()
    }

    /// Brings everything into the shape in which another daemon finds it.
    fn hand_over(&mut self, conn: ConnId, plan: &Plan, file: &Path) -> io::Result<()> {
        let mut state = self.engine.unload();
        state.listener = self.listener.as_ref().map(|listener| listener.as_fd().as_raw_fd());
        for saved in &mut state.connections {
            let Some(of) = saved.conn else { continue };
            match &mut saved.peer {
                Peer::Socket { fd } => {
                    let client = self.clients.get(of.index()).and_then(Option::as_ref);
                    *fd = client.map_or(-1, |client| client.as_fd().as_raw_fd());
                }
                Peer::Ring { domid, local_port, remote_port, gfn, .. } => {
                    let reach = self.guests.as_ref().and_then(|guests| guests.reach(*domid));
                    if let Some(reach) = reach {
                        (*local_port, *remote_port, *gfn) = (reach.local.0, Some(reach.remote.0), Some(reach.gfn));
                    }
                }
            }
            if of == conn {
                // The request that asked for this is answered by the other daemon.
                answer_in(saved);
            }
        }
        state.connections.retain(|saved| !matches!(saved.peer, Peer::Socket { fd: -1 }));
        for domain in &mut state.domains {
            domain.features = domain.features.map(|features| features & !feature::RECONNECTION);
        }
        if let Some(guests) = &mut self.guests {
            // The C daemon does not serve it.
            guests.withdraw(feature::RECONNECTION);
            state.event_channels = Some(guests.prepare_handover());
        }
        let stream = write_stream(&state, plan.version).map_err(io::Error::other)?;
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
        out.write_all(&stream)?;
        self.inherit(FdFlags::empty())?;
        if let Some(keeping) = self.keeping.take() {
            keeping.dismiss();
        }
        // A death before the other daemon has the store leaves it in the journal.
        if let Err(error) = self.engine.leave(file) {
            warn!(%error, "a death before the other daemon goes on loses the store");
            self.engine.abandon("another daemon goes on with the store");
        }
        Ok(())
    }

    /// Lets descriptors of clients and services be inherited, or not.
    fn inherit(&self, flags: FdFlags) -> io::Result<()> {
        let set = |fd: BorrowedFd<'_>| fcntl_setfd(fd, flags).map_err(io::Error::from);
        self.listener.iter().try_for_each(|listener| set(listener.as_fd()))?;
        self.clients.iter().flatten().try_for_each(|client| set(client.as_fd()))?;
        self.guests.iter().try_for_each(|guests| set(guests.channels_fd()))
    }

    /// Goes on after nothing came of it.
    fn take_back(&mut self, file: &Path) {
        self.engine.stay();
        let _ = std::fs::remove_file(file);
        if let Err(error) = self.inherit(FdFlags::CLOEXEC) {
            warn!(%error, "descriptors may leak");
        }
        if let Some(guests) = &mut self.guests {
            guests.advertise(&self.engine);
        }
        if let (Some(orders), None) = (self.orders.clone(), &self.keeping)
            && let Err(error) = self.keep_with(orders, None)
        {
            warn!(%error, "event channels are not kept");
        }
    }

    /// Tells what this daemon is, so that another can be executed in its place.
    pub(crate) fn set_identity(&mut self, identity: Identity, took_over: bool) {
        self.identity = Some(identity);
        self.update.has_happened = took_over;
    }
}

/// Executes a program in this one's place. Returns only where that fails. What is no program is not given to a shell, which
/// would be the end of the store.
fn execute(program: &Path, arguments: &[OsString]) -> io::Error {
    let word = |word: &OsStr| CString::new(word.as_bytes());
    let words = std::iter::once(program.as_os_str())
        .chain(arguments.iter().map(OsString::as_os_str))
        .chain([OsStr::new("-U")])
        .map(word)
        .collect::<Result<Vec<_>, _>>();
    match words {
        Ok(words) => execv(&words[0], &words).map_or_else(io::Error::from, |never| match never {}),
        Err(error) => error.into(),
    }
}

/// The arguments that another daemon understands.
fn without_own(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = arguments.iter();
    let mut left = Vec::new();
    while let Some(word) = words.next() {
        match OWN_OPTIONS.iter().find(|(name, _)| word == name) {
            Some((_, true)) => {
                words.next();
            }
            Some((_, false)) => {}
            None => left.push(word.clone()),
        }
    }
    without_update(&left)
}

/// The arguments without what [`execute`] adds.
fn without_update(arguments: &[OsString]) -> Vec<OsString> {
    arguments.iter().filter(|word| *word != "-U" && *word != "--live-update").cloned().collect()
}

/// Answers the first request of a connection's input with `OK`.
fn answer_in(saved: &mut xenstore_core::migration::SavedConnection) {
    let Ok(Some((message, rest))) = xenstore_wire::split_message(&saved.input) else { return };
    let header = message.header;
    let rest = rest.to_vec();
    xenstore_wire::put_message(&mut saved.output, header.op, header.req_id, header.tx_id, xenstore_wire::OK);
    saved.input = rest;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_understand_is_passed_on() {
        let words = ["-N", "--keep", "5", "--pid-file", "/x", "--no-journal", "-U"].map(OsString::from);
        assert_eq!(without_own(&words), ["-N", "--pid-file", "/x"].map(OsString::from));
        let words = ["--config-file", "/y", "--no-fork", "--live", "--restart"].map(OsString::from);
        assert_eq!(without_own(&words), ["--no-fork"].map(OsString::from));
        assert_eq!(without_update(&words), words);
    }
}
