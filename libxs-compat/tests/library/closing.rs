//! A handle that is closed while threads are inside the library with it.

use crate::{Handle, Outcome, open};
use nix::errno::Errno;
use nix::unistd::{Pid, gettid};
use std::mem::ManuallyDrop;
use std::sync::mpsc::channel;
use std::thread;
use xenstore::capi::xs_close;
use xenstore_wire::Op;
use xenstored_tests::{Scripted, wait};

/// A call, made by a thread of its own.
type Call = fn(&Handle) -> Outcome<()>;

/// Whether a thread of this process sleeps.
fn sleeps(thread: Pid) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("the thread lives");
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

/// Has a thread make each call, none of which returns by itself, closes the handle, and returns what they were told.
///
/// A thread that sleeps after it has said that it is about to call is inside.
pub(crate) fn close_while_inside(handle: Handle, calls: &[Call]) -> Vec<Outcome<()>> {
    let handle = ManuallyDrop::new(handle);
    thread::scope(|scope| {
        let (about_to, told) = channel();
        let threads: Vec<_> = calls
            .iter()
            .map(|call| {
                let (handle, about_to) = (&handle, about_to.clone());
                scope.spawn(move || {
                    about_to.send(gettid()).unwrap();
                    call(handle)
                })
            })
            .collect();
        for thread in told.iter().take(calls.len()) {
            wait::until("a thread is inside", || sleeps(thread));
        }
        // SAFETY: those who use it are inside already.
        unsafe { xs_close(handle.0) };
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn calls_end_with_an_error_before_the_handle_does() {
    for watching in [false, true] {
        let server = Scripted::start();
        let socket = server.socket();
        let daemon = thread::spawn(move || {
            let mut line = server.accept();
            if watching {
                line.expect_ok(Op::Watch);
            }
            // Nothing is answered.
            let mut count = 0;
            while line.next_request().is_some() {
                count += 1;
            }
            count
        });
        let handle = open(&socket);
        if watching {
            handle.watch("/a", "t").unwrap();
        }
        let told = close_while_inside(
            handle,
            &[
                |handle| handle.wait().map(drop),
                |handle| handle.read("/a").map(drop),
                |handle| handle.wait().map(drop),
                |handle| handle.write("/a", ""),
                |handle| handle.unwatch("/a", "t"),
            ],
        );
        let (ended, refused) = (Err(Errno::EINVAL), Err(Errno::EBADF));
        assert_eq!(told, [ended, refused, ended, refused, refused]);
        assert_eq!(daemon.join().unwrap(), 1, "requests behind the first were not sent");
    }
}
