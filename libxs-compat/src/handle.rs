//! What is behind a `struct xs_handle`.

use crate::calls::Calls;
use crate::events::EventQueue;
use crate::guard::Failure;
use crate::pthread::{Pthread, PthreadMonitor};
use crate::{XS_OPEN_RECONNECT, XS_UNWATCH_FILTER};
use libc::{c_int, c_ulong};
use nix::errno::Errno;
use std::env;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xenstore_client::Error;
use xenstore_client::link::{Descriptors, Link, Numbering, Opener, Setup};
use xenstore_client::place::{self, Full};
use xenstore_client::platform::Monitor;

/// What xentoolcore keeps of each handle that can be confined (`xentoolcore_internal.h`).
#[repr(C)]
#[derive(Debug)]
struct ActiveHandle {
    restrict_callback: extern "C" fn(*mut Self, u16) -> c_int,
    entry: [*mut Self; 2],
}

// SAFETY: these are the functions of libxentoolcore.so.1, which every Xen host has.
#[link(name = "xentoolcore")]
unsafe extern "C" {
    fn xentoolcore__register_active_handle(handle: *mut ActiveHandle);
    fn xentoolcore__deregister_active_handle(handle: *mut ActiveHandle);
    fn xentoolcore__restrict_by_dup2_null(fd: c_int) -> c_int;
}

/// A connection to the store, as C programs hold it.
///
/// It is usable in the process that opened it. In a child, every function fails with `EBADF` and takes nothing from the
/// parent.
#[repr(C)]
pub struct xs_handle {
    /// In front, so that its address is the handle's.
    active: ActiveHandle,
    pub(crate) link: Link<Pthread, EventQueue>,
    /// Whether `xs_unwatch` drops events.
    pub(crate) filters: bool,
    /// What the daemon offers, once it was asked; not kept where another daemon may follow.
    pub(crate) features: PthreadMonitor<Option<u32>>,
    pub(crate) reconnects: bool,
    timeout: Option<Duration>,
    calls: Calls,
}

impl std::fmt::Debug for xs_handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("xs_handle").field("link", &self.link).finish_non_exhaustive()
    }
}

/// Pause between two attempts to reach a daemon that is yet to start.
const PAUSE: Duration = Duration::from_millis(20);

impl xs_handle {
    /// Opens a connection as the environment says.
    pub(crate) fn open(flags: c_ulong) -> Result<*mut Self, Failure> {
        let until = seconds("XENSTORE_WAIT").and_then(|patience| Instant::now().checked_add(patience));
        let full = if until.is_some() { Full::Fail } else { Full::Wait };
        let transport = loop {
            match place::open_first(&place::candidates(), full) {
                Err(Error::Unreachable(_)) if until.is_some_and(|until| Instant::now() < until) => {
                    std::thread::sleep(PAUSE);
                }
                done => break done?,
            }
        };
        let wanted = env::var_os("XENSTORE_RECONNECT").is_some_and(|value| value == "1");
        let reconnects = wanted || flags & XS_OPEN_RECONNECT != 0;
        let opener = reconnects.then(|| {
            // Where it was: the environment may be another by then.
            let places = place::candidates();
            Opener::new(move || place::open_first(&places, Full::Fail))
        });
        let descriptors = Arc::<Descriptors>::default();
        let events = EventQueue::new(Arc::clone(&descriptors));
        let setup = Setup { descriptors, numbering: Numbering::None, opener };
        let handle = Box::into_raw(Box::new(Self {
            active: ActiveHandle { restrict_callback: restrict, entry: [null_mut(); 2] },
            link: Link::new(transport, events, setup),
            filters: flags & XS_UNWATCH_FILTER != 0,
            features: PthreadMonitor::new(None),
            reconnects,
            timeout: seconds("XENSTORE_TIMEOUT"),
            calls: Calls::new(),
        }));
        // SAFETY: the handle stays where it is until it is deregistered.
        unsafe { xentoolcore__register_active_handle(handle.cast()) };
        Ok(handle)
    }

    /// Ends a connection; calls that are inside end with an error first. In a child of the process that opened it, the
    /// parent's goes on.
    ///
    /// # Safety
    /// `handle` came from [`Self::open`], and no call with it begins any more.
    pub(crate) unsafe fn close(handle: *mut Self) {
        // SAFETY: it was registered when it was opened.
        unsafe { xentoolcore__deregister_active_handle(handle.cast()) };
        // SAFETY: it was boxed when it was opened, and is freed below.
        let inside = unsafe { &*handle };
        if inside.link.is_own() {
            inside.calls.close(|| inside.link.give_up());
        }
        // SAFETY: it was boxed when it was opened, and nobody uses it any more.
        drop(unsafe { Box::from_raw(handle) });
    }

    /// When a request that is made now has to be answered.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }
}

/// A handle for the time of one call.
pub(crate) struct InUse<'a>(&'a xs_handle);

impl Deref for InUse<'_> {
    type Target = xs_handle;

    fn deref(&self) -> &xs_handle {
        self.0
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.calls.leave();
    }
}

/// The handle that a caller holds.
///
/// # Errors
/// `EINVAL` for NULL, `EBADF` for one that is just being closed.
///
/// # Safety
/// `handle` is NULL, or came from [`xs_handle::open`] and is not closed yet.
pub(crate) unsafe fn handle<'a>(handle: *mut xs_handle) -> Result<InUse<'a>, Failure> {
    // SAFETY: that is the caller's promise.
    let handle = unsafe { handle.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
    if handle.calls.enter() { Ok(InUse(handle)) } else { Err(Failure(Errno::EBADF)) }
}

/// A time of whole or broken seconds from the environment.
fn seconds(variable: &str) -> Option<Duration> {
    let value = env::var(variable).ok()?;
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

/// Takes from this process what the handle could still do, as `xentoolcore_restrict_all` asks.
extern "C" fn restrict(active: *mut ActiveHandle, _domid: u16) -> c_int {
    // SAFETY: what was registered is the front of a handle, which is not freed before it is deregistered, and xentoolcore
    // holds its lock meanwhile.
    let handle = unsafe { &*active.cast::<xs_handle>() };
    crate::guard::guard(-1, || {
        if handle.link.is_own() {
            // Whoever waits returns, and nothing of it is used any more.
            handle.link.give_up();
            let transport = handle.link.transport();
            // SAFETY: the descriptor is the connection's, and open while we hold it.
            return Ok(unsafe { xentoolcore__restrict_by_dup2_null(transport.as_fd().as_raw_fd()) });
        }
        // In a child, what a lock guards is out of reach, and none of it is of use.
        let null = |fd| {
            // SAFETY: the descriptor is the handle's, which is not freed yet.
            unsafe { xentoolcore__restrict_by_dup2_null(fd) }
        };
        Ok(handle.link.descriptors().each().map(null).find(|&result| result != 0).unwrap_or(0))
    })
}
