//! A ring of bytes in a page that another domain shares.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The indices are further apart than the ring is long.
#[derive(Clone, Copy)]
pub(crate) struct Broken;

/// A ring: its bytes and its two running numbers of bytes, each written by one side.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    page: *mut u8,
    start: usize,
    size: u32,
    taken: usize,
    given: usize,
}

impl Queue {
    /// A ring of `size` bytes, a power of two, from `start` on, with its numbers of bytes taken and given at these
    /// places.
    ///
    /// # Safety
    /// The page must stay mapped, and be accessed only through rings.
    pub(crate) const unsafe fn new(page: *mut u8, start: usize, size: u32, taken: usize, given: usize) -> Self {
        Self { page, start, size, taken, given }
    }

    fn number(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the page and aligned; the page stays mapped.
        unsafe { AtomicU32::from_ptr(self.page.wrapping_add(at).cast()) }
    }

    fn byte(&self, index: u32) -> &AtomicU8 {
        let at = self.start + (index % self.size) as usize;
        // SAFETY: inside the page, which stays mapped.
        unsafe { AtomicU8::from_ptr(self.page.wrapping_add(at)) }
    }

    fn waiting(&self) -> Result<u32, Broken> {
        let given = self.number(self.given).load(Ordering::Acquire);
        let waiting = given.wrapping_sub(self.number(self.taken).load(Ordering::Acquire));
        if waiting > self.size { Err(Broken) } else { Ok(waiting) }
    }

    /// Whether no more can be given now.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting().is_ok_and(|waiting| waiting == self.size)
    }

    /// Puts in as many bytes as there is room for; gives how many.
    pub(crate) fn give(&self, bytes: &[u8]) -> Result<usize, Broken> {
        let room = (self.size - self.waiting()?) as usize;
        let mut index = self.number(self.given).load(Ordering::Relaxed);
        let bytes = &bytes[..bytes.len().min(room)];
        for &byte in bytes {
            self.byte(index).store(byte, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        self.number(self.given).store(index, Ordering::SeqCst);
        Ok(bytes.len())
    }

    /// Takes as many bytes as are there and fit; gives how many.
    pub(crate) fn take(&self, out: &mut [u8]) -> Result<usize, Broken> {
        let count = out.len().min(self.waiting()? as usize);
        let mut index = self.number(self.taken).load(Ordering::Relaxed);
        for byte in &mut out[..count] {
            *byte = self.byte(index).load(Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        self.number(self.taken).store(index, Ordering::SeqCst);
        Ok(count)
    }
}
