//! Sleeping on a word of shared memory, across processes.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `seen`, until it is woken or `timeout` has passed. May return early for no reason.
pub(crate) fn wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word and the time outlive the call, which writes to neither; the unused arguments are null.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            ptr::from_ref(&limit),
            ptr::null::<u32>(),
            0u32,
        );
    }
}

/// Wakes all who sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel uses the address of the word only as a name.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            0u32,
        );
    }
}
