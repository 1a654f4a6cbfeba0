//! Blocks of files, asked for before they are needed.

use std::fs::File;

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, fallocate},
    sys::resource::{Resource, getrlimit},
};

/// Allocates the blocks of a part of a file, which grows if it is too short.
pub(crate) fn allocate(file: &File, at: usize, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    check_limit((at + len) as u64)?;
    let offset = |number: usize| libc::off_t::try_from(number).map_err(|_| Errno::EFBIG);
    loop {
        match fallocate(file, FallocateFlags::empty(), offset(at)?, offset(len)?) {
            // Shared memory gives up what it has for any signal.
            Err(Errno::EINTR) => {}
            allocated => return allocated,
        }
    }
}

/// Refuses to let a file grow to `end` if this process may not make it so large. Trying it would not only fail but be
/// answered with a signal (`SIGXFSZ`).
pub(crate) fn check_limit(end: u64) -> Result<(), Errno> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if limit < end { Err(Errno::EFBIG) } else { Ok(()) }
}
