//! Children that come in the middle of everything.

use crate::alone::is_alone;
use crate::{Handle, open};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::mem::ManuallyDrop;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xenstore::capi::{xs_close, xs_daemon_destroy_postfork};
use xenstored_tests::process::descriptors;
use xenstored_tests::{Backend, Daemon, Scripted};

/// Forks, and lets the child do something and end with its number, or by SIGALRM when it takes too long.
fn child(work: impl FnOnce() -> u8) -> Pid {
    // SAFETY: the child calls the library and ends; the system's allocator works there.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            nix::unistd::alarm::set(20);
            let number = work();
            // SAFETY: this ends the process at once.
            unsafe { libc::_exit(number.into()) }
        }
    }
}

fn assert_ended(child: Pid, what: &str) {
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)), "{what}");
}

/// Whatever the library's thread and those of the program were doing, a child can let go, and its parent goes on.
#[test]
fn children_in_a_storm_let_go() {
    if !is_alone("forks::children_in_a_storm_let_go") {
        return;
    }
    let daemon = Daemon::start(Backend::Ours);
    let handle = open(&daemon.socket());
    handle.watch("/storm", "t").unwrap();
    assert!(handle.descriptor() >= 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..2 {
            let stop = &stop;
            let writer = open(&daemon.socket());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    writer.write(&format!("/storm/{n}"), "").unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                handle.read("/").unwrap();
            }
        });
        for round in 0..300 {
            handle.wait().unwrap();
            let raw = handle.0;
            let child = child(|| {
                let before = descriptors(std::process::id());
                let let_go = if round % 2 == 0 { xs_daemon_destroy_postfork } else { xs_close };
                // SAFETY: the child uses it no more.
                unsafe { let_go(raw) };
                // The connection, the two that the library's thread sleeps on, and the two of the pipe.
                u8::from(descriptors(std::process::id()) + 5 != before)
            });
            assert_ended(child, "a child that lets go keeps no descriptor");
        }
        stop.store(true, Ordering::Relaxed);
    });
    handle.read("/").unwrap();
}

/// The descriptors of a handle that a child lets go of are closed there, and none of others.
#[test]
fn a_child_that_lets_go_has_no_descriptor_left() {
    if !is_alone("forks::a_child_that_lets_go_has_no_descriptor_left") {
        return;
    }
    let descriptors = || descriptors(std::process::id());
    let daemon = Daemon::start(Backend::Ours);
    let before = descriptors();
    let handle = open(&daemon.socket());
    handle.watch("/a", "t").unwrap();
    handle.wait().unwrap();
    assert!(handle.descriptor() >= 0);
    let raw = handle.0;
    let child = child(|| {
        // SAFETY: the child uses it no more.
        unsafe { xs_daemon_destroy_postfork(raw) };
        u8::from(descriptors() != before)
    });
    assert_ended(child, "no descriptor is left");
    assert_eq!(handle.read("/a"), Err(Errno::ENOENT));
}

/// Whatever a thread has just opened, no program that another one starts gets it.
#[test]
fn programs_that_are_started_get_no_descriptor() {
    if !is_alone("forks::programs_that_are_started_get_no_descriptor") {
        return;
    }
    let list = || {
        let listed = Command::new("ls").arg("/proc/self/fd").stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    // What whoever started this process left open is no matter of ours.
    let before = list();
    let daemon = Daemon::start(Backend::Ours);
    let stop = AtomicBool::new(false);
    let lists = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let handle = open(&daemon.socket());
                    handle.watch("/a", "t").unwrap();
                    assert!(handle.descriptor() >= 0);
                }
            });
        }
        let lists: Vec<_> = (0..200).map(|_| list()).collect();
        stop.store(true, Ordering::Relaxed);
        lists
    });
    assert!(lists.iter().all(|list| *list == before), "{before}\n{lists:?}");
}

/// A child that goes on with its parent's handle gets an error for each call and takes none of the parent's answers.
#[test]
fn a_child_that_goes_on_gets_errors() {
    if !is_alone("forks::a_child_that_goes_on_gets_errors") {
        return;
    }
    let server = Scripted::start();
    let handle = open(&server.socket());
    let mut line = server.accept();
    thread::scope(|scope| {
        let reader = scope.spawn(|| handle.read("/parent"));
        let (header, _) = line.request();
        // A thread of the parent waits inside the library now.
        let raw = handle.0;
        let child = child(|| {
            let handle = ManuallyDrop::new(Handle(raw));
            let results = [
                handle.read("/child").map(drop),
                handle.write("/child", ""),
                handle.watch("/child", "t"),
                handle.wait().map(drop),
                handle.check().map(drop),
                handle.start().map(drop),
            ];
            u8::from(results != [Err(Errno::EBADF); 6] || handle.descriptor() != -1)
        });
        assert_ended(child, "each call fails with EBADF");
        line.reply(&header, b"value");
        assert_eq!(reader.join().unwrap().unwrap(), b"value");
    });
    drop(handle);
    assert_eq!(line.next_request(), None, "the child sent nothing");
}
