//! The border to C: a result and `errno`, whatever happens inside.

use libc::c_int;
use nix::errno::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use xenstore_client::Error;

/// What C programs are told of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Errno);

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Errno::from_raw(error.errno()))
    }
}

// SAFETY: this is the function of the system's thread library (pthread_setcancelstate(3)); both values are plain.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// The calling thread is not cancelled while this lives: no frame of ours could be unwound by that.
struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: `before` is a valid place for the old state.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: `before` is a state that the system gave us, `ours` a valid place.
        unsafe { pthread_setcancelstate(self.before, &raw mut ours) };
    }
}

/// Runs the body of a function that C calls. Success leaves `errno` as it was; a failure sets it and returns
/// `failure`, and so does a panic, with `EIO`.
pub(crate) fn guard<R>(failure: R, body: impl FnOnce() -> Result<R, Failure>) -> R {
    guarded(failure, Errno::last_raw(), body)
}

/// [`guard`] for functions that ask the daemon: their success sets `errno` to 0. The C library does that where it has no
/// thread, and Debian's `test-xenstore` takes an old `errno` for a new failure.
pub(crate) fn guard_request<R>(failure: R, body: impl FnOnce() -> Result<R, Failure>) -> R {
    guarded(failure, 0, body)
}

fn guarded<R>(failure: R, success: c_int, body: impl FnOnce() -> Result<R, Failure>) -> R {
    let _uncancelled = Uncancelled::new();
    let (result, errno) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => (result, success),
        Ok(Err(Failure(errno))) => (failure, errno as c_int),
        Err(panic) => {
            // Its own end may panic, too.
            let _ended = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            (failure, Errno::EIO as c_int)
        }
    };
    Errno::set_raw(errno);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::panic, reason = "this is what a panic becomes")]
    fn a_panic_becomes_eio() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = guard(-1, || panic!("inside"));
        std::panic::set_hook(before);
        assert_eq!((result, Errno::last()), (-1, Errno::EIO));
    }

    #[test]
    fn success_leaves_errno_and_failure_sets_it() {
        Errno::set(Errno::EXDEV);
        let success = guard(0, || {
            Errno::set(Errno::ENOTTY);
            Ok(1)
        });
        assert_eq!((success, Errno::last()), (1, Errno::EXDEV));
        assert_eq!(guard_request(0, || Ok(1)), 1);
        assert_eq!(Errno::last_raw(), 0);
        let failure = guard(0, || Err(Failure(Errno::ENOENT)));
        assert_eq!((failure, Errno::last()), (0, Errno::ENOENT));
    }
}
