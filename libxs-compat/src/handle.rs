//! What is behind a `struct xs_handle`.

use crate::events::EventQueue;
use crate::guard::Failure;
use crate::pthread::{Pthread, PthreadMonitor};
use crate::{XS_OPEN_RECONNECT, XS_UNWATCH_FILTER};
use libc::{c_int, c_ulong};
use nix::errno::Errno;
use std::env;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use xenstore_client::Error;
use xenstore_client::link::{Link, Numbering, Opener, Setup};
use xenstore_client::place::{self, Full};
use xenstore_client::platform::Monitor;
use xenstore_client::transport::Transport;

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
    /// The descriptor of the connection, to be known without any lock.
    descriptor: Arc<AtomicI32>,
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
        let descriptor = Arc::new(AtomicI32::new(-1));
        let until = seconds("XENSTORE_WAIT").and_then(|patience| Instant::now().checked_add(patience));
        let full = if until.is_some() { Full::Fail } else { Full::Wait };
        let transport = loop {
            match connect(&descriptor, full) {
                Err(Error::Unreachable(_)) if until.is_some_and(|until| Instant::now() < until) => {
                    std::thread::sleep(PAUSE);
                }
                done => break done?,
            }
        };
        let wanted = env::var_os("XENSTORE_RECONNECT").is_some_and(|value| value == "1");
        let reconnects = wanted || flags & XS_OPEN_RECONNECT != 0;
        let opener = reconnects.then(|| {
            let descriptor = Arc::clone(&descriptor);
            Opener::new(move || connect(&descriptor, Full::Fail))
        });
        let setup = Setup { numbering: Numbering::None, opener };
        let handle = Box::into_raw(Box::new(Self {
            active: ActiveHandle { restrict_callback: restrict, entry: [null_mut(); 2] },
            link: Link::new(transport, EventQueue::default(), setup),
            filters: flags & XS_UNWATCH_FILTER != 0,
            features: PthreadMonitor::new(None),
            reconnects,
            timeout: seconds("XENSTORE_TIMEOUT"),
            descriptor,
        }));
        // SAFETY: the handle stays where it is until it is deregistered.
        unsafe { xentoolcore__register_active_handle(handle.cast()) };
        Ok(handle)
    }

    /// Ends a connection. In a child of the process that opened it, the parent's goes on.
    ///
    /// # Safety
    /// `handle` came from [`Self::open`] and is not used any more.
    pub(crate) unsafe fn close(handle: *mut Self) {
        // SAFETY: it was registered when it was opened.
        unsafe { xentoolcore__deregister_active_handle(handle.cast()) };
        // SAFETY: it was boxed when it was opened, and nobody uses it any more.
        let handle = unsafe { Box::from_raw(handle) };
        if !handle.link.is_own() && !handle.link.came_through_whole() {
            // A thread that stayed behind was changing what it shared with us. All that can be given back is the
            // descriptor, so that the connection does not outlive the parent.
            let descriptor = handle.descriptor();
            std::mem::forget(handle);
            // SAFETY: its owner was just forgotten.
            unsafe { libc::close(descriptor) };
        }
    }

    fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// When a request that is made now has to be answered.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }
}

/// The handle that a caller holds.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// `handle` is NULL, or came from [`xs_handle::open`] and is not closed while the result is used.
pub(crate) unsafe fn handle<'a>(handle: *mut xs_handle) -> Result<&'a xs_handle, Failure> {
    // SAFETY: that is the caller's promise.
    unsafe { handle.as_ref() }.ok_or(Failure(Errno::EINVAL))
}

/// Connects to the daemon and notes the descriptor.
fn connect(descriptor: &AtomicI32, full: Full) -> Result<Arc<dyn Transport>, Error> {
    let transport = place::open_first(&place::candidates(), full)?;
    descriptor.store(transport.as_fd().as_raw_fd(), Ordering::Relaxed);
    Ok(transport)
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
        }
        // SAFETY: the descriptor is the connection's, open until the handle is closed.
        Ok(unsafe { xentoolcore__restrict_by_dup2_null(handle.descriptor()) })
    })
}
