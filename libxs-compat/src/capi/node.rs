//! Nodes.

use super::{done, string};
use crate::block::Block;
use crate::guard::{Failure, guard_request};
use crate::handle::xs_handle;
use crate::{text, xs_transaction_t};
use libc::{c_char, c_uint, c_void};
use std::ptr::null_mut;
use xenstore_client::{Error, directory};
use xenstore_wire::Op;

/// Returns the names of a node's children, however many, as pointers to strings; `num` is how many. The order is the
/// daemon's.
///
/// # Safety
/// `h` is a handle, `path` a string, `num` a place for the count; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_directory(
    h: *mut xs_handle,
    t: xs_transaction_t,
    path: *const c_char,
    num: *mut c_uint,
) -> *mut *mut c_char {
    guard_request(null_mut(), || {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let (block, count) = directory::read(&Lists { handle: &handle, t }, path, Block::of_strings)??;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(num, text::count(count)) };
        Ok(block.into_raw().cast())
    })
}

/// How long lists are read for a caller who may be in a transaction.
struct Lists<'a> {
    handle: &'a xs_handle,
    t: xs_transaction_t,
}

impl directory::Requests for Lists<'_> {
    type Transaction = u32;

    fn request<R>(
        &self,
        op: Op,
        transaction: Option<&u32>,
        parts: &[&[u8]],
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        self.handle.link.request(op, transaction.copied().unwrap_or(self.t), parts, self.handle.until(), take)
    }

    fn request_all(
        &self,
        op: Op,
        transaction: Option<&u32>,
        payloads: &[Vec<u8>],
        take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let tx_id = transaction.copied().unwrap_or(self.t);
        self.handle.link.request_all(op, tx_id, payloads, self.handle.until(), take)
    }

    fn takes_batches(&self) -> bool {
        self.handle.link.takes_batches()
    }

    fn start(&self) -> Option<u32> {
        if self.t == 0 { self.handle.link.start_transaction(self.handle.until()).ok() } else { None }
    }

    fn end(&self, transaction: u32) {
        // Nothing was changed in it; if it is gone, so much the better.
        let _ended = self.handle.link.end_transaction(transaction, false, self.handle.until());
    }
}

/// Returns a node's value with a NUL behind it; `len` is its length without that NUL, and may be NULL.
///
/// # Safety
/// `h` is a handle, `path` a string, `len` a place for the length; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_read(
    h: *mut xs_handle,
    t: xs_transaction_t,
    path: *const c_char,
    len: *mut c_uint,
) -> *mut c_void {
    guard_request(null_mut(), || {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        let (value, length) = string(&handle, Op::Read, t, &[path])?;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(len, text::count(length)) };
        Ok(value.into_raw())
    })
}

/// Sets a node's value, making the node if it is missing.
///
/// # Safety
/// `h` is a handle, `path` a string, `data` is `len` bytes; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_write(
    h: *mut xs_handle,
    t: xs_transaction_t,
    path: *const c_char,
    data: *const c_void,
    len: c_uint,
) -> bool {
    guard_request(false, || {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        // SAFETY: as above.
        let value = unsafe { text::bytes(data, len) }?;
        done(&handle, Op::Write, t, &[path, value])
    })
}

/// Makes a node if it is missing.
///
/// # Safety
/// `h` is a handle, `path` a string; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_mkdir(h: *mut xs_handle, t: xs_transaction_t, path: *const c_char) -> bool {
    // SAFETY: the caller promises both.
    guard_request(false, || unsafe { with_path(h, t, path, Op::Mkdir) })
}

/// Removes a node and all below it; true if it was missing already while its parent is there.
///
/// # Safety
/// `h` is a handle, `path` a string; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_rm(h: *mut xs_handle, t: xs_transaction_t, path: *const c_char) -> bool {
    // SAFETY: the caller promises both.
    guard_request(false, || unsafe { with_path(h, t, path, Op::Rm) })
}

/// A request whose payload is a path.
///
/// # Safety
/// `h` is a handle, `path` a string; each may be NULL.
unsafe fn with_path(h: *mut xs_handle, t: xs_transaction_t, path: *const c_char, op: Op) -> Result<bool, Failure> {
    // SAFETY: both are what the caller promises.
    let (handle, path) = unsafe { text::subject(h, path) }?;
    done(&handle, op, t, &[path])
}
