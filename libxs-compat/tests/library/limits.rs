//! A program with very many handles, and one that has no descriptors left.

use crate::alone::is_alone;
use crate::{Handle, Outcome, open, open_with};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use xenstored_tests::process::{descriptors, status};
use xenstored_tests::{Backend, Daemon};

/// Handles where the system allows it, and descriptors of one that has a watch and is polled.
const HANDLES: u64 = 1000;
const EACH: u64 = 5;

#[test]
fn a_thousand_handles_are_each_their_own() {
    if !is_alone("limits::a_thousand_handles_are_each_their_own") {
        return;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let count = HANDLES.min((hard - 500) / EACH);
    let me = std::process::id();
    let daemon = Daemon::start(Backend::Ours);
    let writer = open(&daemon.socket());
    let before = (descriptors(me), status(me, "Threads"));
    let handles: Vec<_> = (0..count).map(|_| open(&daemon.socket())).collect();
    for (n, handle) in handles.iter().enumerate() {
        handle.watch(&format!("/handle/{n}"), "t").unwrap();
        assert!(handle.descriptor() >= 0);
    }
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(handle.wait().unwrap(), format!("/handle/{n}"));
    }
    for n in 0..count {
        writer.write(&format!("/handle/{n}/x"), "").unwrap();
    }
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(handle.wait().unwrap(), format!("/handle/{n}/x"));
        assert_eq!(handle.check(), Err(Errno::EAGAIN));
    }
    drop(handles);
    assert_eq!((descriptors(me), status(me, "Threads")), before);
}

/// Lets the process open so many descriptors more, and no others, for the time of `work`.
fn with_descriptors<R>(left: usize, work: impl FnOnce() -> R) -> R {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Files fill the gaps, so that the limit counts.
    let mut fill: Vec<_> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
    let highest = fill.iter().map(AsRawFd::as_raw_fd).max().unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(highest).unwrap() + 1, hard).unwrap();
    assert_eq!(File::open("/dev/null").unwrap_err().raw_os_error(), Some(libc::EMFILE));
    fill.truncate(fill.len() - left);
    let result = work();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    result
}

fn described(handle: &Handle) -> Outcome<()> {
    if handle.descriptor() < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Each call that needs a descriptor says that there is none; the handle goes on, and the call works later.
#[test]
fn without_descriptors_calls_fail_and_handles_go_on() {
    if !is_alone("limits::without_descriptors_calls_fail_and_handles_go_on") {
        return;
    }
    let daemon = Daemon::start(Backend::Ours);
    let (none, told) = (Err(Errno::EMFILE), Ok(()));
    assert_eq!(with_descriptors(0, || open_with(&daemon.socket(), 0, &[]).map(drop)), none);
    // SAFETY: nothing is asked of the caller.
    let port = with_descriptors(0, || xenstore::capi::xs_suspend_evtchn_port(1));
    assert_eq!((port, Errno::last()), (-1, Errno::EMFILE));
    for left in 0..5 {
        let handle = open(&daemon.socket());
        let (watched, waits, read) =
            with_descriptors(left, || (handle.watch("/a", "t"), described(&handle), handle.read("/").map(drop)));
        // Two for the thread that receives, two for the pipe.
        assert_eq!(watched, if left < 2 { none } else { told }, "{left}");
        assert_eq!(waits, if left < 4 { none } else { told }, "{left}");
        assert_eq!(read, told, "{left}");
        if watched.is_err() {
            handle.watch("/a", "t").unwrap();
        }
        assert_eq!(handle.wait().unwrap(), "/a");
        assert_eq!(described(&handle), told);
    }
}
