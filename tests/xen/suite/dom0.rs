//! Domain 0 as Debian sets it up: the daemon at its usual place, the consoles' daemon, and Debian's tools.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use xenstored_tests::{Client, our_binary, tools, wait};

/// Where the daemon listens unless it is told otherwise.
pub(crate) const SOCKET: &str = "/var/run/xenstored/socket";

const LOG: &str = "/tmp/xenstored.log";

/// A running daemon, and what belongs to it. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Dom0 {
    daemon: Child,
    consoles: Option<Child>,
}

impl Dom0 {
    /// The daemon only. It need not answer yet.
    pub(crate) fn begin() -> Self {
        let _ = fs::remove_file(LOG);
        Self { daemon: spawn_daemon(), consoles: None }
    }

    /// Ends the daemon by a signal, while all else goes on, and starts the next one.
    pub(crate) fn replace_daemon(&mut self, by: Signal) {
        self.signal(by);
        self.daemon.wait().expect("a child can be waited for");
        self.daemon = spawn_daemon();
        self.await_answer();
    }

    /// All that `xl` needs.
    pub(crate) fn start() -> Self {
        let mut dom0 = Self::begin();
        dom0.await_answer();
        run(&xen_tool("xen-init-dom0"), &[]);
        let mut consoles = Command::new(xen_tool("xenconsoled"));
        consoles.args(["-i", "--log=guest", "--log-dir=/var/log/xen"]);
        consoles.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        dom0.consoles = Some(consoles.spawn().expect("the consoles' daemon starts"));
        dom0
    }

    /// Waits until the daemon takes connections.
    pub(crate) fn await_answer(&mut self) {
        wait::until("the daemon listens", || {
            if let Some(status) = self.daemon.try_wait().expect("a child can be waited for") {
                panic!("the daemon ended ({status}):\n{}", log());
            }
            Client::connect(Path::new(SOCKET)).is_ok()
        });
    }

    /// A privileged connection over the socket.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(Path::new(SOCKET)).expect("the daemon listens")
    }

    /// Ends the daemon in order.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut consoles) = self.consoles.take() {
            let _ = consoles.kill();
            let _ = consoles.wait();
        }
        self.signal(Signal::SIGTERM);
        let _ = self.daemon.wait();
    }

    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(i32::try_from(self.daemon.id()).expect("a pid fits")), signal);
    }
}

impl Drop for Dom0 {
    #[expect(clippy::print_stdout, reason = "the test program shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the daemon says:\n{}", log());
            destroy_all();
        }
        self.end();
    }
}

fn spawn_daemon() -> Child {
    let log = File::options().append(true).create(true).open(LOG).expect("a file");
    let out = log.try_clone().expect("a second handle of the log");
    let mut command = Command::new(our_binary());
    command.args(["-N", "--pid-file", "/var/run/xenstored.pid"]).env_remove("XENSTORED_RUNDIR");
    command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().expect("the daemon starts")
}

/// Destroys what a test that failed has left.
fn destroy_all() {
    let Ok(listing) = Command::new(xen_tool("xl")).arg("list").output() else { return };
    for line in String::from_utf8_lossy(&listing.stdout).lines().skip(2) {
        if let Some(name) = line.split_whitespace().next() {
            let _ = Command::new(xen_tool("xl")).args(["destroy", name]).output();
        }
    }
}

fn log() -> String {
    fs::read_to_string(LOG).unwrap_or_default()
}

fn xen_tool(name: &str) -> String {
    format!("{}/{name}", tools::XEN_BIN)
}

/// Runs a command that must succeed, and gives what it printed.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Runs `xl`, and gives what it printed.
pub(crate) fn xl(args: &[&str]) -> String {
    run(&xen_tool("xl"), args)
}
