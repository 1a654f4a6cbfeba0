//! What a [`crate::link::Link`] needs of threads, so that it can be carried by other locks than Rust's own.
//!
//! The C library brings locks of the system's thread library: tools that look for races in C programs follow those.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::ops::DerefMut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

/// A lock with its data, and a way to wait for a change of them.
pub trait Monitor<T>: Sized {
    /// The data, while the lock is held.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// A lock that nobody holds.
    fn new(data: T) -> Self;

    /// Takes the lock.
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes the lock if nobody holds it.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;

    /// Lets go of the lock until somebody notifies, `until` has passed, or for no reason; then takes it again.
    fn wait<'a>(&'a self, guard: Self::Guard<'a>, until: Option<Instant>) -> Self::Guard<'a>;

    /// Wakes all that wait.
    fn notify_all(&self);
}

/// Locks, threads and the identity of the process.
pub trait Platform: Sized + 'static {
    /// The lock.
    type Monitor<T: Send>: Monitor<T> + Send + Sync;

    /// A thread that has been started.
    type Thread: Send;

    /// Starts a thread that no signal is ever delivered to, with a stack of a few pages.
    ///
    /// # Errors
    /// Those of the system.
    fn start_thread(body: impl Fn() + Send + Sync + 'static) -> io::Result<Self::Thread>;

    /// Waits for the end of a thread; when called by that very thread, lets it run to its end by itself.
    fn join(thread: Self::Thread);

    /// Forgets a thread that did not come along through a fork, and says whether nothing is left that it used.
    fn forget(thread: Self::Thread) -> bool;

    /// A number that differs between a process and the children that it forks.
    fn process() -> u32;
}

/// Rust's own locks and threads.
#[derive(Clone, Copy, Debug)]
pub struct Std;

/// A mutex and a condition variable of the standard library.
#[derive(Debug)]
pub struct StdMonitor<T> {
    data: Mutex<T>,
    changed: Condvar,
}

/// Bytes of stack of the background reader. It keeps its buffers elsewhere; thread-local storage comes on top.
const STACK_SIZE: usize = 64 * 1024;

impl<T> Monitor<T> for StdMonitor<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(data: T) -> Self {
        Self { data: Mutex::new(data), changed: Condvar::new() }
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        match self.data.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn wait<'a>(&'a self, guard: Self::Guard<'a>, until: Option<Instant>) -> Self::Guard<'a> {
        match until {
            None => self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    fn notify_all(&self) {
        self.changed.notify_all();
    }
}

impl Platform for Std {
    type Monitor<T: Send> = StdMonitor<T>;
    type Thread = thread::JoinHandle<()>;

    fn start_thread(body: impl Fn() + Send + Sync + 'static) -> io::Result<Self::Thread> {
        // A thread inherits the mask of the one that starts it.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let started = thread::Builder::new().name("xenstore".into()).stack_size(STACK_SIZE).spawn(body);
        before.thread_set_mask()?;
        started
    }

    fn join(thread: Self::Thread) {
        if thread.thread().id() != thread::current().id() {
            // It ended, however it ended.
            let _ended = thread.join();
        }
    }

    fn forget(thread: Self::Thread) -> bool {
        // What it used lies on its stack.
        std::mem::forget(thread);
        false
    }

    fn process() -> u32 {
        std::process::id()
    }
}
