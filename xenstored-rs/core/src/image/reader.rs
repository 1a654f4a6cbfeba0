//! Bytes to values. Whatever the bytes are, nothing is taken from outside of them, and no more memory than stands in a
//! fixed proportion to them.

use super::{FORMAT, FRAME, ImageError, ImageFault, MAGIC, PIECE, START, SUM, Stored, Tag};
use crate::permission::Permissions;

/// Reads an image.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    /// All but the checksum.
    bytes: &'b [u8],
    at: usize,
    /// Where the piece ends that is being read.
    end: usize,
    tag: Option<Tag>,
    lists: Vec<Permissions>,
}

impl<'b> Reader<'b> {
    /// Begins with an image that is whole.
    ///
    /// # Errors
    /// Where it is not, or not an image, or one of a later version.
    pub(crate) fn new(bytes: &'b [u8]) -> Result<Self, ImageError> {
        let fail = |offset, fault| Err(ImageError { offset, fault });
        match bytes.get(..START) {
            Some(start) if &start[..MAGIC.len()] == MAGIC => {
                let found = start[MAGIC.len()];
                if found != FORMAT {
                    return fail(MAGIC.len(), ImageFault::Newer { found, known: FORMAT });
                }
            }
            Some(_) => return fail(0, ImageFault::NotAnImage),
            None => return fail(bytes.len(), ImageFault::Short),
        }
        let Some((bytes, sum)) = bytes.split_last_chunk::<SUM>().filter(|(bytes, _)| bytes.len() >= START) else {
            return fail(bytes.len(), ImageFault::Short);
        };
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
            return fail(bytes.len(), ImageFault::Checksum);
        }
        Ok(Self { bytes, at: START, end: START, tag: None, lists: Vec::new() })
    }

    /// Ends the section before, and begins that one.
    ///
    /// # Errors
    /// Where the one before goes on, or another follows.
    pub(crate) fn section(&mut self, tag: Tag) -> Result<(), ImageError> {
        self.tag = Some(tag);
        self.piece(tag)
    }

    /// Begins a record.
    ///
    /// # Errors
    /// Where the section has no more.
    pub(crate) fn record(&mut self) -> Result<(), ImageError> {
        match self.tag {
            Some(tag) if self.at == self.end => self.piece(tag),
            _ => Ok(()),
        }
    }

    fn piece(&mut self, tag: Tag) -> Result<(), ImageError> {
        if self.at < self.end {
            return Err(self.error(ImageFault::Long));
        }
        let Some((frame, body)) = self.bytes[self.at..].split_first_chunk::<FRAME>() else {
            return Err(self.error(ImageFault::Section { expected: tag as u8 }));
        };
        let [found, version, len @ ..] = *frame;
        if found != tag as u8 {
            return Err(self.error(ImageFault::Section { expected: tag as u8 }));
        }
        if !(1..=tag.version()).contains(&version) {
            self.at += 1;
            return Err(self.error(ImageFault::Newer { found: version, known: tag.version() }));
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > body.len() {
            return Err(self.error(ImageFault::Short));
        }
        self.at += FRAME;
        self.end = self.at + len;
        Ok(())
    }

    /// Makes sure that all was read.
    ///
    /// # Errors
    /// Where something is left.
    pub(crate) fn finish(self) -> Result<(), ImageError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error(ImageFault::Long)) }
    }

    fn error(&self, fault: ImageFault) -> ImageError {
        ImageError { offset: self.at, fault }
    }

    /// That a value cannot be which was just read, or is due.
    pub(crate) fn wrong(&self, what: &'static str) -> ImageError {
        self.error(ImageFault::Value(what))
    }

    /// Bytes left of this piece: a count of more things than that is wrong, since each has a byte at least.
    fn left(&self) -> usize {
        self.end - self.at
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'b [u8], ImageError> {
        if count > self.left() {
            return Err(self.error(ImageFault::Short));
        }
        let bytes = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(bytes)
    }

    /// A byte as it is.
    pub(crate) fn byte(&mut self) -> Result<u8, ImageError> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A number.
    pub(crate) fn number(&mut self) -> Result<u64, ImageError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number"))
    }

    /// A count of things that follow in this piece.
    pub(crate) fn count(&mut self) -> Result<usize, ImageError> {
        let count = usize::restore(self)?;
        if count > self.left() { Err(self.error(ImageFault::Short)) } else { Ok(count) }
    }

    /// A value whose type tells how it is read.
    pub(crate) fn get<T: Stored>(&mut self) -> Result<T, ImageError> {
        T::restore(self)
    }

    /// Bytes with their count.
    pub(crate) fn bytes(&mut self) -> Result<&'b [u8], ImageError> {
        let count = self.count()?;
        self.take(count)
    }

    /// Bytes of which there may be many.
    pub(crate) fn many_bytes(&mut self) -> Result<Vec<u8>, ImageError> {
        let mut left = usize::restore(self)?;
        let mut bytes = Vec::with_capacity(left.min(self.bytes.len() - self.at));
        while left > 0 {
            self.record()?;
            let piece = self.take(left.min(PIECE))?;
            bytes.extend_from_slice(piece);
            left -= piece.len();
        }
        Ok(bytes)
    }

    /// A permission list; equal ones share memory.
    pub(crate) fn permissions(&mut self) -> Result<Permissions, ImageError> {
        let place = usize::restore(self)?;
        if let Some(list) = self.lists.get(place) {
            return Ok(list.clone());
        }
        if place > self.lists.len() {
            return Err(self.wrong("a permission list"));
        }
        let list = Permissions::restore_entries(self)?;
        self.lists.push(list.clone());
        Ok(list)
    }
}
