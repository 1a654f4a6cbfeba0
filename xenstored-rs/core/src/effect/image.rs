//! Questions and reasons in an image.

use super::{CloseReason, Question};
use crate::image::{ImageError, Reader, Stored, Writer};

impl Stored for CloseReason {
    fn save(&self, out: &mut Writer<'_>) {
        match self {
            Self::TooLong { len } => {
                out.byte(1);
                len.save(out);
            }
            Self::OutputFull { bytes } => {
                out.byte(2);
                bytes.save(out);
            }
            Self::RingIndex => out.byte(3),
            Self::Failed { what, op } => {
                out.byte(4);
                what.save(out);
                op.save(out);
            }
            Self::Gone => out.byte(5),
        }
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(match input.byte()? {
            1 => Self::TooLong { len: input.get()? },
            2 => Self::OutputFull { bytes: input.get()? },
            3 => Self::RingIndex,
            4 => Self::Failed { what: input.get()?, op: input.get()? },
            5 => Self::Gone,
            _ => return Err(input.wrong("a reason to close")),
        })
    }
}

impl Stored for Question {
    fn save(&self, out: &mut Writer<'_>) {
        match self {
            Self::Introduce { domid, gfn, port } => {
                out.byte(1);
                domid.save(out);
                gfn.save(out);
                port.save(out);
            }
            Self::Exist(domids) => {
                out.byte(2);
                domids.save(out);
            }
            Self::Log(words) => {
                out.byte(3);
                out.count(words.len());
                words.iter().for_each(|word| out.bytes(word));
            }
            Self::LogFile(file) => {
                out.byte(4);
                out.bytes(file);
            }
            Self::Report { file } => {
                out.byte(5);
                file.is_some().save(out);
                file.iter().for_each(|file| out.bytes(file));
            }
            Self::Turns => out.byte(6),
            Self::LiveUpdate(words) => {
                out.byte(7);
                out.count(words.len());
                words.iter().for_each(|word| out.bytes(word));
            }
        }
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(match input.byte()? {
            1 => Self::Introduce { domid: input.get()?, gfn: input.get()?, port: input.get()? },
            2 => Self::Exist(input.get()?),
            3 => {
                let count = input.count()?;
                Self::Log((0..count).map(|_| input.bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?)
            }
            4 => Self::LogFile(input.bytes()?.to_vec()),
            5 => Self::Report { file: bool::restore(input)?.then(|| input.bytes().map(<[u8]>::to_vec)).transpose()? },
            6 => Self::Turns,
            7 => {
                let count = input.count()?;
                Self::LiveUpdate((0..count).map(|_| input.bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?)
            }
            _ => return Err(input.wrong("a question")),
        })
    }
}
