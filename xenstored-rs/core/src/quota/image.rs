//! Limits in an image.

use super::{Limits, OwnLimits};
use crate::image::{ImageError, Reader, Stored, Writer};

impl Stored for Limits {
    fn save(&self, out: &mut Writer<'_>) {
        let Self(limits) = self;
        limits.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.get().map(Self)
    }
}

impl Stored for OwnLimits {
    fn save(&self, out: &mut Writer<'_>) {
        let Self(limits) = self;
        limits.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.get().map(Self)
    }
}
