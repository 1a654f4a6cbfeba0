//! Values that need nothing but themselves to be read again.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use xenstore_wire::Header;

use super::{ImageError, Reader, Writer};
use crate::id::{ConnId, DomId, Time, TxId};

/// A value of an image.
pub(crate) trait Stored: Sized {
    /// Writes it.
    fn save(&self, out: &mut Writer<'_>);

    /// Reads it.
    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn save(&self, out: &mut Writer<'_>) {
                out.number(u64::try_from(*self).expect("a number has 64 bits at most"));
            }

            fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
                let number = input.number()?;
                Self::try_from(number).map_err(|_| input.wrong("a number"))
            }
        }
    )*};
}

numbers!(u16, u32, u64, usize);

impl Stored for i64 {
    fn save(&self, out: &mut Writer<'_>) {
        out.number(((self << 1) ^ (self >> 63)).cast_unsigned());
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let number = input.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl Stored for bool {
    fn save(&self, out: &mut Writer<'_>) {
        out.byte(u8::from(*self));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(input.wrong("a flag")),
        }
    }
}

impl<T: Stored> Stored for Option<T> {
    fn save(&self, out: &mut Writer<'_>) {
        self.is_some().save(out);
        self.iter().for_each(|value| value.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        bool::restore(input)?.then(|| T::restore(input)).transpose()
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn save(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.iter().for_each(|value| value.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let count = input.count()?;
        (0..count).map(|_| T::restore(input)).collect()
    }
}

impl<T: Stored> Stored for VecDeque<T> {
    fn save(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.iter().for_each(|value| value.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Vec::restore(input).map(Self::from)
    }
}

impl<T: Stored + Ord> Stored for BTreeSet<T> {
    fn save(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.iter().for_each(|value| value.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Vec::restore(input).map(Self::from_iter)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn save(&self, out: &mut Writer<'_>) {
        let (one, other) = self;
        one.save(out);
        other.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok((input.get()?, input.get()?))
    }
}

impl<T: Stored, const N: usize> Stored for [T; N] {
    fn save(&self, out: &mut Writer<'_>) {
        out.count(N);
        self.iter().for_each(|value| value.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let values: Vec<T> = input.get()?;
        Self::try_from(values).map_err(|_| input.wrong("a number of values"))
    }
}

impl Stored for Box<[u8]> {
    fn save(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        input.bytes().map(Self::from)
    }
}

impl Stored for String {
    fn save(&self, out: &mut Writer<'_>) {
        out.bytes(self.as_bytes());
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let bytes = input.bytes()?;
        std::str::from_utf8(bytes).map(Self::from).map_err(|_| input.wrong("a text"))
    }
}

impl Stored for Duration {
    fn save(&self, out: &mut Writer<'_>) {
        out.number(self.as_secs());
        self.subsec_nanos().save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let (seconds, nanoseconds) = (input.get()?, input.get()?);
        if nanoseconds >= 1_000_000_000 {
            return Err(input.wrong("a time"));
        }
        Ok(Self::new(seconds, nanoseconds))
    }
}

macro_rules! wrapped {
    ($($wrapper:ident),*) => {$(
        impl Stored for $wrapper {
            fn save(&self, out: &mut Writer<'_>) {
                let Self(inner) = self;
                inner.save(out);
            }

            fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
                input.get().map(Self)
            }
        }
    )*};
}

wrapped!(DomId, ConnId, TxId, Time);

impl Stored for Header {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { op, req_id, tx_id, len } = self;
        [op, req_id, tx_id, len].into_iter().for_each(|word| word.save(out));
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { op: input.get()?, req_id: input.get()?, tx_id: input.get()?, len: input.get()? })
    }
}
