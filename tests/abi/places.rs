//! Where the daemon is looked for, and what is said when it is not there.

use crate::library::Library;
use crate::program::Run;
use rstest::rstest;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use xenstored_tests::{Backend, Daemon};

/// What the variables are set to, in a directory of the test.
type Setting = (&'static str, &'static str);

/// Runs a program with variables whose `DIR` stands for a directory; returns its status and what it printed.
fn seen(name: &'static str, library: Library, dir: &Path, settings: &[Setting]) -> (i32, String) {
    let mut command: Command = Run::new(name, library).command();
    for (variable, value) in settings {
        command.env(variable, value.replace("DIR", dir.to_str().expect("a plain path")));
    }
    let output = command.output().expect("the program starts");
    assert!(output.stderr.is_empty(), "{library:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).replace(dir.to_str().expect("a plain path"), "DIR");
    (output.status.code().expect("it ends by itself"), text)
}

/// Long enough that no socket's address holds it.
const LONG: &str =
    "DIR/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

#[rstest]
#[case::nothing_set(&[])]
#[case::socket(&[("XENSTORED_PATH", "DIR/socket")])]
#[case::run_directory(&[("XENSTORED_RUNDIR", "DIR")])]
#[case::both(&[("XENSTORED_RUNDIR", "/nowhere"), ("XENSTORED_PATH", "DIR/socket")])]
#[case::the_other_way_round(&[("XENSTORED_RUNDIR", "DIR"), ("XENSTORED_PATH", "/nowhere")])]
#[case::empty(&[("XENSTORED_PATH", "")])]
#[case::empty_run_directory(&[("XENSTORED_RUNDIR", "")])]
#[case::relative(&[("XENSTORED_PATH", "socket")])]
#[case::nobody_listens(&[("XENSTORED_PATH", "DIR/deserted")])]
#[case::directory(&[("XENSTORED_PATH", "DIR")])]
#[case::below_a_file(&[("XENSTORED_PATH", "DIR/file/socket")])]
#[case::by_a_link(&[("XENSTORED_PATH", "DIR/link")])]
#[case::dangling(&[("XENSTORED_PATH", "DIR/dangling")])]
#[case::too_long(&[("XENSTORED_PATH", LONG)])]
#[case::too_long_a_directory(&[("XENSTORED_RUNDIR", LONG)])]
fn the_daemon_is_looked_for_in_the_same_places(#[case] settings: &[Setting]) {
    for name in ["words", "opening"] {
        let [theirs, ours] = Library::BOTH.map(|library| {
            let daemon = Daemon::start(Backend::Ours);
            let dir = daemon.dir();
            File::create(dir.join("file")).expect("a file");
            symlink("socket", dir.join("link")).expect("a link");
            symlink("none", dir.join("dangling")).expect("a link");
            drop(UnixListener::bind(dir.join("deserted")).expect("a socket"));
            seen(name, library, dir, settings)
        });
        assert_eq!(theirs, ours, "{name}: left Debian's library, right ours");
    }
}

/// A device that is none of Xen's is opened as if it were.
#[test]
fn another_device_is_no_daemon() {
    let [theirs, ours] =
        Library::BOTH.map(|library| Run::new("replies", library).at("/dev/null").args(&["read"]).output());
    assert_eq!(theirs, ours);
    assert!(ours.starts_with("read: fails: EBADF\nafterwards: fails: EBADF\n"), "{ours}");
}

/// A plain file is taken for the kernel's device; what is written to it stays there, and no reply comes.
#[test]
fn a_file_is_no_daemon() {
    let [theirs, ours] = Library::BOTH.map(|library| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("file");
        File::create(&file).expect("a file");
        let output = Run::new("replies", library).at(&file).args(&["read"]).output();
        let written = fs::read(&file).expect("the file");
        // Request number and so on: only the payload is the protocol's.
        (output, written[16..].to_vec())
    });
    assert_eq!(theirs.1, ours.1);
    assert!(ours.0.starts_with("read: fails: "), "{}", ours.0);
    assert!(ours.0.contains("afterwards: fails: EBADF"), "{}", ours.0);
    assert!(theirs.0.starts_with("read: fails: "), "{}", theirs.0);
}
