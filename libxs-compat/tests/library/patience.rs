//! Daemons that are not there yet, and daemons that do not answer.

use crate::{open, open_with};
use nix::errno::Errno;
use std::os::unix::net::UnixListener;
use std::thread;
use xenstored_tests::{Backend, Scripted, Starter};

#[test]
fn opening_fails_at_once_or_waits_as_asked() {
    let dir = tempfile::Builder::new().prefix("xs-").tempdir().unwrap();
    let socket = dir.path().join("socket");
    assert_eq!(open_with(&socket, 0, &[]).err(), Some(Errno::ENOENT));
    assert_eq!(open_with(&socket, 0, &[("XENSTORE_WAIT", "0.01")]).err(), Some(Errno::ENOENT));
    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(open_with(&socket, 0, &[]).err(), Some(Errno::ECONNREFUSED));
    for nonsense in ["", "-1", "soon", "nan"] {
        assert_eq!(
            open_with(&socket, 0, &[("XENSTORE_WAIT", nonsense)]).err(),
            Some(Errno::ECONNREFUSED),
            "{nonsense}"
        );
    }
    let daemon = thread::spawn(move || Starter::new(Backend::Ours).start_in(dir));
    let handle = loop {
        // Other tests open handles, too, and each has the environment for itself.
        match open_with(&socket, 0, &[("XENSTORE_WAIT", "0.5")]) {
            Ok(handle) => break handle,
            Err(errno) => assert!(matches!(errno, Errno::ENOENT | Errno::ECONNREFUSED), "{errno}"),
        }
    };
    assert_eq!(handle.read("/").unwrap(), b"");
    drop(daemon.join().unwrap());
}

#[test]
fn opening_waits_where_the_daemon_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    // SAFETY: the listener is open; listening again sets how many may wait.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
    let first = open(&socket);
    assert_eq!(open_with(&socket, 0, &[("XENSTORE_WAIT", "0.05")]).err(), Some(Errno::EAGAIN));
    let accepted = listener.accept().unwrap();
    let second = open_with(&socket, 0, &[("XENSTORE_WAIT", "10")]).unwrap();
    drop((first, accepted, second));
}

#[test]
fn a_request_fails_when_its_time_is_over_and_the_next_gets_its_own_answer() {
    let server = Scripted::start();
    let handle = open_with(&server.socket(), 0, &[("XENSTORE_TIMEOUT", "0.05")]).unwrap();
    let mut line = server.accept();
    assert_eq!(handle.read("/slow"), Err(Errno::ETIMEDOUT));
    assert_eq!(handle.write("/slower", "x"), Err(Errno::ETIMEDOUT));
    let (slow, _) = line.request();
    let (slower, _) = line.request();
    let patient = thread::spawn(move || {
        loop {
            match handle.read("/quick") {
                Err(Errno::ETIMEDOUT) => {}
                done => return done,
            }
        }
    });
    line.reply(&slow, b"slow");
    line.reply(&slower, b"OK\0");
    while let Some((header, _)) = line.next_request() {
        line.reply(&header, b"quick");
    }
    assert_eq!(patient.join().unwrap().unwrap(), b"quick");
}
