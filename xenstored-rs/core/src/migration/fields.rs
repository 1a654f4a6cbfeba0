//! Taking fields out of a record, one after the other.

use super::error::{Fault, StreamError};

/// What is left of a record, with where in the stream that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
    pub(super) offset: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(rest: &'a [u8], offset: usize) -> Self {
        Self { rest, offset }
    }

    /// An error at where this stands.
    pub(super) fn error(&self, fault: Fault) -> StreamError {
        StreamError { offset: self.offset, fault }
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], StreamError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.error(Fault::Record))?;
        self.rest = rest;
        self.offset += len;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StreamError> {
        let short = self.error(Fault::Record);
        self.bytes(N)?.try_into().map_err(|_| short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, StreamError> {
        self.array().map(u8::from_ne_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, StreamError> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, StreamError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, StreamError> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, StreamError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A string whose length, its NUL included, is `len`.
    pub(super) fn string(&mut self, len: usize) -> Result<&'a [u8], StreamError> {
        let wrong = self.error(Fault::Value("a string"));
        match self.bytes(len)?.split_last() {
            Some((0, string)) if !string.contains(&0) => Ok(string),
            _ => Err(wrong),
        }
    }

    /// The next string up to its NUL.
    pub(super) fn name(&mut self) -> Result<&'a [u8], StreamError> {
        let len = self.rest.iter().position(|&byte| byte == 0).ok_or_else(|| self.error(Fault::Record))?;
        self.string(len + 1)
    }
}
