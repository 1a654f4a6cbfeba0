//! Permission lists in an image.

use super::{Access, Entries, Permission, Permissions};
use crate::image::{ImageError, Reader, Stored, Writer};

impl Stored for Permission {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { domid, access, ignored } = self;
        domid.save(out);
        out.byte(access.letter());
        ignored.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let domid = input.get()?;
        let access = Access::from_letter(input.byte()?).ok_or_else(|| input.wrong("an access"))?;
        Ok(Self { domid, access, ignored: input.get()? })
    }
}

impl Permissions {
    /// Where the list stands in memory: the same for lists that share it.
    pub(crate) fn address(&self) -> usize {
        std::rc::Rc::as_ptr(&self.entries).addr()
    }

    /// Writes the entries; [`Writer::permissions`] does it once for equal lists.
    pub(crate) fn save_entries(&self, out: &mut Writer<'_>) {
        let Entries { owner, others } = &*self.entries;
        owner.save(out);
        out.count(others.len());
        others.iter().for_each(|entry| entry.save(out));
    }

    /// Reads the entries.
    pub(crate) fn restore_entries(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self::new(input.get()?, input.get()?))
    }
}
