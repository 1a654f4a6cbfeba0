//! The daemons that are compared: how each starts where there is no hypervisor, and how it ends.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::client::{Client, Failure, Outcome};
use crate::process::{CpuClock, Layout, Places};

/// Where Debian keeps both peers.
const PEERS: &str = "/usr/lib/xen-4.17/bin";

/// A daemon has this long to answer its first connection, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// xenstored-rs.
    Ours,
    /// Debian's C xenstored 4.17.
    C,
    /// Debian's oxenstored 4.17.
    O,
    /// The echo of this program.
    Floor,
}

impl Kind {
    /// Every daemon in the order of the table.
    pub(crate) const ALL: [Self; 4] = [Self::Ours, Self::C, Self::O, Self::Floor];

    /// Its name on the command line and in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::C => "C",
            Self::O => "O",
            Self::Floor => "floor",
        }
    }

    /// The daemon with this name, in any case of letters.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// What all daemons of a run share: a directory that goes away with it, and the library that stands in for Xen.
#[derive(Debug)]
pub(crate) struct Ground {
    root: PathBuf,
    preload: Option<PathBuf>,
    /// Where everything runs.
    pub(crate) layout: Layout,
    started: usize,
}

impl Ground {
    /// Prepares `root`; builds the preload library there unless `XENSTORED_PRELOAD` names one. Without a compiler or
    /// its source the peers are missing, which is no failure.
    pub(crate) fn new(root: &Path, layout: Layout) -> Self {
        let preload = env::var_os("XENSTORED_PRELOAD").map(PathBuf::from).or_else(|| build_preload(root));
        Self { root: root.to_owned(), preload, layout, started: 0 }
    }

    /// Whether this daemon can be started here; else, what is missing.
    pub(crate) fn offers(&self, kind: Kind) -> Result<PathBuf, String> {
        let program = match kind {
            Kind::Ours => ours(),
            Kind::C => Path::new(PEERS).join("xenstored"),
            Kind::O => Path::new(PEERS).join("oxenstored"),
            Kind::Floor => env::current_exe().map_err(|error| error.to_string())?,
        };
        if !program.exists() {
            return Err(format!("{} is not there", program.display()));
        }
        if matches!(kind, Kind::C | Kind::O) && self.preload.is_none() {
            return Err("the library that stands in for Xen is not built".to_owned());
        }
        Ok(program)
    }

    /// Starts a daemon with an empty store, in a directory of its own, behind the words of `wrapper`.
    pub(crate) fn start(&mut self, kind: Kind, wrapper: &[&str]) -> Outcome<Daemon> {
        let program = self.offers(kind).map_err(Failure::Unusable)?;
        let dir = self.directory(kind)?;
        let (words, socket) = self.command_line(kind, &program, &dir, wrapper)?;
        let mut command = guarded(&words);
        command.env("XENSTORED_RUNDIR", &dir).env("XENSTORED_ROOTDIR", &dir).env_remove("NOTIFY_SOCKET");
        if let (Kind::C | Kind::O, Some(preload)) = (kind, &self.preload) {
            command.env("LD_PRELOAD", preload);
        }
        let child = spawn(&mut command, &dir, self.layout.sockets)?;
        Daemon::wait_for(kind, child, dir, socket)
    }

    /// Makes a directory for the next daemon.
    pub(crate) fn directory(&mut self, kind: Kind) -> io::Result<PathBuf> {
        self.started += 1;
        let dir = self.root.join(format!("{}-{}", kind.name(), self.started));
        fs::create_dir(&dir)?;
        Ok(dir)
    }

    fn command_line(
        &self,
        kind: Kind,
        program: &Path,
        dir: &Path,
        wrapper: &[&str],
    ) -> Outcome<(Vec<String>, PathBuf)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut words: Vec<String> = wrapper.iter().map(|&word| word.to_owned()).collect();
        let pid_file = text(&dir.join("pid"));
        let mut socket = dir.join("socket");
        match kind {
            Kind::Ours => words.extend([
                text(program),
                "-D".into(),
                "-N".into(),
                "--keep".into(),
                "0".into(),
                "--pid-file".into(),
                pid_file,
            ]),
            Kind::C => words.extend([text(program), "-N".into(), "--pid-file".into(), pid_file]),
            Kind::Floor => words.extend([text(program), "floor".into(), text(&socket)]),
            Kind::O => {
                // Its socket's path is compiled in, so that it gets a /run of its own.
                let config = dir.join("oxenstored.conf");
                fs::write(&config, OXENSTORED_CONF)?;
                let run = dir.join("run");
                for name in ["xenstored", "xen"] {
                    fs::create_dir_all(run.join(name))?;
                }
                socket = run.join("xenstored/socket");
                let script = r#"mount --bind "$1" /run && shift && exec "$@""#;
                let space = if Uid::effective().is_root() { "-m" } else { "-rm" };
                words.extend(["unshare", space, "sh", "-c", script, "sh"].map(str::to_owned));
                words.extend([text(&run), text(program)]);
                words.extend(["--no-domain-init", "--no-fork", "--no-access-log", "--config-file"].map(str::to_owned));
                words.push(text(&config));
            }
        }
        Ok((words, socket))
    }
}

/// Debian's settings, as far as they are not the built-in ones; the pid file lies in the private `/run`.
pub(crate) const OXENSTORED_CONF: &str = "pid-file = /run/xen/xenstored.pid
conflict-burst-limit = 5.0
conflict-max-history-seconds = 0.05
conflict-rate-limit-is-aggregate = true
merge-activate = true
perms-activate = true
perms-watch-activate = true
quota-activate = true
quota-maxentity = 1000
quota-maxsize = 2048
quota-maxwatch = 100
quota-transaction = 10
quota-maxrequests = 1024
quota-path-max = 1024
quota-maxoutstanding = 1024
quota-maxwatchevents = 1024
persistent = false
";

/// A command of these words, which the kernel ends should this program be killed.
pub(crate) fn guarded(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(words);
    command
}

/// Starts a daemon at its place; what it says goes to a file in `dir`.
pub(crate) fn spawn(command: &mut Command, dir: &Path, places: Option<Places>) -> io::Result<Child> {
    let output = File::create(dir.join("output"))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    if let Some(places) = places {
        places.take_daemon()?;
    }
    let spawned = command.spawn();
    if let Some(places) = places {
        places.take_client()?;
    }
    spawned
}

/// The daemon under test: `XENSTORED_RS`, else the release build, wherever this build puts it.
fn ours() -> PathBuf {
    if let Some(path) = env::var_os("XENSTORED_RS") {
        return path.into();
    }
    let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("release/xenstored-rs")));
    let built = beside.filter(|path| path.exists());
    built.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/xenstored-rs"))
}

fn build_preload(root: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peer/preload.c");
    let library = root.join("preload.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).status();
    built.is_ok_and(|status| status.success()).then_some(library)
}

/// A daemon that runs, and ends with this value.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Which one it is.
    pub(crate) kind: Kind,
    /// Its CPU time.
    pub(crate) clock: CpuClock,
    socket: PathBuf,
    dir: PathBuf,
    child: Child,
}

impl Daemon {
    /// Waits until a daemon that was started accepts connections.
    pub(crate) fn wait_for(kind: Kind, child: Child, dir: PathBuf, socket: PathBuf) -> Outcome<Self> {
        let clock = CpuClock::of(pid_of(&child))?;
        let mut daemon = Self { kind, clock, socket, dir, child };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&daemon.socket).is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                return Err(Failure::Unusable(format!("ended with {status}: {}", daemon.output())));
            }
            if Instant::now() > deadline {
                return Err(Failure::Unusable(format!("does not answer: {}", daemon.output())));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Outcome<Client> {
        Client::connect(&self.socket, self.kind == Kind::Floor)
    }

    /// `count` new connections; the last has been served, so that all are open.
    pub(crate) fn connect_many(&self, count: usize) -> Outcome<Vec<Client>> {
        let mut clients = (0..count).map(|_| self.connect()).collect::<Outcome<Vec<_>>>()?;
        if let Some(last) = clients.last_mut() {
            let root = last.with_path(xenstore_wire::Op::Directory, 0, "/", b"", 10).map(drop);
            root?;
        }
        Ok(clients)
    }

    /// Whatever it said, for an error text.
    fn output(&self) -> String {
        let text = fs::read(self.dir.join("output")).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(400)..];
        String::from_utf8_lossy(tail).trim().replace('\n', "; ")
    }

    /// Asks it to end and waits for it; kills it when it takes too long.
    pub(crate) fn stop(&mut self, patience: Duration) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let ending = pidfd_open(rustix::process::Pid::from_child(&self.child), PidfdFlags::empty())?;
        kill(self.pid(), Signal::SIGTERM)?;
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let ended = poll(&mut [PollFd::new(ending.as_fd(), PollFlags::POLLIN)], patience)?;
        if ended == 0 {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is left to do about a daemon that cannot be ended; the kernel does it when this program ends.
        let _ended = self.stop(Duration::from_secs(5));
        let _removed = fs::remove_dir_all(&self.dir);
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_found_by_name_in_any_case() {
        assert_eq!(Kind::named("OURS"), Some(Kind::Ours));
        assert_eq!(Kind::named("c"), Some(Kind::C));
        assert_eq!(Kind::named("x"), None);
    }

    #[test]
    fn every_name_leads_back_to_its_daemon() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
    }
}
