//! Where things are in a file. The numbers of headings and records are little endian. Those of the header and the table
//! that change are in the machine's order: no other machine has any use for them.
//!
//! A log is a page of header, the table of positions, and the records. An image is a heading and the content.
//!
//! | bytes of the header | what |
//! |---|---|
//! | 0..512 | the heading: who wrote the file, when; never changes |
//! | 512..576 | tail, ends of the allocated blocks |
//! | 576..640 | what is being executed, the suspect |
//! | 640..696 | the note: the system call under way |
//! | 696..784 | the message header of that call, in the kernel's layout |
//! | 1024..2048 | the convicts |

use core::mem::offset_of;

/// Version of the format of logs and images. A file of a higher one is refused.
pub const FORMAT: u32 = 1;

/// Connections that can have a position in a log; see [`Log::set_position`](crate::Log::set_position).
pub const POSITIONS: u32 = 65_536;

/// First bytes of a log.
pub(crate) const LOG_MAGIC: [u8; 8] = *b"xs-log\r\n";
/// First bytes of an image.
pub(crate) const IMAGE_MAGIC: [u8; 8] = *b"xs-img\r\n";

/// Unit in which blocks are allocated for the table: the smallest page of any machine.
pub(crate) const PAGE: usize = 4096;
/// Unit in which blocks are allocated for records.
pub(crate) const STEP: usize = 1 << 20;
/// Bytes of records that a log holds at most if nothing else is said.
pub(crate) const DEFAULT_CAPACITY: usize = if cfg!(miri) { 1 << 20 } else { 64 << 20 };
/// The largest that can be said.
pub(crate) const MAX_CAPACITY: usize = 1 << 30;

/// Length of the heading.
pub(crate) const HEADING: usize = 512;

/// End of what is sealed, from the start of the file.
pub(crate) const TAIL_AT: usize = 512;
/// End of the blocks allocated for records, from the start of the file.
pub(crate) const RESERVED_AT: usize = 520;
/// End of the blocks allocated for the table of positions, from the start of the file.
pub(crate) const TABLE_RESERVED_AT: usize = 528;

/// What is being executed, plus one; 0 is nothing.
pub(crate) const EXECUTING_AT: usize = 576;
/// Number of the suspect.
pub(crate) const SUSPECT_AT: usize = 584;
/// Deaths of the suspect; 0 is no suspect.
pub(crate) const DEATHS_AT: usize = 592;

/// Numbers of the convicts, plus one; 0 is a free place.
pub(crate) const CONVICTS_AT: usize = 1024;
/// Places for them.
pub(crate) const CONVICTS: usize = 128;

/// What kind of call the note is about; 0 is none.
pub(crate) const NOTE_CALL_AT: usize = 640;
/// The tail at which the note applies.
pub(crate) const NOTE_TAIL_AT: usize = 648;
/// Kind of the record that is to come of it.
pub(crate) const NOTE_KIND_AT: usize = 656;
/// Connection of that record.
pub(crate) const NOTE_CONN_AT: usize = 664;
/// Time of that record.
pub(crate) const NOTE_TIME_AT: usize = 672;
/// Bytes of that record's payload that stand before what is received.
pub(crate) const NOTE_PREFIX_AT: usize = 680;
/// Most bytes that the call may move.
pub(crate) const NOTE_MAX_AT: usize = 688;

/// The count that the kernel stores: at a fixed place, so that the size of a pointer does not matter to who reads it.
pub(crate) const MSG_LEN_AT: usize = 760;
/// The message header around it.
pub(crate) const MESSAGE_AT: usize = MSG_LEN_AT - offset_of!(Message, msg_len);
/// The one buffer that it points to.
pub(crate) const BUFFER_AT: usize = 768;

/// Start of the table of positions.
pub(crate) const TABLE_AT: usize = PAGE;
/// Bytes of an entry of it: value and tail.
pub(crate) const POSITION: usize = 16;
/// Where the records of a log start, in bytes from the start of the file.
pub const RECORDS_AT: usize = TABLE_AT + POSITIONS as usize * POSITION;

/// The kernel's `struct mmsghdr`, which is not in all libcs the one of their headers.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: MessageHeader,
    pub(crate) msg_len: u32,
}

/// The kernel's `struct user_msghdr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct MessageHeader {
    pub(crate) name: *mut u8,
    pub(crate) name_len: i32,
    pub(crate) buffers: *mut Buffer,
    pub(crate) buffer_count: usize,
    pub(crate) control: *mut u8,
    pub(crate) control_len: usize,
    pub(crate) flags: u32,
}

/// The kernel's `struct iovec`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

const _: () = {
    assert!(MESSAGE_AT >= NOTE_MAX_AT + 8 && MESSAGE_AT.is_multiple_of(align_of::<Message>()));
    assert!(BUFFER_AT >= MESSAGE_AT + size_of::<Message>() && BUFFER_AT.is_multiple_of(align_of::<Buffer>()));
    assert!(MSG_LEN_AT.is_multiple_of(8));
    assert!(BUFFER_AT + size_of::<Buffer>() <= CONVICTS_AT && CONVICTS_AT + 8 * CONVICTS <= PAGE);
    assert!(RECORDS_AT.is_multiple_of(PAGE));
};

/// `len` rounded up to where the next record may start.
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// The first four bytes, in memory, of a number that takes eight.
pub(crate) fn first_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}
