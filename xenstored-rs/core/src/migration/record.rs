//! Numbers of the stream (`docs/designs/xenstore-migration.md`).

/// First bytes of a stream.
pub(super) const IDENT: &[u8; 8] = b"xenstore";

/// Bytes of the stream's header: ident, version, flags.
pub(super) const HEADER: usize = 16;

/// Flag: numbers are big-endian.
pub(super) const BIG_ENDIAN: u32 = 1;

/// Bytes of a record's header: type, length.
pub(super) const RECORD_HEADER: usize = 8;

/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

/// Types of records.
pub(super) mod kind {
    pub(in super::super) const END: u32 = 0;
    pub(in super::super) const GLOBAL: u32 = 1;
    pub(in super::super) const CONNECTION: u32 = 2;
    pub(in super::super) const WATCH: u32 = 3;
    pub(in super::super) const TRANSACTION: u32 = 4;
    pub(in super::super) const NODE: u32 = 5;
    pub(in super::super) const GLOBAL_QUOTA: u32 = 6;
    pub(in super::super) const DOMAIN: u32 = 7;
    pub(in super::super) const WATCH_EXTENDED: u32 = 8;
}

/// Kinds of connections.
pub(super) const RING: u16 = 0;
pub(super) const SOCKET: u16 = 1;

/// Bit of a connection's fields: a unique id follows the data.
pub(super) const HAS_UNIQUE_ID: u16 = 1;

/// No domain, where a target would be named.
pub(super) const NO_DOMAIN: u16 = 0x7ff4;

/// Depth of a watch without a limit.
pub(super) const NO_DEPTH: u16 = 0xffff;

/// Access of a node in a transaction: it was deleted.
pub(super) const WRITTEN: u16 = 2;

/// Flag of a permission entry: it does not count.
pub(super) const IGNORED: u8 = 1;

/// `len` rounded up to where the next record may begin.
pub(super) fn aligned(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}
