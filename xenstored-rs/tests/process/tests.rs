//! The tests; each starts processes of its own and waits for them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Longest wait for anything; far above what it takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// A test and its name.
type Test = (&'static str, fn());

macro_rules! tests {
    ($($name:ident)*) => {
        /// Every test of this file.
        pub(crate) const ALL: &[Test] = &[$((stringify!($name), $name)),*];
    };
}

tests! {
    the_launcher_returns_when_the_daemon_is_ready_and_free_of_it
    a_failing_daemon_gives_its_message_and_status_to_the_launcher
    a_daemon_that_dies_is_reported_as_dead
    a_living_holder_of_the_pid_file_is_recognised_and_left_alone
    the_pid_file_of_a_killed_holder_is_taken_over
    readiness_is_told_once_and_the_variable_is_gone
    a_panic_leaves_message_and_backtrace_on_standard_error
    a_broken_pipe_does_not_kill
    the_soft_descriptor_limit_is_raised_to_the_hard_one
}

fn role(name: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("role:{name}")).args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn the_launcher_returns_when_the_daemon_is_ready_and_free_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (pid_path, socket) = (dir.path().join("pid"), dir.path().join("socket"));
    let listener = UnixListener::bind(&socket).unwrap();
    // `output` returns only when nobody holds the pipes any more: the daemon must have left them.
    let output: Output = role("ready", &[&pid_path, &socket]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut report = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut report).unwrap();
    let field = |name: &str| report.split_whitespace().find_map(|field| field.strip_prefix(name)).unwrap();
    let pid = field("pid=");
    // The terminal is the daemon's until it reports, and not after.
    assert_eq!(text(&output.stdout), format!("before ready\n{pid}\n"));
    assert_ne!(field("session="), pid, "the daemon leads no session, so it cannot get a terminal");
    assert_eq!(field("terminal="), "0");
    assert_eq!(field("directory="), "/");
    assert_eq!(field("streams="), "/dev/null,/dev/null,/dev/null");
    assert_eq!(fs::read_to_string(&pid_path).unwrap(), format!("{pid}\n"));
    let mode = fs::metadata(pid_path.with_extension("made")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "files are closed to others");
    let contender = role("contender", &[&pid_path]).output().unwrap();
    let refusal = format!("already running with pid {pid} (pid file {})", pid_path.display());
    assert_eq!(text(&contender.stdout), format!("{refusal}\n{refusal}\n"), "the daemon itself holds the lock");
    reader.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(!pid_path.exists(), "removed before the daemon ended");
}

fn a_failing_daemon_gives_its_message_and_status_to_the_launcher() {
    let output = role("failing", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), "no socket\nfor us\n");
}

fn a_daemon_that_dies_is_reported_as_dead() {
    let output = role("dying", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "the daemon died before it was ready\n");
}

/// Starts a holder of the lock and waits until it has it; returns it with its pid as text.
fn holder(path: &Path) -> (Child, String) {
    let mut child = role("holder", &[path]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
    (child, pid.trim().into())
}

fn a_living_holder_of_the_pid_file_is_recognised_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pid");
    let (mut child, pid) = holder(&path);
    let before = fs::metadata(&path).unwrap();
    let output = role("contender", &[&path]).output().unwrap();
    let refusal = format!("already running with pid {pid} (pid file {})", path.display());
    assert_eq!(text(&output.stdout), format!("{refusal}\n{refusal}\n"));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{pid}\n"));
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before.modified().unwrap(), "untouched");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!path.exists(), "an orderly end removes the file");
}

fn the_pid_file_of_a_killed_holder_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pid");
    let (mut child, pid) = holder(&path);
    child.stdin.take().unwrap().write_all(b"k").unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{pid}\n"), "left behind");
    let output = role("contender", &[&path]).output().unwrap();
    assert_eq!(text(&output.stdout), "free\nacquired\n");
    assert!(!path.exists(), "and removed when its new owner ends");
}

fn readiness_is_told_once_and_the_variable_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let child = role("notifying", &[]).env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait_with_output().unwrap().status.success());
    let received = || {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        text(&buffer[..len]).to_owned()
    };
    assert_eq!(received(), format!("READY=1\nMAINPID={pid}\nSTATUS=serving"));
    assert_eq!(received(), "STOPPING=1");
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "nothing else");
}

fn a_panic_leaves_message_and_backtrace_on_standard_error() {
    let output = role("panicking", &[]).env_remove("JOURNAL_STREAM").env("RUST_BACKTRACE", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(101));
    let log = text(&output.stderr);
    assert!(log.contains(" INFO seen domid=7\n"), "{log}");
    assert!(!log.contains("unseen"), "{log}");
    assert!(log.contains("ERROR panic at ") && log.contains("role.rs:") && log.contains(": forced\n"), "{log}");
    assert!(log.contains("panic_with_log"), "the backtrace names the function: {log}");
}

fn a_broken_pipe_does_not_kill() {
    assert!(role("silenced", &[]).status().unwrap().success());
}

fn the_soft_descriptor_limit_is_raised_to_the_hard_one() {
    assert!(role("limited", &[]).status().unwrap().success());
}
