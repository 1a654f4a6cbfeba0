//! A log that is read, without being changed.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    directory::{Directory, open_plain},
    error::Error,
    heading::{BootId, FileHeading, Form, Heading},
    layout::{
        CONVICTS, CONVICTS_AT, DEATHS_AT, EXECUTING_AT, MAX_CAPACITY, PAGE, POSITION, POSITIONS, RECORDS_AT,
        RESERVED_AT, SUSPECT_AT, TABLE_AT, TABLE_RESERVED_AT, TAIL_AT,
    },
    note::Note,
    positions::Position,
    record::Records,
    suspect::Suspect,
};

/// The header of a log, checked.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) heading: Heading,
    pub(crate) capacity: usize,
    pub(crate) tail: usize,
    pub(crate) reserved: usize,
    pub(crate) table_reserved: usize,
    pub(crate) note: Option<Note>,
}

impl Header {
    /// Reads the first page of the file `path`, which is `size` bytes long.
    pub(crate) fn decode(path: &Path, page: &[u8], size: u64, boot: Option<BootId>) -> Result<Self, Error> {
        let FileHeading { heading, size: capacity, .. } = FileHeading::decode(path, page, Form::Log, boot)?;
        let page: &[u8; PAGE] = page.first_chunk().ok_or_else(|| Error::damaged(path, 0, "the header is cut"))?;
        let damaged = |at, what| Error::damaged(path, at, what);
        let place = |at: usize| usize::try_from(number(page, at)).unwrap_or(usize::MAX);
        let capacity = usize::try_from(capacity).ok().filter(|capacity| *capacity <= MAX_CAPACITY);
        let capacity = capacity.ok_or_else(|| damaged(48, "a capacity that nobody gives"))?;
        let (tail, reserved, table_reserved) = (place(TAIL_AT), place(RESERVED_AT), place(TABLE_RESERVED_AT));
        if !(RECORDS_AT..=RECORDS_AT + capacity).contains(&reserved) {
            return Err(damaged(RESERVED_AT, "blocks beyond the capacity"));
        }
        if !(TABLE_AT..=RECORDS_AT).contains(&table_reserved) || !table_reserved.is_multiple_of(PAGE) {
            return Err(damaged(TABLE_RESERVED_AT, "blocks beyond the table"));
        }
        if !(RECORDS_AT..=reserved).contains(&tail) || !tail.is_multiple_of(8) {
            return Err(damaged(TAIL_AT, "the tail is not where a record could end"));
        }
        if tail as u64 > size {
            return Err(damaged(TAIL_AT, "the tail lies beyond the end of the file"));
        }
        let note = Note::decode(path, |at| number(page, at), tail, reserved)?;
        Ok(Self { heading, capacity, tail, reserved, table_reserved, note })
    }
}

/// A log that is read. What a living process does to it meanwhile is not seen, and can make what is seen look damaged.
#[derive(Clone, Debug)]
pub struct LogFile<B = Vec<u8>> {
    path: PathBuf,
    header: Header,
    bytes: B,
}

impl LogFile {
    /// Reads a log of a directory, of this boot.
    ///
    /// # Errors
    /// If it cannot be read, is of another boot or a newer format, or its header is damaged.
    pub fn open(directory: &Directory, number: u64) -> Result<Self, Error> {
        let path = directory.file(Form::Log, number);
        let file = directory.open_file(&path, false)?;
        let log = Self::read(&path, file, Some(directory.boot()))?;
        if log.heading().number != number {
            return Err(Error::misnamed(&path));
        }
        Ok(log)
    }

    /// Reads any file that is a log, of whatever boot, for a person to look at.
    ///
    /// # Errors
    /// If it cannot be read, is of a newer format, or its header is damaged.
    pub fn open_any(path: &Path) -> Result<Self, Error> {
        Self::read(path, open_plain(path, false)?, None)
    }

    /// The request that is being executed at this moment by who writes the log `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn executing_now(path: &Path) -> Result<Option<u64>, Error> {
        let mut executing = [0; 8];
        let read = open_plain(path, false)?.read_exact_at(&mut executing, EXECUTING_AT as u64);
        read.map_err(Error::io("read", path))?;
        Ok(u64::from_ne_bytes(executing).checked_sub(1))
    }

    fn read(path: &Path, mut file: File, boot: Option<BootId>) -> Result<Self, Error> {
        let size = file.metadata().map_err(Error::io("look at", path))?.len();
        let mut bytes = Vec::new();
        file.by_ref().take(PAGE as u64).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        let header = Header::decode(path, &bytes, size, boot)?;
        let rest = (header.tail - bytes.len()) as u64;
        file.take(rest).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        Self::from_parts(path, header, bytes)
    }
}

impl<B: AsRef<[u8]>> LogFile<B> {
    /// Takes the whole content of a file for a log, of whatever boot.
    ///
    /// # Errors
    /// If it is none, is of a newer format, or its header is damaged.
    pub fn from_bytes(path: &Path, bytes: B) -> Result<Self, Error> {
        let header = Header::decode(path, bytes.as_ref(), bytes.as_ref().len() as u64, None)?;
        Self::from_parts(path, header, bytes)
    }

    fn from_parts(path: &Path, header: Header, bytes: B) -> Result<Self, Error> {
        if bytes.as_ref().len() < header.tail {
            return Err(Error::damaged(path, TAIL_AT, "the tail lies beyond the end of the file"));
        }
        Ok(Self { path: path.into(), header, bytes })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the log says of itself.
    #[must_use]
    pub fn heading(&self) -> &Heading {
        &self.header.heading
    }

    /// Bytes that its records take.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.tail - RECORDS_AT
    }

    /// It has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records, first to last.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.path, &self.bytes.as_ref()[RECORDS_AT..self.header.tail])
    }

    /// What the call under way at the writer's death moved, of which no record was sealed.
    #[must_use]
    pub fn note(&self) -> Option<Note> {
        self.header.note
    }

    /// The request that was being executed.
    #[must_use]
    pub fn in_execution(&self) -> Option<u64> {
        self.number(EXECUTING_AT).checked_sub(1)
    }

    /// The suspect.
    #[must_use]
    pub fn suspect(&self) -> Option<Suspect> {
        let deaths = self.number(DEATHS_AT);
        (deaths > 0).then(|| Suspect { number: self.number(SUSPECT_AT), deaths })
    }

    /// The requests that are never to be executed again.
    pub fn convicts(&self) -> impl Iterator<Item = u64> {
        (0..CONVICTS).map_while(|place| self.number(CONVICTS_AT + 8 * place).checked_sub(1))
    }

    /// The position of stream `index`, if one was set in this log.
    #[must_use]
    pub fn position(&self, index: u32) -> Option<Position> {
        if index >= self.positions_there() {
            return None;
        }
        let entry = TABLE_AT + index as usize * POSITION;
        let at = self.number(entry + 8);
        (at != 0).then(|| Position { value: self.number(entry), at })
    }

    /// The positions that were set, by index.
    pub fn positions(&self) -> impl Iterator<Item = (u32, Position)> + '_ {
        (0..self.positions_there()).filter_map(|index| Some((index, self.position(index)?)))
    }

    /// Entries of the table for which there are blocks: beyond them are zeroes.
    fn positions_there(&self) -> u32 {
        u32::try_from((self.header.table_reserved - TABLE_AT) / POSITION).unwrap_or(POSITIONS)
    }

    fn number(&self, at: usize) -> u64 {
        number(self.bytes.as_ref(), at)
    }
}

/// The number at a place that is there, in the machine's order.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(number)
}
