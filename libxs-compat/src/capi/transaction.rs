//! Transactions.

use crate::guard::{Failure, guard_request};
use crate::handle::{handle, xs_handle};
use crate::{XBT_NULL, xs_transaction_t};

/// Opens a transaction; `XBT_NULL` on failure.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_transaction_start(h: *mut xs_handle) -> xs_transaction_t {
    guard_request(XBT_NULL, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        Ok(handle.link.start_transaction(handle.until())?)
    })
}

/// Commits a transaction, or gives it up if `abort`. False with `EAGAIN` means that others were in the way, and that
/// nothing was changed.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_transaction_end(h: *mut xs_handle, t: xs_transaction_t, abort: bool) -> bool {
    guard_request(false, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        handle.link.end_transaction(t, !abort, handle.until()).map(|()| true).map_err(Failure::from)
    })
}
