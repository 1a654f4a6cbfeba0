//! A page of memory that another party writes at will.
//!
//! Two rules keep that sound: no reference ever points into the page, and every access is atomic. What was read can
//! differ from what is there a moment later, so a value is read once and judged as the copy it is. Order between
//! accesses is the business of who knows the protocol (see `ring`); nothing here orders anything.

use core::{fmt, ptr, ptr::NonNull, sync::atomic::Ordering::Relaxed};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicU8, AtomicU32, AtomicUsize},
};

use crate::error::Error;

#[cfg(any(test, fuzzing))]
pub mod intruder;

/// Bytes of a page: the hypervisor's unit of sharing, whatever the kernel's page size is.
pub const PAGE_SIZE: usize = 4096;

/// Most bytes that are copied in one access.
const WORD: usize = size_of::<usize>();

type Release = Box<dyn FnOnce(NonNull<u8>)>;

/// A mapped page. It is given back once, when this is dropped.
///
/// It can be neither cloned nor sent to another thread: the library handles behind it are not made for that.
pub struct SharedPage {
    base: NonNull<u8>,
    release: Option<Release>,
}

impl SharedPage {
    /// Takes over a page that is mapped at `base`; `release` gives it back.
    ///
    /// # Panics
    /// If `base` is not aligned to a machine word.
    ///
    /// # Safety
    /// [`PAGE_SIZE`] bytes from `base` must stay readable and writable until `release` is called, and nobody in this
    /// process may access them other than atomically, or hold a reference to them.
    pub unsafe fn from_raw(base: NonNull<u8>, release: impl FnOnce(NonNull<u8>) + 'static) -> Self {
        assert!(base.as_ptr().addr().is_multiple_of(WORD), "a page at {base:p}");
        Self { base, release: Some(Box::new(release)) }
    }

    /// Maps the first page of a file, shared and writable.
    ///
    /// # Errors
    /// That of `mmap`. A file shorter than a page is not refused: its pages fault when touched.
    pub fn map_file(file: BorrowedFd<'_>) -> Result<Self, Error> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), PAGE_SIZE, protection, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Error::last_os("mmap"));
        }
        let base = NonNull::new(mapped.cast()).ok_or_else(|| Error::last_os("mmap"))?;
        let unmap = |base: NonNull<u8>| {
            // SAFETY: the mapping is the one made above, and the page that gave it back had it alone.
            unsafe { libc::munmap(base.as_ptr().cast(), PAGE_SIZE) };
        };
        // SAFETY: the whole page was just mapped for reading and writing, and only `unmap` ends it. No other part of
        // this process knows its address.
        Ok(unsafe { Self::from_raw(base, unmap) })
    }

    /// Makes a page of zeroes in this process's own memory, for a ring without another domain.
    #[must_use]
    pub fn private() -> Self {
        let layout = Layout::new::<[usize; PAGE_SIZE / WORD]>();
        // SAFETY: the layout's size is not zero.
        let allocated = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(allocated).unwrap_or_else(|| handle_alloc_error(layout));
        let free = move |base: NonNull<u8>| {
            // SAFETY: allocated above with the same layout, and freed here only.
            unsafe { dealloc(base.as_ptr(), layout) };
        };
        // SAFETY: the allocation is a page long, aligned to words, and known to nobody else.
        unsafe { Self::from_raw(base, free) }
    }

    /// Reads the number at `offset` once.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 4 inside the page.
    #[must_use]
    pub fn read_u32(&self, offset: usize) -> u32 {
        self.number(offset).load(Relaxed)
    }

    /// Writes the number at `offset` once.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 4 inside the page.
    pub fn write_u32(&self, offset: usize, value: u32) {
        self.number(offset).store(value, Relaxed);
    }

    /// Copies the bytes from `offset` on to `out`, as many as `out` has. Each byte is read once.
    ///
    /// # Panics
    /// If they do not lie inside the page.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        check_range(offset, out.len());
        let head = until_word(offset).min(out.len());
        let (head, rest) = out.split_at_mut(head);
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        let mut at = offset;
        for byte in head {
            *byte = self.byte(at).load(Relaxed);
            at += 1;
        }
        for word in words {
            *word = self.word(at).load(Relaxed).to_ne_bytes();
            at += WORD;
        }
        for byte in tail {
            *byte = self.byte(at).load(Relaxed);
            at += 1;
        }
    }

    /// Copies `bytes` to the page from `offset` on. Each byte is written once.
    ///
    /// # Panics
    /// If they do not fit inside the page.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        check_range(offset, bytes.len());
        let head = until_word(offset).min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (words, tail) = rest.as_chunks::<WORD>();
        let mut at = offset;
        for &byte in head {
            self.byte(at).store(byte, Relaxed);
            at += 1;
        }
        for &word in words {
            self.word(at).store(usize::from_ne_bytes(word), Relaxed);
            at += WORD;
        }
        for &byte in tail {
            self.byte(at).store(byte, Relaxed);
            at += 1;
        }
    }

    // A reference to an atomic is the one kind that another party's writes do not invalidate. These last for one access.

    fn number(&self, offset: usize) -> &AtomicU32 {
        before_access();
        check_range(offset, size_of::<u32>());
        assert!(offset.is_multiple_of(align_of::<AtomicU32>()), "a number at {offset}");
        // SAFETY: inside the page, which lives as long as `self` and starts at a word; the offset is aligned.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().wrapping_add(offset).cast()) }
    }

    fn word(&self, offset: usize) -> &AtomicUsize {
        before_access();
        debug_assert!(offset.is_multiple_of(WORD) && offset + WORD <= PAGE_SIZE);
        // SAFETY: the copying loops come here for whole aligned words of a range that was checked.
        unsafe { AtomicUsize::from_ptr(self.base.as_ptr().wrapping_add(offset).cast()) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        before_access();
        debug_assert!(offset < PAGE_SIZE);
        // SAFETY: the copying loops come here for bytes of a range that was checked.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().wrapping_add(offset)) }
    }
}

/// Lets an intruder in, where a test has one.
#[inline]
fn before_access() {
    #[cfg(any(test, fuzzing))]
    intruder::intrude();
}

/// Bytes from `offset` to the next start of a word.
fn until_word(offset: usize) -> usize {
    offset.next_multiple_of(WORD) - offset
}

#[track_caller]
fn check_range(offset: usize, len: usize) {
    assert!(
        offset <= PAGE_SIZE && len <= PAGE_SIZE - offset,
        "{len} bytes from {offset} on do not lie inside a page of {PAGE_SIZE}"
    );
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.base);
        }
    }
}

impl fmt::Debug for SharedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPage").field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
