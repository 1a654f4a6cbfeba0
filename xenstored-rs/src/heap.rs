//! Giving memory back to the host.
//!
//! The C library keeps what is freed for later, and a store that was large for a moment would stay large for ever. So
//! once things have calmed down, free pages go back to the kernel.

use std::time::Duration;

/// How long after something was served the heap is looked at.
pub(crate) const CALM: Duration = Duration::from_secs(1);

/// Free bytes in the heap that are worth giving back.
#[cfg(target_env = "gnu")]
const WORTH: usize = 4 << 20;

/// Gives free memory back to the kernel, if there is much of it.
#[cfg(target_env = "gnu")]
pub(crate) fn trim() {
    // SAFETY: the call only reads the allocator's own figures.
    let free = unsafe { libc::mallinfo2() }.fordblks;
    if free >= WORTH {
        // SAFETY: the call frees pages that no allocation uses; it may be made at any time.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Other allocators give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn trim() {}
