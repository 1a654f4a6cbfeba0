//! The host's memory file.

use crate::{PAGE_SIZE, Page, Switchboard};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// How many ring pages there can be in the life of a host.
pub const SLOTS: u32 = 131_072;

/// Where the switchboard begins: behind all pages.
const SWITCHBOARD_OFFSET: usize = slot_offset(SLOTS);

/// Where a ring page stands in the file.
///
/// Every second page is never used, so that two mappings of rings never become one to the kernel: as on Xen, each
/// counts against `vm.max_map_count`.
#[must_use]
pub const fn slot_offset(slot: u32) -> usize {
    slot as usize * 2 * PAGE_SIZE
}

/// The host's memory: ring pages in numbered slots, and the switchboard. Page 0, at the start of the file, is the ring
/// of domain 0's kernel.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    map: NonNull<u8>,
    size: usize,
    /// Where the map begins in the file.
    offset: usize,
}

// SAFETY: the mapping is shared memory of atomics and belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: as above; every access through a shared reference is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes the memory of a new host, all zero.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate` and `mmap`.
    pub fn create() -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"xen-sim".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len((SWITCHBOARD_OFFSET + size_of::<Switchboard>().next_multiple_of(PAGE_SIZE)) as u64)?;
        Self::map(file.into(), 0)
    }

    /// Maps the memory of a running host, without its pages.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn attach(file: OwnedFd) -> io::Result<Self> {
        Self::map(file, SWITCHBOARD_OFFSET)
    }

    fn map(file: OwnedFd, offset: usize) -> io::Result<Self> {
        let end = SWITCHBOARD_OFFSET + size_of::<Switchboard>().next_multiple_of(PAGE_SIZE);
        let size = end - offset;
        let map = map_shared(file.as_fd(), offset, size, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Self { file, map, size, offset })
    }

    /// Domains and event channels.
    #[must_use]
    pub fn switchboard(&self) -> &Switchboard {
        let place = self.map.as_ptr().wrapping_add(SWITCHBOARD_OFFSET - self.offset);
        // SAFETY: the map reaches from `offset` to the end of the switchboard, page-aligned, for as long as `self`
        // lives; every bit pattern is a valid one of atomics.
        unsafe { &*place.cast::<Switchboard>() }
    }

    /// The ring page in `slot`; `None` when pages are not mapped here or there is no such slot.
    #[must_use]
    pub fn page(&self, slot: u32) -> Option<&Page> {
        if self.offset != 0 || slot >= SLOTS {
            return None;
        }
        let place = self.map.as_ptr().wrapping_add(slot_offset(slot));
        // SAFETY: the map begins with all slots and lives as long as `self`; every bit pattern is a valid page.
        Some(unsafe { &*place.cast::<Page>() })
    }

    /// Maps one ring page for good: until the address is given to `munmap`.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map_page(&self, slot: u32, protection: i32) -> io::Result<NonNull<u8>> {
        map_shared(self.file.as_fd(), slot_offset(slot), PAGE_SIZE, protection)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and every reference into it borrowed `self`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.size) };
    }
}

fn map_shared(file: BorrowedFd<'_>, offset: usize, size: usize, protection: i32) -> io::Result<NonNull<u8>> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    let map = unsafe {
        libc::mmap(ptr::null_mut(), size, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), offset)
    };
    match NonNull::new(map.cast::<u8>()) {
        Some(map) if map.as_ptr().cast() != libc::MAP_FAILED => Ok(map),
        _ => Err(io::Error::last_os_error()),
    }
}
