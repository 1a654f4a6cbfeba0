//! Daemons that are not there, that err, and that go away.

use crate::{open, store};
use rstest::rstest;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use xenstore_client::link::{Link, Numbering, Setup, Sink};
use xenstore_client::platform::Std;
use xenstore_client::transport::Socket;
use xenstore_client::{Cause, Error, Nodes, Options, XsError};
use xenstore_wire::{Header, Op};
use xenstored_tests::{Backend, Scripted, Starter, wait};

#[test]
fn what_was_tried_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("socket");
    let error = Options::new().place(&missing).open().unwrap_err();
    assert_eq!(error.name(), "ENOENT");
    assert_eq!(error.to_string(), format!("no xenstore: {}: ENOENT", missing.display()));

    drop(UnixListener::bind(&missing).unwrap());
    let error = Options::new().place(&missing).open().unwrap_err();
    assert_eq!(error.name(), "ECONNREFUSED", "a socket where nobody listens");

    let long = dir.path().join("x".repeat(100)).join("y".repeat(50));
    std::fs::create_dir_all(long.parent().unwrap()).unwrap();
    let bound = std::process::Command::new("python3")
        .args(["-c", "import os, socket, sys; os.chdir(sys.argv[1]); socket.socket(socket.AF_UNIX).bind(sys.argv[2])"])
        .args([long.parent().unwrap().as_os_str(), long.file_name().unwrap()])
        .status();
    assert!(bound.unwrap().success());
    let error = Options::new().place(&long).open().unwrap_err();
    assert_eq!(error.name(), "EINVAL", "a path that is longer than a socket's may be");
}

#[test]
fn opening_waits_for_a_daemon_that_is_yet_to_start() {
    let dir = tempfile::Builder::new().prefix("xs-").tempdir().unwrap();
    let socket = dir.path().join("socket");
    let client = thread::spawn(move || Options::new().place(socket).wait(wait::PATIENCE).open());
    let daemon = Starter::new(Backend::Ours).start_in(dir);
    client.join().unwrap().unwrap().read("/").unwrap();
    drop(daemon);
}

#[test]
fn waiting_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let patience = Duration::from_millis(50);
    let error = Options::new().place(dir.path().join("socket")).wait(patience).open().unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)));
    assert!(begun.elapsed() >= patience);
}

#[test]
fn a_request_has_an_end() {
    let server = Scripted::start();
    let client = Options::new().place(server.socket()).timeout(Duration::from_millis(10)).open().unwrap();
    let _line = server.accept();
    assert_eq!(client.read("/a"), Err(Error::TimedOut));
    assert_eq!(client.read("/a").unwrap_err().name(), "ETIMEDOUT");
}

#[rstest]
fn every_error_name_becomes_its_error(
    #[values(
        "EINVAL",
        "EACCES",
        "EEXIST",
        "EISDIR",
        "ENOENT",
        "ENOMEM",
        "ENOSPC",
        "EIO",
        "ENOTEMPTY",
        "ENOSYS",
        "EROFS",
        "EBUSY",
        "EAGAIN",
        "EISCONN",
        "E2BIG",
        "EPERM"
    )]
    name: &'static str,
) {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    let reader = thread::spawn(move || client.read("/a"));
    let (header, _) = line.request();
    line.error(&header, name);
    let error = reader.join().unwrap().unwrap_err();
    assert_eq!((error.name().as_str(), error.refusal()), (name, XsError::from_name(name.as_bytes())));
}

#[test]
fn an_unknown_error_name_is_kept() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    let reader = thread::spawn(move || client.read("/a"));
    let (header, _) = line.request();
    line.error(&header, "EQUOTA");
    let error = reader.join().unwrap().unwrap_err();
    assert_eq!(error, Error::RefusedUnknown("EQUOTA".into()));
    assert_eq!(error.name(), "EINVAL");
}

/// What a daemon must never send, and what becomes of the connection.
#[rstest]
#[case::wrong_type(|h: &Header| message(Op::Write.number(), h.req_id, b"OK\0"), Cause::Mismatch)]
#[case::wrong_number(|h: &Header| message(Op::Read.number(), h.req_id + 1, b"x"), Cause::Unexpected)]
#[case::too_long(|h: &Header| Header { len: 4097, ..*h }.encode().to_vec(), Cause::TooLong)]
#[case::text(|_: &Header| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Cause::TooLong)]
#[case::event_of_one_string(|_: &Header| message(Op::WatchEvent.number(), 0, b"/a\0"), Cause::MalformedEvent)]
#[case::end(|_: &Header| Vec::new(), Cause::Ended)]
#[case::half_a_header(|_: &Header| vec![2, 0, 0], Cause::Ended)]
fn a_connection_that_errs_is_broken(#[case] bytes: fn(&Header) -> Vec<u8>, #[case] cause: Cause) {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    let reader = thread::spawn(move || (client.read("/a"), client.read("/a"), client.watch("/a").map(drop)));
    let (header, _) = line.request();
    line.send(&bytes(&header));
    if cause == Cause::Ended {
        drop(line);
    } else {
        assert_eq!(line.next_request(), None, "the client ends the connection");
    }
    let (first, second, watch) = reader.join().unwrap();
    assert_eq!(first, Err(Error::Broken(cause)));
    assert_eq!((second, watch), (Err(Error::Closed), Err(Error::Closed)));
}

fn message(op: u32, req_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    xenstore_wire::put_message(&mut bytes, op, req_id, 0, payload);
    bytes
}

#[test]
fn a_second_answer_breaks_the_connection() {
    let server = Scripted::start();
    let client = open(&server.socket());
    let mut line = server.accept();
    let reader = thread::spawn(move || (client.read("/a"), client.read("/a")));
    let (header, _) = line.request();
    let mut both = message(Op::Read.number(), header.req_id, b"one");
    both.extend(message(Op::Read.number(), header.req_id, b"two"));
    line.send(&both);
    let (first, second) = reader.join().unwrap();
    assert_eq!((first, second), (Ok(b"one".to_vec()), Err(Error::Closed)));
}

#[test]
fn the_daemons_death_wakes_everybody() {
    let (daemon, client) = store();
    let watch = client.watch("/a").unwrap();
    watch.wait().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.wait());
        let readers: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        if let Err(error) = client.read("/") {
                            return error;
                        }
                    }
                })
            })
            .collect();
        drop(daemon);
        assert_eq!(waiting.join().unwrap(), Err(Error::Closed));
        for reader in readers {
            let error = reader.join().unwrap();
            assert!(matches!(error, Error::Broken(_) | Error::Closed), "{error:?}");
        }
    });
    assert_eq!(client.read("/"), Err(Error::Closed));
    assert_eq!(watch.try_next(), Err(Error::Closed));
}

/// Takes events until it is told to panic by one of them.
#[derive(Debug)]
struct Trap(Vec<Vec<u8>>);

impl Sink for Trap {
    fn event(&mut self, payload: &[u8]) -> Result<(), Cause> {
        assert!(!payload.starts_with(b"/trap"), "a fault inside");
        self.0.push(payload.to_vec());
        Ok(())
    }

    fn broken(&mut self) {}
}

/// Whoever receives may be hit by a fault; the others are not left waiting for him.
#[rstest]
fn a_fault_in_a_thread_ends_the_connection_for_all(#[values(false, true)] background: bool) {
    let server = Scripted::start();
    let transport = Arc::new(Socket::new(UnixStream::connect(server.socket()).unwrap()));
    let setup = Setup { descriptors: Arc::default(), numbering: Numbering::Counted, opener: None };
    let link = Link::<Std, Trap>::new(transport, Trap(Vec::new()), setup);
    let mut line = server.accept();
    if background {
        link.start_background().unwrap();
    }
    thread::scope(|scope| {
        let wait = || link.wait_for(None, |trap| trap.0.pop());
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(wait)).collect();
        let asking = scope.spawn(|| link.request(Op::Read, 0, &[b"/a\0"], None, |_| ()));
        line.request();
        line.event("/trap", "t");
        let results: Vec<_> = waiting.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let asked = asking.join();
        let hit = results.iter().filter(|result| result.is_err()).count() + usize::from(asked.is_err());
        assert!(hit <= 1, "who received");
        for told in results.into_iter().flatten() {
            assert_eq!(told, Err(Error::Closed));
        }
        if let Ok(told) = asked {
            assert!(matches!(told, Err(Error::Broken(_))), "{told:?}");
        }
    });
    assert_eq!(link.request(Op::Read, 0, &[b"/a\0"], None, |_| ()), Err(Error::Closed));
}
