//! Event channels (libxenevtchn): one-bit signals between domains, and from the hypervisor.

use core::{ffi::c_uint, fmt, ptr, ptr::NonNull};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
    rc::Rc,
};

use xen_sys as sys;

use crate::{
    error::{Error, check, check_pointer},
    id::{DomId, Port},
};

/// A signal of the hypervisor itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virq(u32);

impl Virq {
    /// A domain changed its state: came, shut down, died or went. One binder on the whole host.
    pub const DOMAIN_STATE: Self = Self(sys::VIRQ_DOM_EXC);
}

/// Whether a descriptor lives on in a program that this one executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcrossExec {
    /// It is closed, as usual.
    Close,
    /// It stays open, ports bound, for the next program to take over with [`EventChannels::from_fd`].
    Keep,
}

#[derive(Debug)]
struct Handle(NonNull<sys::xenevtchn_handle>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library and is closed here only. That fails only for a descriptor that is
        // closed already, and then nothing is left to do.
        unsafe { sys::xenevtchn_close(self.0.as_ptr()) };
    }
}

/// The event channels of this process: one descriptor through which all of its ports signal.
#[derive(Debug)]
pub struct EventChannels {
    handle: Rc<Handle>,
}

impl EventChannels {
    /// Opens the event channel device.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV` where Xen is not running, `EACCES` without the right to it.
    pub fn open(across_exec: AcrossExec) -> Result<Self, Error> {
        let flags = match across_exec {
            AcrossExec::Close => 0,
            AcrossExec::Keep => sys::XENEVTCHN_NO_CLOEXEC,
        };
        // SAFETY: without a logger the library makes its own; any flags may be passed.
        let handle = unsafe { sys::xenevtchn_open(ptr::null_mut(), flags) };
        Self::from_handle("xenevtchn_open", handle)
    }

    /// Takes over a descriptor of the event channel device, ports bound, from before an exec or from another process.
    /// Its ports are bound still: see [`EventChannels::adopt`].
    ///
    /// # Errors
    /// `ENOMEM`. The descriptor is closed then.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        let raw = fd.as_raw_fd();
        // SAFETY: the descriptor is open and ours. Without a logger the library makes its own.
        let handle = unsafe { sys::xenevtchn_fdopen(ptr::null_mut(), raw, 0) };
        let channels = Self::from_handle("xenevtchn_fdopen", handle)?;
        // Closing the handle closes the descriptor, so from here on it belongs to the handle.
        let _ = fd.into_raw_fd();
        Ok(channels)
    }

    fn from_handle(call: &'static str, handle: *mut sys::xenevtchn_handle) -> Result<Self, Error> {
        Ok(Self { handle: Rc::new(Handle(check_pointer(call, handle)?)) })
    }

    fn raw(&self) -> *mut sys::xenevtchn_handle {
        self.handle.0.as_ptr()
    }

    /// Binds a new local port to the port that `domain` offers.
    ///
    /// # Errors
    /// `EINVAL` if that port is not offered to this domain, `ESRCH` without such a domain, `ENOSPC` without a free port.
    pub fn bind_interdomain(&self, domain: DomId, remote: Port) -> Result<BoundPort, Error> {
        // SAFETY: the handle is open.
        let result = unsafe { sys::xenevtchn_bind_interdomain(self.raw(), domain.into(), remote.0) };
        Ok(self.adopt(port("xenevtchn_bind_interdomain", result)?))
    }

    /// Binds a new local port to a signal of the hypervisor.
    ///
    /// # Errors
    /// `EEXIST` or `EBUSY` if another binder has it, `EPERM` without the right to it.
    pub fn bind_virq(&self, virq: Virq) -> Result<BoundPort, Error> {
        // SAFETY: the handle is open.
        let result = unsafe { sys::xenevtchn_bind_virq(self.raw(), c_uint::from(virq.0)) };
        Ok(self.adopt(port("xenevtchn_bind_virq", result)?))
    }

    /// Owns a port that is bound on this descriptor already: one that was bound before an exec, or let go by
    /// [`BoundPort::release`]. Each port must be adopted at most once, or it is unbound under its other owner.
    #[must_use]
    pub fn adopt(&self, port: Port) -> BoundPort {
        BoundPort { port, owned: true, handle: Rc::clone(&self.handle) }
    }

    /// Owns a port of before, as [`EventChannels::adopt`], if it is bound still; `None` if it is not. Whoever is at its
    /// other end gets a signal.
    ///
    /// Of all that can be asked of a descriptor only the sending of a signal is refused for a port that is not bound:
    /// Linux takes a request to unmask one, and does nothing.
    #[must_use]
    pub fn adopt_if_bound(&self, port: Port) -> Option<BoundPort> {
        // SAFETY: the handle is open; the kernel judges the port. A port of the hypervisor's own signals is bound, and has
        // nobody at its other end.
        let notified = unsafe { sys::xenevtchn_notify(self.raw(), port.0) };
        (notified == 0).then(|| self.adopt(port))
    }

    /// Takes the next port that has signalled; it stays masked until [`BoundPort::unmask`]. `None` when none has and
    /// the descriptor does not block.
    ///
    /// Poll before each call: on a descriptor that blocks, and with some kernels on any, this waits for a signal.
    ///
    /// # Errors
    /// `EFBIG` if signals were lost because the kernel's buffer of them ran over; otherwise whatever the read left.
    pub fn pending(&self) -> Result<Option<Port>, Error> {
        loop {
            // SAFETY: the handle is open.
            let result = unsafe { sys::xenevtchn_pending(self.raw()) };
            let error = match port("xenevtchn_pending", result) {
                Ok(port) => return Ok(Some(port)),
                Err(error) => error,
            };
            match error.errno() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Lets a port signal again, by its number. Nothing happens where it is not bound here.
    ///
    /// # Errors
    /// `EBADF` and its like if the descriptor is of no use.
    pub fn unmask(&self, port: Port) -> Result<(), Error> {
        // SAFETY: the handle is open; the kernel judges the port.
        check("xenevtchn_unmask", unsafe { sys::xenevtchn_unmask(self.raw(), port.0) }).map(drop)
    }
}

/// To wait for signals with, by poll.
impl AsFd for EventChannels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the handle is open.
        let fd = unsafe { sys::xenevtchn_fd(self.raw()) };
        // SAFETY: the handle keeps its descriptor open for as long as it is open itself, which `self` sees to.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// A port that is bound, and that is unbound when this is dropped. It keeps the descriptor open.
pub struct BoundPort {
    port: Port,
    /// Dropping unbinds it.
    owned: bool,
    handle: Rc<Handle>,
}

impl BoundPort {
    /// The local number, by which [`EventChannels::pending`] names it.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }

    /// Signals the other end.
    ///
    /// # Errors
    /// `EINVAL` or `ENOTCONN` if the other end is gone.
    pub fn notify(&self) -> Result<(), Error> {
        // SAFETY: the handle is open; the kernel judges the port.
        check("xenevtchn_notify", unsafe { sys::xenevtchn_notify(self.handle.0.as_ptr(), self.port.0) }).map(drop)
    }

    /// Lets the port signal again after it was [`pending`](EventChannels::pending). Nothing happens where it is not bound
    /// any more.
    ///
    /// # Errors
    /// `EBADF` and its like if the descriptor is of no use.
    pub fn unmask(&self) -> Result<(), Error> {
        // SAFETY: the handle is open; the kernel judges the port.
        check("xenevtchn_unmask", unsafe { sys::xenevtchn_unmask(self.handle.0.as_ptr(), self.port.0) }).map(drop)
    }

    /// Unbinds the port now, telling whether that worked.
    ///
    /// # Errors
    /// `EINVAL` if it is not bound any more.
    pub fn unbind(mut self) -> Result<(), Error> {
        self.owned = false;
        // SAFETY: the handle is open; the kernel judges the port.
        check("xenevtchn_unbind", unsafe { sys::xenevtchn_unbind(self.handle.0.as_ptr(), self.port.0) }).map(drop)
    }

    /// Leaves the port bound and hands out its number.
    #[must_use]
    pub fn release(mut self) -> Port {
        self.owned = false;
        self.port
    }
}

impl Drop for BoundPort {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the handle is open. A port that the kernel does not know any more is as unbound as it can be.
            unsafe { sys::xenevtchn_unbind(self.handle.0.as_ptr(), self.port.0) };
        }
    }
}

impl fmt::Debug for BoundPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoundPort").field(&self.port.0).finish()
    }
}

/// A port of the library's: a number, or negative with errno set.
fn port(call: &'static str, result: sys::xenevtchn_port_or_error_t) -> Result<Port, Error> {
    let number = check(call, result)?;
    u32::try_from(number).map(Port).map_err(|_| Error::new(call, io::ErrorKind::InvalidData.into()))
}
