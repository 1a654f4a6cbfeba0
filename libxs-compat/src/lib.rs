//! The C library `libxenstore.so.4`, with its functions, symbol versions and behaviour, on top of `xenstore-client`.
//!
//! Every function that C programs call stands in one of the files of `capi`, under its C name. Each checks its
//! arguments, makes one call and returns; `guard.rs` sees to it that nothing but a result and `errno` comes out.
//!
//! - [`capi`]: the functions
//! - `handle`: what is behind a `struct xs_handle`, and its rules for forks and confinement
//! - `events`: watch events that wait for the program, and the pipe that announces them
//! - `block`: memory that the caller frees
//! - `pthread`: locks and threads of the system's own library
//!
//! What differs from the C library on purpose stands in `docs/libxenstore.md`.

#![expect(non_camel_case_types, reason = "C programs know these names")]

mod block;
mod calls;
pub mod capi;
mod events;
mod guard;
mod handle;
mod nul;
mod pthread;
mod text;

pub use handle::xs_handle;

/// A transaction; [`XBT_NULL`] is none (`xenstore.h`).
pub type xs_transaction_t = u32;

/// No transaction.
pub const XBT_NULL: xs_transaction_t = 0;

/// Open flag: after `xs_unwatch`, events that were waiting for the watch are not returned any more.
pub const XS_UNWATCH_FILTER: libc::c_ulong = 1 << 2;

/// Open flag of this library alone: when the daemon goes away, connect to the next one and register the watches there.
/// The environment variable `XENSTORE_RECONNECT=1` does the same for programs that do not know of it.
pub const XS_OPEN_RECONNECT: libc::c_ulong = 1 << 16;

/// One entry of a node's permissions (`xenstore_lib.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct xs_permissions {
    /// The domain.
    pub id: libc::c_uint,
    /// What it may do: bits of `XS_PERM_*`.
    pub perms: libc::c_uint,
}
