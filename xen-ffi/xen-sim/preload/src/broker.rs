//! The connection to the broker.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use xen_sim_switchboard::Memory;

/// Names the broker's socket in the environment.
const SOCKET_VARIABLE: &str = "XEN_SIM_SOCKET";

/// The host's memory, asked for at the first call.
///
/// # Errors
/// The errno of what went wrong; `ENOENT`, as where there is no Xen, when no broker is named.
pub(crate) fn memory() -> Result<&'static Memory, i32> {
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    if let Some(memory) = MEMORY.get() {
        return Ok(memory);
    }
    let file = ask(b"memory\n").and_then(|fd| fd.ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO)));
    let memory = file.and_then(Memory::attach).map_err(|error| errno_of(&error))?;
    Ok(MEMORY.get_or_init(|| memory))
}

/// A new event file: a pipe that is both ends in one, from which ports are read.
///
/// # Errors
/// As [`memory`].
pub(crate) fn event_file() -> Result<OwnedFd, i32> {
    ask(b"events\n").map_err(|error| errno_of(&error))?.ok_or(libc::ENFILE)
}

/// Has the broker look at once for event files that nobody holds any more.
pub(crate) fn reap() {
    // Without the broker nothing can be reaped, and the caller fails as it would have without asking.
    let _ = ask(b"reap\n");
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Sends one line and takes the answer, one byte and perhaps a descriptor.
fn ask(line: &[u8]) -> io::Result<Option<OwnedFd>> {
    let path = std::env::var_os(SOCKET_VARIABLE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(line)?;
    receive(&stream)
}

fn receive(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut part = IoSliceMut::new(&mut byte);
    let mut control = [0u64; 8];
    // SAFETY: all zero is an empty message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw mut part).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let got = loop {
        // SAFETY: the header points at one buffer and the control buffer, both alive.
        let got = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        // A daemon that takes a signal meanwhile is no less in need of an answer.
        if got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break got;
        }
    };
    match got {
        1 => {}
        0 => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
        _ => return Err(io::Error::last_os_error()),
    }
    // SAFETY: the kernel filled in the header.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: a first control header lies whole in the control buffer.
    let header = unsafe { *first };
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Ok(None);
    }
    // SAFETY: the header is `first`'s own.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: a message of rights carries at least one descriptor.
    let fd = unsafe { data.cast::<i32>().read_unaligned() };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Another open file of the host's memory, beginning with the ring of domain 0's kernel.
///
/// # Errors
/// As [`memory`], and those of opening the file again.
pub(crate) fn reopen_memory(flags: i32) -> Result<OwnedFd, i32> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/proc/self/fd/{}", memory()?.as_fd().as_raw_fd());
    let mut options = File::options();
    options.read(true).write(flags & libc::O_ACCMODE != libc::O_RDONLY);
    options.custom_flags(flags & !libc::O_ACCMODE);
    Ok(options.open(path).map_err(|error| errno_of(&error))?.into())
}

const _: () = assert!(size_of::<IoSliceMut<'_>>() == size_of::<libc::iovec>());
