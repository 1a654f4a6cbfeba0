//! Watches.

use super::feature;
use crate::events::Event;
use crate::guard::{Failure, guard, guard_request};
use crate::handle::{InUse, handle, xs_handle};
use crate::text;
use libc::{c_char, c_int, c_uint};
use nix::errno::Errno;
use std::ptr::null_mut;
use xenstore_client::{Error, Features};

/// A watch's path and token, without their NULs.
struct Names<'a> {
    handle: InUse<'a>,
    path: &'a [u8],
    token: &'a [u8],
}

impl Names<'_> {
    /// # Safety
    /// `h` is a handle, `path` and `token` are strings; each may be NULL.
    unsafe fn new(h: *mut xs_handle, path: *const c_char, token: *const c_char) -> Result<Self, Failure> {
        // SAFETY: both are what the caller promises.
        let (handle, path) = unsafe { text::subject(h, path) }?;
        // SAFETY: as above.
        let token = unsafe { text::string(token) }?;
        let bare = |string: &'static [u8]| string.strip_suffix(b"\0").unwrap_or(string);
        Ok(Self { handle, path: bare(path), token: bare(token) })
    }

    fn watch(&self, depth: Option<c_uint>) -> Result<bool, Failure> {
        let depth = depth.map(|depth| depth.to_string());
        let depth = depth.as_ref().map(String::as_bytes);
        Ok(self.handle.link.watch(self.path, self.token, depth, self.handle.until()).map(|()| true)?)
    }

    fn has_depth(&self) -> Result<bool, Failure> {
        Ok(Features(feature::supported(&self.handle)?).contains(Features::WATCH_DEPTH))
    }
}

/// Watches a node and all below it. The first event comes at once.
///
/// # Safety
/// `h` is a handle, `path` and `token` are strings; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_watch(h: *mut xs_handle, path: *const c_char, token: *const c_char) -> bool {
    // SAFETY: the caller promises them.
    guard_request(false, || unsafe { Names::new(h, path, token) }?.watch(None))
}

/// Watches a node and so many levels below it. `ENOSYS` where the daemon does not offer that.
///
/// # Safety
/// `h` is a handle, `path` and `token` are strings; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_watch_depth(
    h: *mut xs_handle,
    path: *const c_char,
    token: *const c_char,
    depth: c_uint,
) -> bool {
    guard_request(false, || {
        // SAFETY: the caller promises them.
        let names = unsafe { Names::new(h, path, token) }?;
        if names.has_depth()? { names.watch(Some(depth)) } else { Err(Failure(Errno::ENOSYS)) }
    })
}

/// Watches a node and so many levels below it, or all below it where the daemon does not offer less.
///
/// # Safety
/// `h` is a handle, `path` and `token` are strings; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_watch_try_depth(
    h: *mut xs_handle,
    path: *const c_char,
    token: *const c_char,
    depth: c_uint,
) -> bool {
    guard_request(false, || {
        // SAFETY: the caller promises them.
        let names = unsafe { Names::new(h, path, token) }?;
        if names.has_depth().unwrap_or(false) && names.watch(Some(depth)).is_ok() {
            return Ok(true);
        }
        names.watch(None)
    })
}

/// Returns a descriptor that can be polled for reading while an event waits, or when none will come any more; -1 on
/// failure. Its content is the library's.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_fileno(h: *mut xs_handle) -> c_int {
    guard(-1, || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        Ok(handle.link.with_sink(|events| events.descriptor())??)
    })
}

/// Returns the next event, path and token, if one waits. `EAGAIN` if none does, `EINVAL` if none will.
///
/// # Safety
/// `h` is a handle or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_check_watch(h: *mut xs_handle) -> *mut *mut c_char {
    guard(null_mut(), || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        match handle.link.look_for(|events| events.take()) {
            Ok(Some(event)) => Ok(event.block.into_raw().cast()),
            Ok(None) => Err(Failure(Errno::EAGAIN)),
            Err(error) => Err(ended(error)),
        }
    })
}

/// Waits for the next event and returns its strings, path and token first; `num` is how many. `EINVAL` if none will come
/// any more.
///
/// # Safety
/// `h` is a handle or NULL; `num` is NULL or a place for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_read_watch(h: *mut xs_handle, num: *mut c_uint) -> *mut *mut c_char {
    guard(null_mut(), || {
        // SAFETY: that is the caller's promise.
        let handle = unsafe { handle(h)? };
        let Event { block, strings, .. } = handle.link.wait_for(None, |events| events.take()).map_err(ended)?;
        // SAFETY: the caller promises the place.
        unsafe { text::tell(num, text::count(strings)) };
        Ok(block.into_raw().cast())
    })
}

/// What those who wait for events are told when none will come.
fn ended(error: Error) -> Failure {
    match error {
        Error::Closed => Failure(Errno::EINVAL),
        error => error.into(),
    }
}

/// Removes a watch. On a handle with `XS_UNWATCH_FILTER` its events are not returned any more.
///
/// # Safety
/// `h` is a handle, `path` and `token` are strings; each may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xs_unwatch(h: *mut xs_handle, path: *const c_char, token: *const c_char) -> bool {
    guard_request(false, || {
        // SAFETY: the caller promises them.
        let names = unsafe { Names::new(h, path, token) }?;
        let link = &names.handle.link;
        let removed = link.unwatch(names.path, names.token, names.handle.until());
        if names.handle.filters {
            link.with_sink(|events| events.drop_watch(names.path, names.token))?;
        }
        Ok(removed.map(|()| true)?)
    })
}
