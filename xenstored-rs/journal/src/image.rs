//! Images: the whole state at the beginning of a log.
//!
//! An image is a heading, which has the content's length and checksum, and the content. It has its name only when it is
//! whole.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    blocks::check_limit,
    directory::{Directory, Temporary, open_plain},
    error::Error,
    heading::{BootId, FileHeading, Form, Heading},
    layout::HEADING,
};

/// Bytes that are written, or checked, at a time.
const CHUNK: usize = 256 << 10;

/// An image that is being written. Dropped before it is finished, it leaves nothing.
///
/// In a child that was forked from a process of one thread it is as good as in its parent: it makes and writes a file.
#[derive(Debug)]
pub struct ImageWriter {
    content: BufWriter<Summed>,
    temporary: Temporary,
    heading: Heading,
    path: PathBuf,
}

/// A file whose content is summed on its way.
#[derive(Debug)]
struct Summed {
    file: File,
    len: u64,
    checksum: u32,
}

impl ImageWriter {
    /// Begins the image that a log starts from, `log` being that log's heading.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(directory: &Directory, log: &Heading) -> Result<Self, Error> {
        let path = directory.file(Form::Image, log.number);
        let temporary = directory.create_temporary(Form::Image, log.number)?;
        let failed = || Error::io("write", temporary.path());
        let mut file = temporary.file().try_clone().map_err(failed())?;
        file.seek(SeekFrom::Start(HEADING as u64)).map_err(failed())?;
        let content = BufWriter::with_capacity(CHUNK, Summed { file, len: 0, checksum: 0 });
        Ok(Self { content, temporary, heading: log.clone(), path })
    }

    /// Writes what is left and gives the file its name; one that had the name is replaced.
    ///
    /// # Errors
    /// If something could not be written. Nothing is left then.
    pub fn finish(self) -> Result<(), Error> {
        let failed = || Error::io("write", self.temporary.path());
        let Summed { len, checksum, .. } = self.content.into_inner().map_err(|error| failed()(error.into_error()))?;
        let whole = FileHeading { heading: self.heading, size: len, checksum };
        self.temporary.file().write_all_at(&whole.encode(Form::Image), 0).map_err(failed())?;
        self.temporary.keep_over(&self.path)?;
        Ok(())
    }
}

impl Write for ImageWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.content.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.content.flush()
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check_limit((HEADING + bytes.len()) as u64 + self.len)?;
        let count = self.file.write(bytes)?;
        self.len += count as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An image that was read.
#[derive(Clone, Debug)]
pub struct Image {
    heading: Heading,
    content: Vec<u8>,
}

impl Image {
    /// Reads the image of a number.
    ///
    /// # Errors
    /// If it cannot be read, is of another boot or a newer format, or not whole.
    pub fn open(directory: &Directory, number: u64) -> Result<Self, Error> {
        Self::take(Unread::open(directory, number)?)
    }

    /// Reads any file that is an image of this boot.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_file(path: &Path) -> Result<Self, Error> {
        let boot = BootId::current().map_err(Error::io("learn of the boot for", path))?;
        Self::take(Unread::of(path.into(), open_plain(path, false)?, boot)?)
    }

    fn take(unread: Unread) -> Result<Self, Error> {
        let mut content = Vec::new();
        let no_memory = Error::io("find memory for", &unread.path);
        content.try_reserve_exact(unread.len).map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let heading = unread.read(|chunk| content.extend_from_slice(chunk))?;
        Ok(Self { heading, content })
    }

    /// Reads the image of a number to see whether it is whole.
    pub(crate) fn check(directory: &Directory, number: u64) -> Result<(), Error> {
        Unread::open(directory, number)?.read(|_| {}).map(drop)
    }

    /// What the image says of itself.
    #[must_use]
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Its content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}

/// An image of which only the heading was read.
struct Unread {
    path: PathBuf,
    file: File,
    heading: Heading,
    len: usize,
    checksum: u32,
}

impl Unread {
    fn open(directory: &Directory, number: u64) -> Result<Self, Error> {
        let path = directory.file(Form::Image, number);
        let file = directory.open_file(&path, false)?;
        let unread = Self::of(path, file, directory.boot())?;
        if unread.heading.number != number {
            return Err(Error::misnamed(&unread.path));
        }
        Ok(unread)
    }

    fn of(path: PathBuf, file: File, boot: BootId) -> Result<Self, Error> {
        let size = file.metadata().map_err(Error::io("look at", &path))?.len();
        let mut beginning = Vec::with_capacity(HEADING);
        Read::take(&file, HEADING as u64).read_to_end(&mut beginning).map_err(Error::io("read", &path))?;
        let whole = FileHeading::decode(&path, &beginning, Form::Image, Some(boot))?;
        match usize::try_from(whole.size) {
            Ok(len) if size.checked_sub(HEADING as u64) == Some(whole.size) => {
                Ok(Self { path, file, heading: whole.heading, len, checksum: whole.checksum })
            }
            _ => Err(Error::damaged(&path, 48, "the content has not the length that the heading says")),
        }
    }

    /// Reads the content, in pieces.
    fn read(mut self, mut take: impl FnMut(&[u8])) -> Result<Heading, Error> {
        let mut chunk = vec![0; CHUNK];
        let (mut left, mut checksum) = (self.len, 0);
        while left > 0 {
            let most = chunk.len().min(left);
            match self.file.read(&mut chunk[..most]) {
                Ok(0) => return Err(Error::damaged(&self.path, 48, "the content ends too early")),
                Ok(count) => {
                    checksum = crc32c::crc32c_append(checksum, &chunk[..count]);
                    take(&chunk[..count]);
                    left -= count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", &self.path)(error)),
            }
        }
        if checksum != self.checksum {
            return Err(Error::damaged(&self.path, HEADING, "the checksum of the content is wrong"));
        }
        Ok(self.heading)
    }
}
