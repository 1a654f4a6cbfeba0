//! Memory that the caller frees: one block from `malloc` for each result, laid out as the C library does.

use crate::guard::Failure;
use crate::{nul, xs_permissions};
use libc::{c_char, c_void};
use nix::errno::Errno;
use std::ptr::NonNull;

/// A block from `malloc`, freed unless it is handed over.
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the block is owned, and memory from `malloc` may be used and freed by any thread.
unsafe impl Send for Block {}

impl Block {
    /// A block of at least `size` bytes, whose content is yet to be written.
    fn new(size: usize) -> Result<Self, Failure> {
        // SAFETY: any size may be asked for. One of no bytes could be NULL, which would be a failure.
        let start = unsafe { libc::malloc(size.max(1)) };
        NonNull::new(start.cast()).map(|start| Self { start, size }).ok_or(Failure(Errno::ENOMEM))
    }

    /// Writes a value at `offset`. What does not fit would be a slip of ours and is left out.
    fn put<T: Copy>(&mut self, offset: usize, value: T) {
        if offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.size) {
            // SAFETY: `offset` is inside the block.
            let target = unsafe { self.start.as_ptr().add(offset) };
            // SAFETY: there is room for the value, wherever it is aligned.
            unsafe { target.cast::<T>().write_unaligned(value) };
        }
    }

    /// Copies bytes to `offset`, with the same care.
    fn put_bytes(&mut self, offset: usize, bytes: &[u8]) {
        if offset.checked_add(bytes.len()).is_some_and(|end| end <= self.size) {
            // SAFETY: `offset` is inside the block.
            let target = unsafe { self.start.as_ptr().add(offset) };
            // SAFETY: there is room for all of `bytes`, which lie elsewhere, since nobody else has the block.
            unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// Bytes with a NUL behind them.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        let mut block = Self::new(bytes.len().saturating_add(1))?;
        block.put_bytes(0, bytes);
        block.put(bytes.len(), 0u8);
        Ok(block)
    }

    /// Pointers to strings, and the strings behind them; how many is told as well. Bytes behind the last NUL are kept
    /// but not pointed to.
    pub(crate) fn of_strings(strings: &[u8]) -> Result<(Self, usize), Failure> {
        let count = nul::count(strings);
        let table = count.saturating_mul(size_of::<*mut c_char>());
        let mut block = Self::new(table.saturating_add(strings.len()))?;
        block.put_bytes(table, strings);
        let first = block.start.as_ptr().wrapping_add(table);
        let (mut slot, mut string) = (0usize, first);
        nul::each(strings, |nul| {
            block.put(slot, string.cast::<c_char>());
            slot = slot.wrapping_add(size_of::<*mut c_char>());
            string = first.wrapping_add(nul).wrapping_add(1);
        });
        Ok((block, count))
    }

    /// An array of permissions.
    pub(crate) fn of_permissions(permissions: &[xs_permissions]) -> Result<Self, Failure> {
        let mut block = Self::new(size_of_val(permissions))?;
        for (slot, entry) in permissions.iter().enumerate() {
            block.put(slot.saturating_mul(size_of::<xs_permissions>()), *entry);
        }
        Ok(block)
    }

    /// The last `len` bytes of the block: those that a constructor was given.
    pub(crate) fn tail(&self, len: usize) -> &[u8] {
        let len = len.min(self.size);
        let start = self.start.as_ptr().wrapping_add(self.size.saturating_sub(len));
        // SAFETY: these bytes are inside the block, were written by its constructor, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Hands the block over to the caller of the library.
    pub(crate) fn into_raw(self) -> *mut c_void {
        let start = self.start;
        std::mem::forget(self);
        start.as_ptr().cast()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block came from `malloc` and was not handed over.
        unsafe { libc::free(self.start.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn strings_are_pointed_to_in_one_block() {
        let (block, count) = Block::of_strings(b"one\0\0three\0tail").unwrap();
        assert_eq!((count, block.tail(4)), (3, &b"tail"[..]));
        let start = block.into_raw().cast::<*const c_char>();
        // SAFETY: there are three pointers.
        let pointers = unsafe { std::slice::from_raw_parts(start, 3) };
        let strings: Vec<_> = pointers
            .iter()
            // SAFETY: each points to a string inside the block.
            .map(|&pointer| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap())
            .collect();
        assert_eq!(strings, ["one", "", "three"]);
        assert_eq!(pointers.first().map(|first| first.addr()), Some(start.addr() + size_of_val(pointers)));
        // SAFETY: the block came from `malloc`.
        unsafe { libc::free(start.cast_mut().cast()) };
    }

    #[test]
    fn nothing_is_a_block_all_the_same() {
        assert!(!Block::of_strings(b"").unwrap().0.into_raw().is_null());
        assert!(!Block::of_permissions(&[]).unwrap().into_raw().is_null());
        let (block, count) = Block::of_strings(b"").unwrap();
        assert_eq!((block.tail(9), count), (&b""[..], 0));
    }
}
