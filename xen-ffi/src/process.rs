//! What a process does to itself through calls that Rust cannot check.
//!
//! Forking and changing the environment are sound only while there is one thread, and are refused otherwise.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// How nice a process is that stands back: a tenth of what another gets is left for it where both want the processor.
const NICE: libc::c_int = 10;

/// Which process this is after [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The one that called.
    Parent {
        /// Number of the new process.
        child: i32,
    },
    /// The new one.
    Child,
}

/// Makes a copy of this process.
///
/// # Errors
/// If the process has more than one thread, or the kernel has no process left.
pub fn fork() -> io::Result<Forked> {
    require_single_thread()?;
    // SAFETY: there is one thread, so the child gets no lock that another thread held.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        child if child > 0 => Ok(Forked::Parent { child }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has this process, which may have the scheduling of another that must not wait, take what that leaves of the processor.
///
/// # Errors
/// If the kernel refuses.
pub fn stand_back() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives for the call, which only reads it; 0 is this process.
    let scheduled = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) };
    // SAFETY: the call touches no memory.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    if scheduled == 0 && nice == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends a process that shares everything with another one: no exit handlers, no destructors.
pub fn end(status: u8) -> ! {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::_exit(status.into()) }
}

/// Lets a write to a connection that is gone fail with an error instead of ending the process.
///
/// # Errors
/// If the kernel refuses.
pub fn ignore_sigpipe() -> io::Result<()> {
    // SAFETY: no handler of ours is installed, and the previous disposition is not used.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A second descriptor of one that this process was started with, closed in programs that it executes. The first stays as it
/// is.
///
/// # Errors
/// `EBADF` where none of that number is open.
pub fn duplicate_inherited(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory, and the kernel judges the number.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
        // SAFETY: the descriptor has just been made, and nobody else knows of it.
        made if made >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that were sent into a socket and not yet read at its other end, as the kernel accounts for them.
///
/// # Errors
/// For what is no socket.
pub fn unread_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes one int.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { Ok(u64::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// Closes a descriptor that this process was started with, and that nothing in it owns.
///
/// # Panics
/// For one of the three standard ones, which always have owners.
pub fn close_inherited_one(fd: i32) {
    assert!(fd > 2, "descriptor {fd} is not ours to close");
    // SAFETY: the caller says that nothing owns it; were that wrong, its owner would get errors.
    unsafe { libc::close(fd) };
}

/// Closes every descriptor but the three standard ones: what the process was started with by mistake, or has from the one
/// that forked it. For the very beginning of a process, before it has opened anything that it will use.
///
/// # Errors
/// If the kernel refuses (before Linux 5.9 it does not know how).
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: no memory is touched. Descriptors that something of this process owns are not there yet, by what the
    // caller promises; were one there, its owner would get errors, and nothing worse in a process of one thread.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a variable out of the environment, so that no child inherits it.
///
/// # Errors
/// If the process has more than one thread; the variable then stays.
pub fn take_variable(name: &'static str) -> io::Result<Option<OsString>> {
    let value = std::env::var_os(name);
    if value.is_some() {
        require_single_thread()?;
        // SAFETY: there is one thread, so nothing reads the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    Ok(value)
}

/// Gives memory that was freed back to the kernel, where the C library keeps it for later.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call only gives up pages that no allocation uses; it may be made at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What makes the calls above sound.
fn require_single_thread() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("{threads} threads run where there must be one"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_several_threads_there_is_no_fork() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || receiver.recv());
        let error = fork().unwrap_err();
        assert!(error.to_string().contains("threads run where there must be one"), "{error}");
        drop(sender);
        assert!(second.join().unwrap().is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter schedules nothing")]
    fn who_stands_back_is_nice() {
        // The scheduling is that of the thread.
        let fields = std::thread::spawn(|| {
            stand_back().unwrap();
            fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let fields = fields.join().unwrap();
        let fields: Vec<&str> = fields.rsplit(')').next().unwrap().split_whitespace().collect();
        // Of proc(5)'s fields the third is the first behind the name.
        assert_eq!((fields[19 - 3], fields[41 - 3]), ("10", libc::SCHED_BATCH.to_string().as_str()));
    }

    #[test]
    fn a_variable_that_is_not_there_is_none() {
        assert_eq!(take_variable("A_VARIABLE_THAT_NOBODY_SETS").unwrap(), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no heap of the C library")]
    fn the_heap_may_be_trimmed_at_any_time() {
        let kept = vec![1u8; 1 << 20];
        trim_heap();
        assert!(kept.iter().all(|&byte| byte == 1));
    }
}
