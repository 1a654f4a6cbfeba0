//! The keeper's own side: hold, hand out, and start a daemon where none is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use tracing::{error, info, warn};

use super::message::{Key, Message, Received, receive, send};
use super::served::Served;

/// First word of the command line of a keeper.
pub(crate) const ARGUMENT: &str = "--keeper";

/// How long a daemon that died may take to be replaced by somebody else, before the keeper starts one.
const REPLACED: Duration = Duration::from_secs(1);

/// Daemons that the keeper starts in a row before it gives up, where none of them comes to ask for what is held.
const ATTEMPTS: u32 = 5;

/// Connections that may wait at the keeper's socket.
const BACKLOG: i32 = 4;

/// What a keeper is told when it is started.
#[derive(Debug)]
struct Orders {
    /// Its own socket.
    socket: PathBuf,
    /// The socket of the store, whose name goes when the keeper lets go of it.
    store: PathBuf,
    /// How long it waits for a daemon after a stop.
    wait: Duration,
    /// The daemon to start.
    program: OsString,
    /// The daemon's arguments.
    arguments: Vec<OsString>,
}

impl Orders {
    fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let socket = words.next()?.into();
        let store = words.next()?.into();
        let wait = Duration::from_secs(words.next()?.to_str()?.parse().ok()?);
        Some(Self { socket, store, wait, program: words.next()?, arguments: words.collect() })
    }
}

/// The command line of a keeper, after its program and [`ARGUMENT`].
pub(super) fn command_line(
    socket: &Path,
    store: &Path,
    wait: Duration,
    program: &Path,
    arguments: &[OsString],
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![socket.into(), store.into(), wait.as_secs().to_string().into(), program.into()];
    words.extend_from_slice(arguments);
    words
}

/// Keeps, until nobody needs it. Standard input is the link to the daemon that started it, standard output the socket
/// at which others ask: it was there before this process, so that whoever comes early waits.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(orders) = Orders::parse(words) else { return ExitCode::from(2) };
    // What the daemon was started with by mistake is not to outlive it too. An old kernel leaves it open.
    let _ = xen_ffi::process::close_inherited();
    let (Ok(link), Ok(door)) = (io::stdin().as_fd().try_clone_to_owned(), io::stdout().as_fd().try_clone_to_owned())
    else {
        return ExitCode::FAILURE;
    };
    Keeper { daemon: Some(Served::new(link)), door, held: BTreeMap::new(), store: None, state: State::Serving, orders }
        .keep();
    ExitCode::SUCCESS
}

/// A keeper's socket, in place of one that an earlier keeper left.
pub(super) fn door(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind(&door, &SocketAddrUnix::new(path)?)?;
    listen(&door, BACKLOG)?;
    Ok(door)
}

/// What the keeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A daemon is there.
    Serving,
    /// The daemon said that it ends; it ends for good where no other comes in time.
    Stopping,
    /// No daemon is there, and one is started at this time, which is not the first.
    Orphaned { until: Instant, attempts: u32 },
    /// No daemon is there, and the end comes at this time.
    Waiting { until: Instant },
}

struct Keeper {
    daemon: Option<Served>,
    door: OwnedFd,
    held: BTreeMap<Key, OwnedFd>,
    /// What the name of the store's socket was when that was given here.
    store: Option<(u64, u64, i64, i64)>,
    state: State,
    orders: Orders,
}

/// What a name stands for, if anything: device, inode, and since when, for a number is soon given again.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    std::fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino(), there.ctime(), there.ctime_nsec()))
}

impl Keeper {
    fn keep(mut self) {
        while self.turn() {}
        // Only the name of the socket that is held here: a daemon that started meanwhile, ours or another, has made its own.
        if self.held.contains_key(&Key::Listener) && self.store.is_some() && self.store == identity(&self.orders.store)
        {
            let _ = std::fs::remove_file(&self.orders.store);
        }
        let _ = std::fs::remove_file(&self.orders.socket);
    }

    /// Waits for one thing to happen and acts on it; false where nothing is left to wait for.
    fn turn(&mut self) -> bool {
        let until = match self.state {
            State::Serving | State::Stopping => None,
            State::Orphaned { until, .. } | State::Waiting { until } => Some(until),
        };
        let mut patience = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut waiting = vec![PollFd::new(&self.door, PollFlags::IN)];
        let mut gone = false;
        if let Some(daemon) = &self.daemon {
            daemon.add_to(&mut waiting);
            gone = daemon.was_gone();
        }
        if gone {
            patience = Some(Duration::ZERO);
        }
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(0) if !gone => return self.overdue(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                error!(%error, "the keeper cannot wait");
                return false;
            }
        }
        // The daemon first, until it has said all: what it has given, and whether it is there, decides what a caller at the
        // door gets.
        let happened = |at: usize| waiting.get(at).is_some_and(|waited| !waited.revents().is_empty());
        if happened(1) {
            return self.listen_to_daemon();
        }
        if gone || happened(2) {
            self.bereaved();
        } else if happened(0) {
            self.answer_the_door();
        }
        true
    }

    /// Takes one message of the daemon; false where it sends the keeper away.
    fn listen_to_daemon(&mut self) -> bool {
        let Some(daemon) = &self.daemon else { return true };
        match receive(daemon.link()) {
            Ok(Received::Message(Message::Keep(key), Some(descriptor))) => {
                if key == Key::Listener {
                    self.store = identity(&self.orders.store);
                }
                self.held.insert(key, descriptor);
            }
            Ok(Received::Message(Message::Drop(key), _)) => {
                self.held.remove(&key);
            }
            Ok(Received::Message(Message::Stopping, _)) => self.state = State::Stopping,
            Ok(Received::Message(Message::Dismissed, _)) => {
                self.held.clear();
                return false;
            }
            Ok(Received::Message(message, _)) => warn!(?message, "the keeper is told what makes no sense"),
            Ok(Received::End) | Err(_) => self.bereaved(),
        }
        true
    }

    /// The daemon is gone.
    fn bereaved(&mut self) {
        self.daemon = None;
        let now = Instant::now();
        self.state = match self.state {
            State::Stopping => State::Waiting { until: now + self.orders.wait },
            _ => State::Orphaned { until: now + REPLACED, attempts: 0 },
        };
        info!(held = self.held.len(), "the daemon is gone; its descriptors are kept");
    }

    /// Time ran out; false where that is the end.
    fn overdue(&mut self) -> bool {
        match self.state {
            State::Orphaned { attempts, .. } if attempts < ATTEMPTS => {
                if let Err(error) = self.start_daemon() {
                    error!(%error, "no daemon can be started");
                }
                let until = Instant::now() + REPLACED * 2u32.pow(attempts);
                self.state = State::Orphaned { until, attempts: attempts + 1 };
                true
            }
            State::Orphaned { .. } => {
                error!("daemons that are started do not come to serve");
                self.state = State::Waiting { until: Instant::now() + self.orders.wait };
                true
            }
            State::Waiting { .. } => false,
            State::Serving | State::Stopping => true,
        }
    }

    fn start_daemon(&self) -> io::Result<()> {
        info!("no daemon came in place of the one that died; starting one");
        let mut command = Command::new(&self.orders.program);
        command.args(&self.orders.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // It is nobody's business here how it ends: it comes to the door, or the next attempt is made.
        let mut child = command.spawn()?;
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// Hands everything to a daemon that asks, unless another is there.
    fn answer_the_door(&mut self) {
        let Ok(caller) = accept_with(&self.door, SocketFlags::CLOEXEC) else { return };
        if self.daemon.is_some() || !is_of_this_user(&caller) {
            return;
        }
        for (&key, descriptor) in &self.held {
            if send(&caller, Message::Held(key), Some(descriptor.as_fd())).is_err() {
                return;
            }
        }
        if send(&caller, Message::All, None).is_ok() {
            self.daemon = Some(Served::new(caller));
            self.state = State::Serving;
        }
    }
}

/// Whether the process at the other end may have what is held.
fn is_of_this_user(caller: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(caller)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}
