//! Bytes on their way to a connection, in an image: what left of them long ago does not count.

use std::{
    collections::{HashSet, VecDeque},
    rc::Rc,
};

use xenstore_wire::{HEADER_SIZE, Message, Op, split_message};

use super::{Backlog, Cause, Mark, Output};
use crate::image::{ImageError, Reader, Stored, Writer};

impl Stored for Cause {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { conn, life, request } = self;
        conn.save(out);
        life.save(out);
        request.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { conn: input.get()?, life: input.get()?, request: input.get()? })
    }
}

impl Mark {
    /// Writes a mark as it stands behind byte `base`.
    fn save(&self, base: u64, out: &mut Writer<'_>) {
        let Self { start, end, cause, expires } = self;
        (start - base).save(out);
        (end - start).save(out);
        cause.save(out);
        expires.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let (start, len): (u64, u64) = (input.get()?, input.get()?);
        let end = start.checked_add(len).ok_or_else(|| input.wrong("the end of a message"))?;
        Ok(Self { start, end, cause: input.get()?, expires: input.get()? })
    }
}

impl Backlog {
    /// Writes where the events begin; what they say stands there.
    fn save(&self, front: u64, out: &mut Writer<'_>) {
        // The set and the sum are of what is in the list.
        let Self { waiting: _, order, bytes: _ } = self;
        out.count(order.len());
        for (start, _) in order {
            out.record();
            (start - front).save(out);
        }
    }

    fn restore(input: &mut Reader<'_>, unsent: &[u8], front: u64) -> Result<Self, ImageError> {
        let (mut waiting, mut order, mut bytes) = (HashSet::new(), VecDeque::new(), 0);
        let count: usize = input.get()?;
        // No two overlap, so that they take no more memory than what is unsent.
        let mut from = 0;
        for _ in 0..count {
            input.record()?;
            let start: usize = input.get()?;
            let found = unsent.get(start..).filter(|_| start >= from).and_then(|rest| split_message(rest).ok()?);
            let Some((Message { header, payload: [event @ .., 0] }, _)) = found else {
                return Err(input.wrong("the place of an event"));
            };
            from = start + HEADER_SIZE + event.len() + 1;
            let event: Rc<[u8]> = event.into();
            bytes += event.len();
            if header.op != Op::WatchEvent.number() || !waiting.insert(Rc::clone(&event)) {
                return Err(input.wrong("an event"));
            }
            order.push_back((front + start as u64, event));
        }
        Ok(Self { waiting, order, bytes })
    }
}

impl Output {
    /// Writes what is unsent, and what is noted about it.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        let Self { bytes: _, sent, base, backlog, marks } = self;
        let front = base + *sent as u64;
        // Only of the first message a part can have left.
        let begun = marks.front().map_or(0, |mark| front.saturating_sub(mark.start));
        begun.save(out);
        out.many_bytes(self.unsent());
        out.record();
        backlog.is_some().save(out);
        backlog.iter().for_each(|backlog| backlog.save(front, out));
        out.record();
        out.count(marks.len());
        for mark in marks {
            out.record();
            mark.save(front - begun, out);
        }
    }

    /// Reads what is unsent. What had left of the first message is taken for the beginning of the stream.
    pub(crate) fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let base: u64 = input.get()?;
        if base > (HEADER_SIZE + xenstore_wire::PAYLOAD_MAX) as u64 {
            return Err(input.wrong("the part of a message"));
        }
        let bytes = input.many_bytes()?;
        input.record()?;
        let backlog = if input.get()? { Some(Box::new(Backlog::restore(input, &bytes, base)?)) } else { None };
        input.record()?;
        let count: usize = input.get()?;
        let mut marks: VecDeque<Mark> = VecDeque::new();
        let mut from = 0;
        for _ in 0..count {
            input.record()?;
            let mark = Mark::restore(input)?;
            let (first, all) = (marks.is_empty(), base + bytes.len() as u64);
            if mark.start < from || mark.end > all || (mark.start < base && !first) || mark.end <= base {
                return Err(input.wrong("the place of a message"));
            }
            from = mark.end;
            marks.push_back(mark);
        }
        Ok(Self { bytes, sent: 0, base, backlog, marks })
    }
}
