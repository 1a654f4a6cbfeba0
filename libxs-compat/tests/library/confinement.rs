//! `xentoolcore_restrict_all`: a program gives up what its open handles could do.

use crate::alone::is_alone;
use crate::{is_readable, open};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::thread;
use xenstored_tests::{Backend, Daemon};

// SAFETY: this is the function of `xentoolcore.h`.
#[link(name = "xentoolcore")]
unsafe extern "C" {
    fn xentoolcore_restrict_all(domid: u16) -> libc::c_int;
}

fn restrict_all() {
    // SAFETY: any domain may be named.
    assert_eq!(unsafe { xentoolcore_restrict_all(5) }, 0, "{}", Errno::last());
}

#[test]
fn handles_are_dead_and_nothing_else_is() {
    if !is_alone("confinement::handles_are_dead_and_nothing_else_is") {
        return;
    }
    let daemon = Daemon::start(Backend::Ours);
    let (idle, watching, closed) = (open(&daemon.socket()), open(&daemon.socket()), open(&daemon.socket()));
    watching.write("/a", "1").unwrap();
    watching.watch("/a", "t").unwrap();
    assert_eq!(watching.wait().unwrap(), "/a");
    let descriptor = watching.descriptor();
    let mut stranger = daemon.connect();
    drop(closed);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.wait());
        restrict_all();
        assert_eq!(waiting.join().unwrap(), Err(Errno::EINVAL), "whoever waits is told");
    });
    for handle in [&idle, &watching] {
        assert_eq!(handle.read("/a"), Err(Errno::EBADF));
        assert_eq!(handle.write("/a", "2"), Err(Errno::EBADF));
        assert_eq!(handle.watch("/a", "u"), Err(Errno::EBADF));
    }
    assert!(is_readable(descriptor, 0));
    assert_eq!(watching.check(), Err(Errno::EINVAL));
    assert_eq!(stranger.read("/a"), Ok(b"1".to_vec()), "descriptor {}", stranger.stream().as_raw_fd());
    let later = open(&daemon.socket());
    assert_eq!(later.read("/a").unwrap(), b"1", "what is opened later is not confined");
    drop((idle, watching));
    assert_eq!(stranger.read("/a"), Ok(b"1".to_vec()));
}

#[test]
fn handles_may_be_closed_meanwhile() {
    if !is_alone("confinement::handles_may_be_closed_meanwhile") {
        return;
    }
    let daemon = Daemon::start(Backend::Ours);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let handle = open(&daemon.socket());
                    // It may be confined by now.
                    let _watched = handle.watch("/a", "t");
                    drop(handle);
                }
            });
        }
        for _ in 0..200 {
            restrict_all();
        }
    });
    assert_eq!(open(&daemon.socket()).read("/").unwrap(), b"");
}
