//! A log that is being written.

use core::sync::atomic::Ordering::{Relaxed, Release};
use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use crate::{
    blocks::allocate,
    directory::Directory,
    error::Error,
    heading::{BootId, FileHeading, Form, Heading},
    layout::{DEFAULT_CAPACITY, PAGE, POSITION, RECORDS_AT, STEP, TABLE_AT, TABLE_RESERVED_AT, TAIL_AT, padded},
    log_file::Header,
    mapping::Mapping,
    note::{Note, Settled},
    record::{HEADER, RecordHeader, Records},
    tail::Tail,
};

/// Why a log takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// It has the size it was made for: the next one is due.
    #[error("the log has its full size")]
    AtCapacity,
    /// The file system, or a limit on files, gives no more blocks.
    #[error("no blocks for the log: {0}")]
    NoSpace(Errno),
}

/// Where a payload is in a log. It is good until the log is rewound to before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    /// Bytes of the payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// It has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The payload without its first `count` bytes (a prefix); empty if it has no more.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        let count = count.min(self.len);
        Self { start: self.start + count, len: self.len - count }
    }
}

/// A place between two records, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(crate) usize);

/// A log that is being written: mapped, shared with the file, one writer.
///
/// Records are added through `&self`, so that a payload can be read while others come behind it. Only taking records
/// back needs `&mut self`.
///
/// After a fork both processes have the same log; the child must leave it alone.
#[derive(Debug)]
pub struct Log {
    pub(crate) map: Mapping,
    /// None in memory.
    file: Option<File>,
    path: PathBuf,
    heading: Heading,
    settled: Option<Settled>,
}

impl Log {
    /// Makes the first log of a new history, with the next number that is free.
    ///
    /// # Errors
    /// If the file cannot be made, or has no room for its first records.
    pub fn first(directory: &Directory, writer: &str) -> Result<Self, Error> {
        let number = directory.next_number()?;
        let heading = Heading::first(directory.boot(), number, writer)
            .map_err(Error::io("make a random number for", directory.path()))?;
        Self::create(directory, heading)
    }

    /// Makes the log that continues this one. Nothing more is written to this one then.
    ///
    /// # Errors
    /// As [`Log::first`]. Nothing is left of the new log, and this one can be used on.
    pub fn next(&self, directory: &Directory, writer: &str) -> Result<Self, Error> {
        Self::create(directory, self.heading.next(writer))
    }

    fn create(directory: &Directory, heading: Heading) -> Result<Self, Error> {
        let path = directory.file(Form::Log, heading.number);
        let temporary = directory.create_temporary(Form::Log, heading.number)?;
        let (file, capacity) = (temporary.file(), directory.capacity());
        let whole = FileHeading { heading, size: capacity as u64, checksum: 0 };
        let reserved = RECORDS_AT + STEP.min(capacity);
        allocate(file, 0, PAGE)
            .and_then(|()| allocate(file, RECORDS_AT, reserved - RECORDS_AT))
            .map_err(Error::errno("allocate", &path))?;
        file.write_all_at(&whole.encode(Form::Log), 0).map_err(Error::io("write", &path))?;
        let map = Mapping::shared(file.as_fd(), RECORDS_AT + capacity).map_err(Error::io("map", &path))?;
        map.allow(reserved);
        map.atomic(TABLE_RESERVED_AT).store(TABLE_AT as u64, Relaxed);
        map.advance(RECORDS_AT);
        // From here on it is there, and whole.
        let file = temporary.keep_new(&path)?;
        Ok(Self { map, file: Some(file), path, heading: whole.heading, settled: None })
    }

    /// Opens a log to go on with it, after the death of who wrote it. What the call under way at that death moved
    /// becomes a record, as it would have become then: see [`Log::settled`].
    ///
    /// # Errors
    /// If it is not there, of another boot, of a newer format, or damaged; or if its blocks cannot be had.
    pub fn open(directory: &Directory, number: u64) -> Result<Self, Error> {
        let path = directory.file(Form::Log, number);
        let file = directory.open_file(&path, true)?;
        let size = file.metadata().map_err(Error::io("look at", &path))?.len();
        let mut page = [0; PAGE];
        match file.read_exact_at(&mut page, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Error::NotAJournal { path, expected: "log" });
            }
            read => read.map_err(Error::io("read", &path))?,
        }
        let header = Header::decode(&path, &page, size, Some(directory.boot()))?;
        if header.heading.number != number {
            return Err(Error::misnamed(&path));
        }
        // Should the file have been copied by something that leaves holes, they are filled now.
        let allocated = allocate(&file, 0, header.table_reserved)
            .and_then(|()| allocate(&file, RECORDS_AT, header.reserved - RECORDS_AT));
        allocated.map_err(Error::errno("allocate", &path))?;
        let mut map = Mapping::shared(file.as_fd(), RECORDS_AT + header.capacity).map_err(Error::io("map", &path))?;
        map.allow(header.reserved);
        map.allow_table(header.table_reserved);
        map.adopt_tail(header.tail);
        let mut log = Self { map, file: Some(file), path, heading: header.heading, settled: None };
        log.settled = log.settle(header.note)?;
        Ok(log)
    }

    /// Makes a log that is in no file: everything works, and nothing outlives the process. It takes memory for what is
    /// between its start and the furthest place that was written to, so it is best rewound to its
    /// [start](Log::start) often.
    ///
    /// # Errors
    /// If there is not that much address space.
    pub fn in_memory(writer: &str) -> io::Result<Self> {
        let heading =
            Heading { boot: BootId::from_bytes([0; 16]), history: 0, number: 0, begins: true, writer: writer.into() };
        let map = Mapping::anonymous(RECORDS_AT + DEFAULT_CAPACITY)?;
        Ok(Self { map, file: None, path: PathBuf::from("(memory)"), heading, settled: None })
    }

    /// It is in a file, and outlives the process.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// The file, open; none in memory.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The file; a name in brackets if there is none.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the log says of itself.
    #[must_use]
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.heading.number
    }

    /// Bytes that its records take.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.tail() - RECORDS_AT
    }

    /// It has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that its records may take.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.len() - RECORDS_AT
    }

    /// What became of the call that was under way when the log's writer died; it is the last record then. `None` if
    /// none was, or it moved nothing, or its record had been sealed.
    #[must_use]
    pub fn settled(&self) -> Option<Settled> {
        self.settled
    }

    /// Adds a record, whose payload is these pieces one after the other. Returns where the payload is.
    ///
    /// # Errors
    /// If there is no room; nothing is changed then.
    pub fn append(&self, kind: u16, conn: u32, time: u64, pieces: &[&[u8]]) -> Result<Span, Full> {
        let len = pieces.iter().fold(0_usize, |len, piece| len.saturating_add(piece.len()));
        self.make_room(len)?;
        let mut at = self.map.tail() + HEADER;
        for piece in pieces {
            self.map.write(at, piece);
            at += piece.len();
        }
        Ok(self.seal(kind, conn, time, len))
    }

    /// Room for a payload of up to `len` bytes behind the last record, to be written and sealed.
    ///
    /// # Errors
    /// If there is no room.
    pub fn tail(&mut self, len: usize) -> Result<Tail<'_>, Full> {
        self.make_room(len)?;
        Ok(Tail::new(self, len))
    }

    /// The payload at a place. It can be kept while records are added.
    ///
    /// # Panics
    /// If the log was rewound to before its end.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.map.sealed(span.start..span.start + span.len)
    }

    /// The records, first to last.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.path, self.map.sealed(RECORDS_AT..self.map.tail()))
    }

    /// The place behind the last record.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.map.tail())
    }

    /// The place before the first record.
    #[must_use]
    pub fn start(&self) -> Mark {
        Mark(RECORDS_AT)
    }

    /// Takes all records behind `mark` back. Nothing happens if that is the end already.
    pub fn rewind(&mut self, mark: Mark) {
        if mark.0 < self.map.tail() {
            // First, since the note may have been made at the very place that is gone back to.
            self.clear_note();
            self.map.retreat(mark.0);
        }
    }

    /// Sees to it that a record with a payload of `len` bytes fits.
    pub(crate) fn make_room(&self, len: usize) -> Result<(), Full> {
        let end = len
            .checked_next_multiple_of(8)
            .and_then(|len| len.checked_add(self.map.tail() + HEADER))
            .filter(|end| *end <= self.map.len())
            .ok_or(Full::AtCapacity)?;
        if end <= self.map.reserved() { Ok(()) } else { self.grow(end) }
    }

    #[cold]
    fn grow(&self, end: usize) -> Result<(), Full> {
        let Some(file) = &self.file else { return Err(Full::AtCapacity) };
        let reserved = self.map.reserved();
        let target = (RECORDS_AT + (end - RECORDS_AT).next_multiple_of(STEP)).min(self.map.len());
        allocate(file, reserved, target - reserved).map_err(Full::NoSpace)?;
        self.map.allow(target);
        Ok(())
    }

    /// Sees to it that the table's entry at `at` may be touched.
    pub(crate) fn make_room_in_table(&self, at: usize) -> Result<(), Full> {
        let end = (at + POSITION).next_multiple_of(PAGE);
        let reserved = self.map.table_reserved();
        if end <= reserved {
            return Ok(());
        }
        let Some(file) = &self.file else { return Err(Full::AtCapacity) };
        allocate(file, reserved, end - reserved).map_err(Full::NoSpace)?;
        self.map.allow_table(end);
        self.map.atomic(TABLE_RESERVED_AT).store(end as u64, Release);
        Ok(())
    }

    /// Seals the payload that stands behind the tail, with room made for it.
    pub(crate) fn seal(&self, kind: u16, conn: u32, time: u64, len: usize) -> Span {
        let at = self.map.tail();
        let start = at + HEADER;
        // A log's capacity is far below this.
        let len_field = u32::try_from(len).unwrap_or(u32::MAX);
        self.map.write(at, &RecordHeader { len: len_field, kind, conn, time }.encode());
        self.map.write(start + len, &[0; 8][..padded(len) - len]);
        let checksum = self.map.record_checksum(at..start + padded(len));
        self.map.write(at, &checksum.to_le_bytes());
        self.map.advance(start + padded(len));
        Span { start, len }
    }

    /// Makes a record of what the note tells.
    fn settle(&self, note: Option<Note>) -> Result<Option<Settled>, Error> {
        let Some(note) = note else { return Ok(None) };
        let no_room = |_| Error::damaged(&self.path, TAIL_AT, "a note for which there is no room");
        let settled = match note {
            Note::Received { conn, time, kind, prefix, count } => {
                self.make_room(prefix + count).map_err(no_room)?;
                let span = self.seal(kind, conn, time, prefix + count);
                Settled::Received { conn, kind, span, count }
            }
            Note::Sent { conn, time, kind, count } => {
                self.append(kind, conn, time, &[&(count as u64).to_le_bytes()]).map_err(no_room)?;
                Settled::Sent { conn, kind, count }
            }
        };
        Ok(Some(settled))
    }
}
