//! Giving memory back to the host.
//!
//! The C library keeps what is freed for later, and a store that was large for a moment would stay large for ever. So a
//! while after much was freed, free pages go back to the kernel.

use std::time::Duration;

/// How long after much was freed the heap is looked at.
pub(crate) const CALM: Duration = Duration::from_secs(1);

/// Bytes freed that are worth a look.
pub(crate) const WORTH: usize = 4 << 20;

/// Gives free memory back to the kernel.
#[cfg(target_env = "gnu")]
pub(crate) fn trim() {
    // SAFETY: the call only gives up pages that no allocation uses; it may be made at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn trim() {}
