//! One running store daemon in its own run directory.

use crate::client::Client;
use crate::{process, tools, wait};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use xenstore_wire::Op;

/// Which daemon a test talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// This project's.
    Ours,
    /// Debian's C xenstored 4.17, carried by the preload library.
    C,
}

/// How a daemon is to be started.
#[derive(Debug)]
pub struct Starter {
    backend: Backend,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    descriptors: Option<(u64, u64)>,
    file_size: Option<u64>,
}

impl Starter {
    /// A daemon with nothing but its run directory set.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Self { backend, args: Vec::new(), envs: Vec::new(), descriptors: None, file_size: None }
    }

    /// Adds a command line argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets the soft and hard limit of open descriptors.
    #[must_use]
    pub fn descriptors(mut self, soft: u64, hard: u64) -> Self {
        self.descriptors = Some((soft, hard));
        self
    }

    /// Sets the size in bytes beyond which no file of the daemon can grow.
    #[must_use]
    pub fn file_size(mut self, most: u64) -> Self {
        self.file_size = Some(most);
        self
    }

    /// The command line for run directory `dir`; its stdio is the caller's to set.
    ///
    /// # Panics
    /// When our daemon cannot be built.
    #[must_use]
    pub fn command(&self, dir: &Path) -> Command {
        let program: OsString = match self.backend {
            Backend::Ours => our_binary().into(),
            Backend::C => format!("{}/xenstored", tools::XEN_BIN).into(),
        };
        let descriptors = self.descriptors.map(|(soft, hard)| format!("--nofile={soft}:{hard}"));
        let limits: Vec<String> =
            descriptors.into_iter().chain(self.file_size.map(|most| format!("--fsize={most}"))).collect();
        let mut command = if limits.is_empty() {
            Command::new(&program)
        } else {
            let mut command = Command::new("prlimit");
            command.args(limits).arg("--").arg(&program);
            command
        };
        match self.backend {
            // No test leaves a process behind; those about keeping say so.
            Backend::Ours => command.args(["-D", "--keep", "0"]),
            Backend::C => command.env("LD_PRELOAD", env!("PEER_PRELOAD")),
        };
        command
            .arg("-N")
            .arg("--pid-file")
            .arg(dir.join("pid"))
            .args(&self.args)
            .env_remove("NOTIFY_SOCKET")
            .env("XENSTORED_RUNDIR", dir)
            .env("XENSTORED_PATH", dir.join("socket"))
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon in a new run directory and waits until it listens.
    ///
    /// # Panics
    /// When it ends instead, or does not listen in time.
    #[must_use]
    pub fn start(self) -> Daemon {
        let dir = tempfile::Builder::new().prefix("xs-").tempdir().expect("a temporary directory");
        self.start_in(dir)
    }

    /// Starts the daemon in `dir`, which may hold what an earlier one left.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_in(self, dir: TempDir) -> Daemon {
        let child = self.spawn_in(dir.path());
        let mut daemon = Daemon { backend: self.backend, dir: Some(dir), child };
        let socket = daemon.socket();
        wait::until("the daemon listens", || {
            if let Some(status) = daemon.exit_status() {
                panic!("the daemon ended ({status}) before it listened:\n{}", daemon.log());
            }
            Client::connect(&socket).is_ok()
        });
        daemon
    }
}

impl Starter {
    /// Starts the daemon in a run directory without waiting for anything; what it prints is added to what is there.
    fn spawn_in(&self, dir: &Path) -> Child {
        let log =
            File::options().append(true).create(true).open(dir.join("stderr")).expect("a file in the run directory");
        let out = log.try_clone().expect("a second handle of the log");
        let child = self.command(dir).stdout(out).stderr(log).spawn();
        child.unwrap_or_else(|e| panic!("{:?} cannot start: {e}", self.backend))
    }
}

/// A running daemon; dropping it kills it and removes its run directory.
#[derive(Debug)]
pub struct Daemon {
    backend: Backend,
    dir: Option<TempDir>,
    child: Child,
}

impl Daemon {
    /// Starts a daemon with nothing but its run directory set.
    ///
    /// # Panics
    /// When it does not come to listen.
    #[must_use]
    pub fn start(backend: Backend) -> Self {
        Starter::new(backend).start()
    }

    /// Which daemon this is.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Its run directory.
    ///
    /// # Panics
    /// Never: only [`Self::kill`] takes the directory, and the daemon with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("a running daemon has its directory").path()
    }

    /// The socket that it listens at.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir().join("socket")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.dir().join("stderr")).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// When the process cannot be asked for.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// A new connection.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket()).unwrap_or_else(|e| panic!("connect: {e}"))
    }

    /// Checks that a stranger is served at once and that this is still the process that was started.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.exit_status() {
            panic!("the daemon ended ({status}):\n{}", self.log());
        }
        let mut client = self.connect();
        client.set_patience(Duration::from_secs(1));
        let answer = client.request(Op::Read, b"/\0");
        assert_eq!(answer, Ok(Vec::new()), "READ / on a fresh connection; the daemon says:\n{}", self.log());
    }

    /// Anonymous memory in use, KiB.
    #[must_use]
    pub fn anonymous_kib(&self) -> u64 {
        process::anonymous_kib(self.pid())
    }

    /// Number of open descriptors.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        process::descriptors(self.pid())
    }

    /// Sends the daemon a signal that asks for something.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.pid()).expect("a pid fits");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the daemon runs");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait(&mut self) -> ExitStatus {
        wait::until_some("the daemon ends", || self.exit_status())
    }

    /// Kills it with SIGKILL and hands over its run directory, with all that it left there.
    ///
    /// # Panics
    /// When the process cannot be waited for.
    #[must_use]
    pub fn kill(mut self) -> TempDir {
        self.end();
        self.dir.take().expect("a running daemon has its directory")
    }

    /// Kills it with SIGKILL and starts another in its place, with the same arguments and its own ones after them.
    ///
    /// # Panics
    /// As [`Starter::start`].
    pub fn restart(&mut self, starter: &Starter) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.start_another(starter);
        self.await_listening();
    }

    /// Starts another in place of one that is dead, without waiting for anything.
    pub fn start_another(&mut self, starter: &Starter) {
        self.child = starter.spawn_in(self.dir());
    }

    /// The keepers of its run directory.
    #[must_use]
    pub fn keepers(&self) -> Vec<u32> {
        process::keepers(self.dir())
    }

    /// Waits until its keeper holds this many clients: those that have a watch or a transaction are given to it at once.
    ///
    /// # Panics
    /// When it does not come to that.
    pub fn await_kept(&self, clients: usize) {
        // Standard streams, the link, its socket, the listener and the daemon's process are there without any client.
        let holds = |pid: u32| process::descriptors(pid) >= 7 + clients;
        wait::until("the keeper holds the clients", || self.keepers().into_iter().any(holds));
    }

    fn await_listening(&mut self) {
        let socket = self.socket();
        wait::until("the daemon serves", || {
            if let Some(status) = self.exit_status() {
                panic!("the daemon ended ({status}) before it served:\n{}", self.log());
            }
            // Its keeper listens too, and does not answer; what is left of the one before breaks off.
            Client::connect(&socket).is_ok_and(|mut client| client.try_request(Op::Read, 0, b"/\0").is_ok())
        });
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = &self.dir {
            process::end_all_of(dir.path());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Our daemon: `$XENSTORED_RS`, or else the one of the build that this test belongs to, brought up to date once per
/// process when cargo runs the tests.
///
/// # Panics
/// When it cannot be built.
pub fn our_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("XENSTORED_RS") {
            return path.into();
        }
        let test = std::env::current_exe().expect("a test knows its own file");
        let profile_dir = test.ancestors().nth(2).expect("tests live in <target>/<profile>/deps");
        if let Some(cargo) = std::env::var_os("CARGO") {
            build(&cargo, profile_dir);
        }
        let binary = profile_dir.join("xenstored-rs");
        assert!(binary.exists(), "{} is missing: build it, or set XENSTORED_RS", binary.display());
        binary
    })
}

/// Builds our daemon into the target directory of this test, with the same profile.
fn build(cargo: &OsStr, profile_dir: &Path) {
    let profile = match profile_dir.file_name().and_then(OsStr::to_str) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let target_dir = profile_dir.parent().expect("a profile's directory is inside the target directory");
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "xenstored-rs", "--bin", "xenstored-rs", "--profile", profile])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap_or_else(|e| panic!("{} cannot start: {e}", cargo.display()));
    assert!(output.status.success(), "our daemon does not build:\n{}", String::from_utf8_lossy(&output.stderr));
}
