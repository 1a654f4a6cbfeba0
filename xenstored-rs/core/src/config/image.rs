//! Settings in an image.

use super::Config;
use crate::{
    domain::Existence,
    image::{ImageError, Reader, Stored, Tag, Writer},
    pool::BufferCap,
};

impl Stored for Existence {
    fn save(&self, out: &mut Writer<'_>) {
        out.byte(match self {
            Self::Assumed => 1,
            Self::Told => 2,
            Self::Asked => 3,
        });
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        match input.byte()? {
            1 => Ok(Self::Assumed),
            2 => Ok(Self::Told),
            3 => Ok(Self::Asked),
            _ => Err(input.wrong("a way of telling which domains exist")),
        }
    }
}

impl Stored for BufferCap {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { bytes, source } = self;
        bytes.save(out);
        source.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { bytes: input.get()?, source: input.get()? })
    }
}

impl Config {
    /// Writes the settings.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        let Self { store_domid, priv_domid, existence, limits, keep_orphans, event_timeout, buffers } = self;
        out.section(Tag::Settings);
        store_domid.save(out);
        priv_domid.save(out);
        existence.save(out);
        limits.save(out);
        keep_orphans.save(out);
        event_timeout.save(out);
        buffers.save(out);
    }

    /// Reads the settings.
    pub(crate) fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.section(Tag::Settings)?;
        Ok(Self {
            store_domid: input.get()?,
            priv_domid: input.get()?,
            existence: input.get()?,
            limits: input.get()?,
            keep_orphans: input.get()?,
            event_timeout: input.get()?,
            buffers: input.get()?,
        })
    }
}
