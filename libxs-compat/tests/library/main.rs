//! The library's functions as a program calls them, where that needs more than a program: daemons that hang or come
//! back, devices, processes that fork or give up their rights. `tests/abi` has the rest, beside the C library.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may end by panicking"
)]

mod alone;
mod closing;
mod confinement;
mod cuts;
mod device;
mod events;
mod forks;
mod limits;
mod patience;
mod reader;
mod reconnecting;

use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use xenstore::capi::{
    xs_check_watch, xs_close, xs_fileno, xs_open, xs_read, xs_read_watch, xs_transaction_end, xs_transaction_start,
    xs_unwatch, xs_watch, xs_write,
};
use xenstore::xs_handle;

/// A handle of the library, closed at its end. The functions allow any thread to use it.
struct Handle(*mut xs_handle);

// SAFETY: that is what the library promises.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The value, or the errno of a failure.
type Outcome<T> = Result<T, Errno>;

fn string(text: &str) -> CString {
    CString::new(text).expect("no NUL in it")
}

/// Opens a handle to the daemon at `socket`, with these variables of the environment and no others that count.
fn open_with(socket: &Path, flags: libc::c_ulong, variables: &[(&str, &str)]) -> Outcome<Handle> {
    static ENVIRONMENT: Mutex<()> = Mutex::new(());
    let _alone = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let set = |name: &str, value: Option<&str>| match value {
        // SAFETY: only calls of `xs_open` look at the environment without Rust's own lock, and they are made here.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    };
    set("XENSTORED_PATH", socket.to_str());
    for name in ["XENSTORE_WAIT", "XENSTORE_TIMEOUT", "XENSTORE_RECONNECT"] {
        set(name, variables.iter().find(|(wanted, _)| *wanted == name).map(|(_, value)| *value));
    }
    let handle = xs_open(flags);
    if handle.is_null() { Err(Errno::last()) } else { Ok(Handle(handle)) }
}

fn open(socket: &Path) -> Handle {
    open_with(socket, 0, &[]).expect("the daemon listens")
}

/// The truth, or why it is none.
fn truth(done: bool) -> Outcome<()> {
    if done { Ok(()) } else { Err(Errno::last()) }
}

impl Handle {
    fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        self.read_in(0, path)
    }

    fn read_in(&self, transaction: u32, path: &str) -> Outcome<Vec<u8>> {
        let mut len = 0;
        // SAFETY: all pointers are valid.
        let value = unsafe { xs_read(self.0, transaction, string(path).as_ptr(), &raw mut len) };
        if value.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: the library says how long its block is.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize + 1) };
        assert_eq!(bytes.last(), Some(&0), "a NUL behind the value");
        let bytes = bytes[..len as usize].to_vec();
        // SAFETY: the block is ours.
        unsafe { libc::free(value) };
        Ok(bytes)
    }

    fn write(&self, path: &str, value: &str) -> Outcome<()> {
        self.write_in(0, path, value)
    }

    fn write_in(&self, transaction: u32, path: &str, value: &str) -> Outcome<()> {
        let len = u32::try_from(value.len()).expect("a short value");
        // SAFETY: all pointers are valid.
        truth(unsafe { xs_write(self.0, transaction, string(path).as_ptr(), value.as_ptr().cast(), len) })
    }

    fn start(&self) -> Outcome<u32> {
        // SAFETY: the handle is open.
        let transaction = unsafe { xs_transaction_start(self.0) };
        if transaction == 0 { Err(Errno::last()) } else { Ok(transaction) }
    }

    fn end(&self, transaction: u32, abort: bool) -> Outcome<()> {
        // SAFETY: the handle is open.
        truth(unsafe { xs_transaction_end(self.0, transaction, abort) })
    }

    fn watch(&self, path: &str, token: &str) -> Outcome<()> {
        // SAFETY: all pointers are valid.
        truth(unsafe { xs_watch(self.0, string(path).as_ptr(), string(token).as_ptr()) })
    }

    fn unwatch(&self, path: &str, token: &str) -> Outcome<()> {
        // SAFETY: all pointers are valid.
        truth(unsafe { xs_unwatch(self.0, string(path).as_ptr(), string(token).as_ptr()) })
    }

    /// The path and token of an event from the library.
    fn event(strings: *mut *mut libc::c_char) -> Outcome<(String, String)> {
        if strings.is_null() {
            return Err(Errno::last());
        }
        let [path, token] = [0, 1].map(|place| {
            // SAFETY: there are two strings.
            let string = unsafe { strings.wrapping_add(place).read() };
            // SAFETY: each is one.
            unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
        });
        // SAFETY: the block is ours.
        unsafe { libc::free(strings.cast()) };
        Ok((path, token))
    }

    /// Waits for an event; its path.
    fn wait(&self) -> Outcome<String> {
        let mut count = 0;
        // SAFETY: all pointers are valid.
        let event = Self::event(unsafe { xs_read_watch(self.0, &raw mut count) })?;
        assert_eq!(count, 2);
        Ok(event.0)
    }

    /// Looks for an event; its path.
    fn check(&self) -> Outcome<String> {
        // SAFETY: the handle is open.
        Self::event(unsafe { xs_check_watch(self.0) }).map(|event| event.0)
    }

    fn descriptor(&self) -> i32 {
        // SAFETY: the handle is open.
        unsafe { xs_fileno(self.0) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { xs_close(self.0) };
    }
}

/// Whether a descriptor can be read within so many milliseconds.
fn is_readable(descriptor: i32, patience: u16) -> bool {
    let mut fd = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one descriptor.
    let ready = unsafe { libc::poll(&raw mut fd, 1, patience.into()) };
    ready == 1 && fd.revents & libc::POLLIN != 0
}
