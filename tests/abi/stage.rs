//! A simulated host with one of the three daemons, for C programs to talk to.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tempfile::TempDir;
use xen_sim::Host;
use xenstored_tests::{Client, our_binary, tools, wait};

/// Which daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// xenstored-rs.
    Ours,
    /// Debian's C xenstored 4.17.
    C,
    /// Debian's oxenstored 4.17.
    O,
}

/// Domains of every host: one that nobody introduced, one that was, and one for the program to introduce.
pub(crate) const UNKNOWN: u16 = 3;
const KNOWN: u16 = 4;
pub(crate) const NEW: u16 = 5;

/// A host and its daemon; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) host: Host,
    daemon: Child,
    dir: TempDir,
}

impl Stage {
    /// A daemon on a new host.
    pub(crate) fn new(kind: Kind) -> Self {
        let dir = tempfile::Builder::new().prefix("xs-abi-").tempdir().expect("a temporary directory");
        let host = Host::start(dir.path()).expect("a host");
        for domid in [UNKNOWN, KNOWN, NEW] {
            host.create(domid).expect("a new domain");
        }
        let program = match kind {
            Kind::Ours => our_binary().to_owned(),
            Kind::C => Path::new(tools::XEN_BIN).join("xenstored"),
            Kind::O => Path::new(tools::XEN_BIN).join("oxenstored"),
        };
        let log = File::create(dir.path().join("stderr")).expect("a file in the directory");
        let out = log.try_clone().expect("a second handle of the log");
        let mut command = host.command(&program).expect("the library to preload");
        let pid_file = dir.path().join("pid");
        match kind {
            // No test leaves a process behind.
            Kind::Ours => command.args(["-N", "--keep", "0", "--pid-file"]).arg(pid_file),
            Kind::C => command.args(["-N", "--pid-file"]).arg(pid_file),
            Kind::O => {
                let config = dir.path().join("oxenstored.conf");
                let text = "pid-file = /run/xenstored/pid\n\
                            xenstored-kva = /proc/xen/xsd_kva\nxenstored-port = /proc/xen/xsd_port\n";
                fs::write(&config, text).expect("a file in the directory");
                command.args(["--no-fork", "--no-access-log", "--config-file"]).arg(config)
            }
        };
        let daemon = command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().expect("the daemon starts");
        let mut stage = Self { host, daemon, dir };
        wait::until("the daemon listens", || {
            if let Some(status) = stage.daemon.try_wait().expect("a child can be waited for") {
                let log = fs::read(stage.dir.path().join("stderr")).unwrap_or_default();
                panic!("{kind:?} ended ({status}) before it listened:\n{}", String::from_utf8_lossy(&log));
            }
            Client::connect(&stage.socket()).is_ok()
        });
        stage.host.introduce(KNOWN).expect("the daemon takes the domain");
        stage
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.host.socket()
    }

    /// Kills the daemon and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill().expect("the daemon runs");
        self.daemon.wait().expect("it can be waited for");
    }

    /// Checks that the daemon that was started serves.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.daemon.try_wait().expect("a child can be waited for");
        assert_eq!(ended, None, "the daemon ended");
        let mut client = Client::connect(&self.socket()).expect("the daemon listens");
        assert!(client.read("/").is_ok(), "READ / on a fresh connection");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
