//! The memory of a log, and all unsafe code of this crate.
//!
//! Three rules keep it sound, whatever the rest of the crate does with it:
//!
//! 1. The header and the table are only ever accessed through atomics (and by the kernel, during a call).
//! 2. Of the records, what lies below the tail is never written, and only that is lent out shared. The tail moves down
//!    only through `&mut self`, so nothing is lent out then.
//! 3. What lies above the tail is written through raw pointers, or lent out through `&mut self`.
//!
//! The tail that these rules are about is kept here, beside the mapping; the one in the file is its copy for a
//! successor. Memory is touched only below the end of the blocks that are there, so nothing faults.

use core::{
    cell::Cell,
    fmt,
    ops::Range,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, Release},
    },
};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::layout::{
    BUFFER_AT, Buffer, MESSAGE_AT, MSG_LEN_AT, Message, MessageHeader, NOTE_CALL_AT, PAGE, RECORDS_AT, RESERVED_AT,
    TABLE_AT, TAIL_AT, first_half,
};
use crate::record::record_checksum;

/// A call that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Receive,
    Send,
}

impl Call {
    /// As the note has it; 0 is no call.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Receive => 1,
            Self::Send => 2,
        }
    }

    pub(crate) const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Receive),
            2 => Some(Self::Send),
            _ => None,
        }
    }
}

/// A mapped log.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    /// Bytes of address space: header, table and the most that records may take.
    len: usize,
    /// End of what is sealed.
    tail: Cell<usize>,
    /// End of the memory that may be touched; the table has its own rule, see `allow_table`.
    reserved: Cell<usize>,
    /// The same for the table.
    table_reserved: Cell<usize>,
}

impl Mapping {
    /// Maps the first `len` bytes of a file, shared. Only the header may be touched at first, and must be there.
    pub(crate) fn shared(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        assert!(len >= RECORDS_AT);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        let mapping = Self::over(mapped, len)?;
        // The header stays in memory if that is allowed: no store to it, the kernel's count of bytes included, then
        // ever waits for its page to be fetched.
        // SAFETY: the page is part of the mapping just made; locking changes no content.
        unsafe { libc::mlock(mapped, PAGE) };
        Ok(mapping)
    }

    /// Maps the header of a log a second time; nothing else of it may be touched.
    pub(crate) fn header(file: BorrowedFd<'_>) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, file.as_raw_fd(), 0) };
        Self::over(mapped, PAGE)
    }

    /// Makes memory of zeroes that nobody else sees. All of it may be touched at once; it exists when it is.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        assert!(len >= RECORDS_AT);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        let mapping = Self::over(mapped, len)?;
        mapping.reserved.set(len);
        mapping.table_reserved.set(RECORDS_AT);
        Ok(mapping)
    }

    fn over(mapped: *mut libc::c_void, len: usize) -> io::Result<Self> {
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (tail, reserved) = (Cell::new(RECORDS_AT), Cell::new(RECORDS_AT));
        Ok(Self { base, len, tail, reserved, table_reserved: Cell::new(TABLE_AT) })
    }

    /// End of what is sealed.
    pub(crate) fn tail(&self) -> usize {
        self.tail.get()
    }

    /// End of the blocks for records.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.get()
    }

    /// End of the blocks for the table.
    pub(crate) fn table_reserved(&self) -> usize {
        self.table_reserved.get()
    }

    /// End of the address space.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lets memory up to `end` be touched, whose blocks are there.
    pub(crate) fn allow(&self, end: usize) {
        assert!(end <= self.len && end >= self.reserved.get());
        self.reserved.set(end);
        self.atomic(RESERVED_AT).store(end as u64, Release);
    }

    /// Lets the table up to `end` be touched, whose blocks are there.
    pub(crate) fn allow_table(&self, end: usize) {
        assert!(end <= RECORDS_AT && end >= self.table_reserved.get());
        self.table_reserved.set(end);
    }

    /// Takes over the tail that a predecessor left. Before anything else is done with the records.
    pub(crate) fn adopt_tail(&mut self, tail: usize) {
        assert!((RECORDS_AT..=self.reserved.get()).contains(&tail));
        self.tail.set(tail);
    }

    /// Seals what lies below `tail`, with one store.
    pub(crate) fn advance(&self, tail: usize) {
        assert!((self.tail.get()..=self.reserved.get()).contains(&tail));
        self.tail.set(tail);
        self.atomic(TAIL_AT).store(tail as u64, Release);
    }

    /// Unseals what lies above `tail`.
    pub(crate) fn retreat(&mut self, tail: usize) {
        assert!((RECORDS_AT..=self.tail.get()).contains(&tail));
        self.tail.set(tail);
        self.atomic(TAIL_AT).store(tail as u64, Release);
    }

    /// A number of the header or the table.
    ///
    /// # Panics
    /// If it is not aligned, or its memory may not be touched.
    pub(crate) fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(align_of::<AtomicU64>()), "a number at {at}");
        assert!(at < self.table_reserved.get(), "a number at {at}");
        let place = self.base.as_ptr().wrapping_add(at).cast();
        // SAFETY: aligned, inside the mapping, which lives as long as `self`; the header and the table are accessed
        // through atomics alone (rule 1). Both end at a multiple of the alignment, so no number crosses their end.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// Sealed bytes.
    ///
    /// # Panics
    /// If they are not all sealed.
    pub(crate) fn sealed(&self, range: Range<usize>) -> &[u8] {
        assert!(RECORDS_AT <= range.start && range.start <= range.end && range.end <= self.tail.get());
        let start = self.base.as_ptr().wrapping_add(range.start);
        // SAFETY: inside the mapping, below the tail: nobody writes there while `self` is borrowed (rule 2).
        unsafe { slice::from_raw_parts(start, range.end - range.start) }
    }

    /// Bytes above the tail, to write to.
    pub(crate) fn unsealed(&mut self, range: Range<usize>) -> &mut [u8] {
        let start = self.writable(&range);
        // SAFETY: inside the mapping, above the tail, so nothing there is lent out (rule 2), and `self` is borrowed
        // exclusively.
        unsafe { slice::from_raw_parts_mut(start, range.end - range.start) }
    }

    /// Copies bytes to above the tail.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let start = self.writable(&(at..at + bytes.len()));
        // SAFETY: the range is inside the mapping and above the tail, where nothing is lent out while `self` is
        // borrowed shared (rules 2 and 3), so `bytes` does not overlap it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    /// The checksum of a record above the tail.
    pub(crate) fn record_checksum(&self, range: Range<usize>) -> u32 {
        let start = self.writable(&range);
        // SAFETY: inside the mapping; nothing is written there while this call lasts.
        let bytes = unsafe { slice::from_raw_parts(start.cast_const(), range.end - range.start) };
        record_checksum(bytes)
    }

    /// The start of a range that may be written to.
    fn writable(&self, range: &Range<usize>) -> *mut u8 {
        assert!(self.tail.get() <= range.start && range.start <= range.end && range.end <= self.reserved.get());
        self.base.as_ptr().wrapping_add(range.start)
    }

    /// The count of bytes that the kernel stored at the last call.
    pub(crate) fn moved(&self) -> u32 {
        first_half(self.atomic(MSG_LEN_AT).load(Relaxed))
    }

    /// Receives to `range`, which lies above the tail, at most as much as it holds. Does not wait. The note's fields are
    /// there already; it is valid from the moment the count of bytes is 0 and the message ready.
    pub(crate) fn receive(&self, socket: BorrowedFd<'_>, range: &Range<usize>) -> io::Result<usize> {
        let start = self.writable(range);
        self.prepare(start, range.end - range.start);
        self.call(Call::Receive, socket)
    }

    /// Sends bytes, as many as the socket takes. Does not wait. For the note see [`Mapping::receive`].
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        self.prepare(bytes.as_ptr().cast_mut(), bytes.len());
        self.call(Call::Send, socket)
    }

    /// Fills the message header in: one buffer, no name, no control data, nothing moved.
    fn prepare(&self, base: *mut u8, len: usize) {
        let buffer = self.base.as_ptr().wrapping_add(BUFFER_AT).cast::<Buffer>();
        let message = self.base.as_ptr().wrapping_add(MESSAGE_AT).cast::<Message>();
        // SAFETY: the place is inside the header's page, aligned for it, and no reference to it exists: atomics there
        // are borrowed for one access at a time (`moved`).
        unsafe { buffer.write(Buffer { base, len }) };
        let header = MessageHeader {
            name: ptr::null_mut(),
            name_len: 0,
            buffers: buffer,
            buffer_count: 1,
            control: ptr::null_mut(),
            control_len: 0,
            flags: 0,
        };
        // SAFETY: as above.
        unsafe { message.write(Message { header, msg_len: 0 }) };
    }

    /// One message, moved by the kernel itself: a libc may make several calls of it, or copy the header.
    fn call(&self, call: Call, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.atomic(NOTE_CALL_AT).store(call.number(), Release);
        let message = self.base.as_ptr().wrapping_add(MESSAGE_AT);
        let (socket, one) = (socket.as_raw_fd(), 1_u32);
        let result = match call {
            Call::Receive => {
                let flags = libc::MSG_DONTWAIT;
                let no_timeout = ptr::null_mut::<libc::timespec>();
                // SAFETY: the message was just filled in; its buffer lies above the tail, where nothing is lent
                // out; the kernel writes to that buffer and to the message.
                unsafe { libc::syscall(libc::SYS_recvmmsg, socket, message, one, flags, no_timeout) }
            }
            Call::Send => {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: the message was just filled in by `send`, which borrows the bytes while this lasts; the kernel
                // reads them and writes to the message.
                unsafe { libc::syscall(libc::SYS_sendmmsg, socket, message, one, flags) }
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(self.moved() as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value's maker with that length, and nothing that was lent out is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("tail", &self.tail).field("reserved", &self.reserved).finish_non_exhaustive()
    }
}
