//! Safe wrappers of the Xen libraries, one module a library: event channels, grants, foreign memory; the page that is
//! shared with a guest, and the xenstore ring in it.
//!
//! - A handle is closed once, after everything that was made through it is gone, and cannot be cloned.
//! - Memory that a guest writes is never borrowed: see [`SharedPage`].
//! - An [`Error`] says which call failed and keeps its errno.
//! - Nothing here logs, waits, or starts a thread.

pub mod domain_state;
mod error;
pub mod event_channel;
pub mod foreign_memory;
pub mod grant_table;
mod id;
pub mod process;
pub mod ring;
pub mod shared_page;
pub mod xen_files;

pub use crate::{
    error::Error,
    id::{DomId, GrantRef, Port},
    shared_page::{PAGE_SIZE, SharedPage},
};
