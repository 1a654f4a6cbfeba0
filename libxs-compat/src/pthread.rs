//! Locks and threads of the system's own library, which the tools for C programs can follow.

use libc::{c_int, c_void, pthread_cond_t, pthread_mutex_t, pthread_t};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use xenstore_client::platform::{Monitor, Platform};

/// The system's thread library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pthread;

/// A mutex and a condition variable, which must not move once they are used.
struct Lock {
    mutex: UnsafeCell<pthread_mutex_t>,
    changed: UnsafeCell<pthread_cond_t>,
}

/// Data behind a [`Lock`].
///
/// Neither part is destroyed at the end. They hold nothing but their own memory, and in a child of a fork destroying
/// could wait for threads that are not there.
pub(crate) struct PthreadMonitor<T> {
    lock: Box<Lock>,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached by one thread at a time, the one that holds the mutex.
unsafe impl<T: Send> Send for PthreadMonitor<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PthreadMonitor<T> {}

/// The data, while the mutex is held.
pub(crate) struct PthreadGuard<'a, T>(&'a PthreadMonitor<T>);

impl<T> Deref for PthreadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for PthreadGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the mutex, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for PthreadGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.lock.mutex.get()) };
    }
}

impl<T> Monitor<T> for PthreadMonitor<T> {
    type Guard<'a>
        = PthreadGuard<'a, T>
    where
        T: 'a;

    fn new(data: T) -> Self {
        let lock = Box::new(Lock {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            changed: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
        });
        let mut attributes = MaybeUninit::<libc::pthread_condattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are a valid place for themselves.
        unsafe { libc::pthread_condattr_init(attributes) };
        // SAFETY: the attributes were just initialised.
        unsafe { libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC) };
        // SAFETY: nobody uses the condition variable yet.
        unsafe { libc::pthread_cond_init(lock.changed.get(), attributes) };
        // SAFETY: the attributes are needed no more.
        unsafe { libc::pthread_condattr_destroy(attributes) };
        Self { lock, data: UnsafeCell::new(data) }
    }

    fn lock(&self) -> Self::Guard<'_> {
        // SAFETY: the mutex is initialised and stays where it is.
        unsafe { libc::pthread_mutex_lock(self.lock.mutex.get()) };
        PthreadGuard(self)
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        // SAFETY: as in `lock`.
        let taken = unsafe { libc::pthread_mutex_trylock(self.lock.mutex.get()) };
        (taken == 0).then_some(PthreadGuard(self))
    }

    fn wait<'a>(&'a self, guard: Self::Guard<'a>, until: Option<Instant>) -> Self::Guard<'a> {
        let (changed, mutex) = (self.lock.changed.get(), self.lock.mutex.get());
        match until {
            // SAFETY: this thread holds the mutex, as the guard shows.
            None => unsafe { libc::pthread_cond_wait(changed, mutex) },
            Some(until) => {
                let end = monotonic(until);
                // SAFETY: as above; the time is valid.
                unsafe { libc::pthread_cond_timedwait(changed, mutex, &raw const end) }
            }
        };
        guard
    }

    fn notify_all(&self) {
        // SAFETY: the condition variable is initialised and stays where it is.
        unsafe { libc::pthread_cond_broadcast(self.lock.changed.get()) };
    }
}

/// A moment as the system's monotonic clock tells it.
fn monotonic(moment: Instant) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let left = moment.saturating_duration_since(Instant::now());
    let nanoseconds = now.tv_nsec.saturating_add(left.subsec_nanos().into());
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    let whole = seconds.saturating_add(nanoseconds.div_euclid(1_000_000_000));
    now.tv_sec = now.tv_sec.saturating_add(whole);
    now.tv_nsec = nanoseconds.rem_euclid(1_000_000_000);
    now
}

/// What a thread does.
type Body = Box<dyn Fn() + Send + Sync>;

/// A thread that was started and is yet to be joined. It borrows its body from here, so that in a child of a fork,
/// where there is no such thread, the body and what it holds can be freed.
pub(crate) struct Thread {
    id: pthread_t,
    body: Box<Body>,
}

/// Bytes of stack on top of what the system and the program's thread-local storage need.
const STACK_SIZE: usize = 48 * 1024;

/// The least stack that a thread can have.
fn least_stack(attributes: *mut libc::pthread_attr_t) -> usize {
    /// Tells the least stack with the program's thread-local storage, which lies on it.
    const NAME: &CStr = c"__pthread_get_minstack";
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    let least = if found.is_null() {
        libc::PTHREAD_STACK_MIN
    } else {
        // SAFETY: the system's library gives this name to a function of this type, as the C library relies on, too.
        let tell: extern "C" fn(*mut libc::pthread_attr_t) -> usize = unsafe { std::mem::transmute(found) };
        tell(attributes)
    };
    least.max(libc::PTHREAD_STACK_MIN)
}

extern "C" fn run(body: *mut c_void) -> *mut c_void {
    // SAFETY: the body lives until the thread was joined.
    let body = unsafe { &*body.cast::<Body>() };
    // A panic ends the thread alone; it has been told of on standard error.
    let _ended = catch_unwind(AssertUnwindSafe(body));
    std::ptr::null_mut()
}

impl Platform for Pthread {
    type Monitor<T: Send> = PthreadMonitor<T>;
    type Thread = Thread;

    fn start_thread(body: impl Fn() + Send + Sync + 'static) -> io::Result<Thread> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are a valid place for themselves.
        check(unsafe { libc::pthread_attr_init(attributes) })?;
        let size = least_stack(attributes).saturating_add(STACK_SIZE);
        // SAFETY: the attributes are initialised.
        let sized = unsafe { libc::pthread_attr_setstacksize(attributes, size) };
        let started = check(sized).and_then(|()| {
            let body: Box<Body> = Box::new(Box::new(body));
            let argument = (&raw const *body).cast_mut().cast();
            let mut id = 0;
            // A thread inherits the mask of the one that starts it.
            let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
            // SAFETY: all pointers are valid, and the body stays where it is until the thread was joined.
            let created = unsafe { libc::pthread_create(&raw mut id, attributes, run, argument) };
            before.thread_set_mask()?;
            check(created).map(|()| Thread { id, body })
        });
        // SAFETY: the attributes are needed no more.
        unsafe { libc::pthread_attr_destroy(attributes) };
        started
    }

    fn join(thread: Thread) {
        // SAFETY: this is always possible.
        if unsafe { libc::pthread_self() } == thread.id {
            // A thread that would join itself goes on to its end, with its body.
            std::mem::forget(thread.body);
            // SAFETY: the thread was started here and is given up once.
            unsafe { libc::pthread_detach(thread.id) };
        } else {
            // SAFETY: the thread was started here and is joined once, since the handle is given up.
            unsafe { libc::pthread_join(thread.id, std::ptr::null_mut()) };
        }
    }

    fn forget(_: Thread) -> bool {
        true
    }

    fn process() -> u32 {
        FORKS.load(Ordering::Relaxed)
    }
}

/// The outcome of a call that returns the number of its error.
fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// How many forks lie between this process and the one that loaded the library.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Called by the loader, before any thread of the program can be in a call.
extern "C" fn on_load() {
    // SAFETY: the function does nothing that would be wrong in a child. Should it not be registered for lack of memory,
    // children are not told apart, as in the C library.
    unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
}

// SAFETY: the loader calls what stands in this section, once, as a function of this type.
#[unsafe(link_section = ".init_array")]
#[used]
static ON_LOAD: extern "C" fn() = on_load;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_thread_runs_and_is_joined() {
        let done = Arc::new(AtomicU32::new(0));
        let thread = Pthread::start_thread({
            let done = Arc::clone(&done);
            move || {
                let mask = SigSet::thread_get_mask().unwrap();
                done.store(u32::from(mask.contains(nix::sys::signal::SIGALRM)), Ordering::Relaxed);
            }
        });
        Pthread::join(thread.unwrap());
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn waiting_ends_by_a_notice_and_by_the_clock() {
        let monitor = Arc::new(PthreadMonitor::new(0));
        let thread = Pthread::start_thread({
            let monitor = Arc::clone(&monitor);
            move || {
                *monitor.lock() += 1;
                monitor.notify_all();
            }
        });
        let mut guard = monitor.lock();
        while *guard == 0 {
            guard = monitor.wait(guard, None);
        }
        assert!(monitor.try_lock().is_none());
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            guard = monitor.wait(guard, Some(end));
        }
        drop(guard);
        assert!(monitor.try_lock().is_some());
        Pthread::join(thread.unwrap());
    }
}
