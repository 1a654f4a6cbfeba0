//! A page of memory that others write while we look.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A page that a guest shares with the store daemon.
///
/// Words are read and written whole; bytes one by one, in no order that the other side could count on before a word
/// is written behind them.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Page {
    words: [AtomicU32; PAGE_SIZE / 4],
}

impl Page {
    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: a word's four bytes are inside the page and AtomicU8 has no alignment to keep. Both atomics only
        // ever see the memory through atomic accesses.
        unsafe { AtomicU8::from_ptr(self.words[offset / 4].as_ptr().cast::<u8>().wrapping_add(offset % 4)) }
    }

    /// The word at byte `offset`.
    ///
    /// # Panics
    /// When no aligned word of the page starts there.
    #[must_use]
    pub fn word(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4), "words are aligned");
        self.words[offset / 4].load(SeqCst)
    }

    /// Replaces the word at byte `offset`.
    ///
    /// # Panics
    /// As [`Self::word`].
    pub fn set_word(&self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4), "words are aligned");
        self.words[offset / 4].store(value, SeqCst);
    }

    /// Copies bytes out of the page, from `offset` on.
    ///
    /// # Panics
    /// When they reach over the end of the page.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = self.byte(offset + at).load(Relaxed);
        }
    }

    /// Copies bytes into the page, from `offset` on.
    ///
    /// # Panics
    /// When they reach over the end of the page.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        for (at, &byte) in bytes.iter().enumerate() {
            self.byte(offset + at).store(byte, Relaxed);
        }
    }
}
