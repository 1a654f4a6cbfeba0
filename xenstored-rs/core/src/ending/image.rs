//! Domains that end, in an image.

use super::{Ending, News, Walked};
use crate::image::{ImageError, Reader, Stored, Writer};

impl Stored for Walked {
    fn save(&self, out: &mut Writer<'_>) {
        match self {
            Self::Nothing => out.byte(1),
            Self::To(path) => {
                out.byte(2);
                path.save(out);
            }
            Self::All => out.byte(3),
        }
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        match input.byte()? {
            1 => Ok(Self::Nothing),
            2 => input.get().map(Self::To),
            3 => Ok(Self::All),
            _ => Err(input.wrong("a place in a walk")),
        }
    }
}

impl Stored for News {
    fn save(&self, out: &mut Writer<'_>) {
        let domid = match self {
            Self::Any => None,
            Self::Of(domid) => Some(*domid),
        };
        domid.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let domid: Option<_> = input.get()?;
        Ok(domid.map_or(Self::Any, Self::Of))
    }
}

impl Stored for Ending {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { gone, connections, walked, news } = self;
        gone.save(out);
        connections.save(out);
        walked.save(out);
        news.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { gone: input.get()?, connections: input.get()?, walked: input.get()?, news: input.get()? })
    }
}
