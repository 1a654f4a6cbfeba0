//! `xen-sim` on the command line.

use crate::running::{Client, PATIENCE, Peer, until};
use rstest::rstest;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use xenstore_wire::Op;

const XEN_SIM: &str = env!("CARGO_BIN_EXE_xen-sim");

/// A host that was started by the command; it ends when this is dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        // Asked to end, it takes its daemon with it; it may have ended by itself.
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

fn run(peer: Peer, dir: &Path, domains: u16) -> Run {
    let mut command = Command::new(XEN_SIM);
    command.arg("run").arg("--dir").arg(dir).args(["--domains", &domains.to_string(), "--"]);
    command.arg(peer.program()).args(peer.args(dir));
    let mut run = Run(command.stdout(Stdio::piped()).spawn().expect("xen-sim starts"));
    let lines = BufReader::new(run.0.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("text"));
    assert!(lines.any(|line| line == "ready"), "it says so");
    run
}

fn ctl(dir: &Path, words: &[&str]) -> Output {
    Command::new(XEN_SIM).arg("ctl").arg("--dir").arg(dir).args(words).output().expect("xen-sim starts")
}

fn ctl_ok(dir: &Path, words: &[&str]) -> String {
    let output = ctl(dir, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[rstest]
#[case(Peer::C)]
#[case(Peer::O)]
fn a_host_is_run_acted_on_and_ended(#[case] peer: Peer) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut host = run(peer, dir, 3);
    let mut toolstack = Client::connect(&dir.join("run/socket"));
    for domid in 0..=3 {
        Client::connect(&dir.join(format!("guest-{domid}.sock"))).assert_served();
    }
    assert_eq!(ctl_ok(dir, &["list"]).lines().count(), 4);
    assert_eq!(ctl_ok(dir, &["create"]), "4\n");
    assert_eq!(toolstack.request(Op::IsDomainIntroduced, b"4\0").1, b"T\0");
    ctl_ok(dir, &["suspend", "4"]);
    assert!(ctl_ok(dir, &["list"]).contains("4 shutdown(2)"));
    ctl_ok(dir, &["resume", "4"]);
    ctl_ok(dir, &["destroy", "4"]);
    until("the daemon lets go of it", || toolstack.request(Op::IsDomainIntroduced, b"4\0").1 == b"F\0");
    ctl_ok(dir, &["corrupt", "3", "req_prod", "4000"]);
    assert!(ctl_ok(dir, &["ring", "3"]).contains("req_prod 4000"));
    ctl_ok(dir, &["corrupt", "3", "at", "100", "c0ffee"]);
    assert!(!ctl(dir, &["destroy", "77"]).status.success());
    assert!(!ctl(dir, &["nonsense"]).status.success());

    let daemon = std::fs::read_to_string(dir.join("daemon.pid")).unwrap();
    assert!(Command::new("kill").args(["-KILL", daemon.trim()]).status().unwrap().success());
    let status = host.0.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9), "it ends as the daemon did, within {PATIENCE:?}");
    assert!(!dir.join("guest-1.sock").exists() && !dir.join("host.sock").exists());
}

#[test]
fn the_end_of_the_host_is_the_end_of_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = run(Peer::C, dir.path(), 1);
    let daemon = std::fs::read_to_string(dir.path().join("daemon.pid")).unwrap();
    assert!(Command::new("kill").arg(host.0.id().to_string()).status().unwrap().success());
    host.0.wait().unwrap();
    assert!(!Path::new("/proc").join(daemon.trim()).exists());
}

#[test]
fn a_daemon_that_does_not_start_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(XEN_SIM);
    let output = command.arg("run").arg("--dir").arg(dir.path()).args(["--", "/bin/false"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("before it answered"));
}
