//! Bytes on their way to a connection.

use std::{
    collections::{HashSet, VecDeque},
    rc::Rc,
};

use xenstore_wire::{HEADER_SIZE, PAYLOAD_MAX, put_event, put_message, split_message};

use crate::{
    id::{ConnId, Time},
    pool::Pool,
};

/// Replies and events of a connection, serialised, in the order in which they leave.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Leading bytes that are sent already.
    sent: usize,
    /// Bytes that were sent and dropped from the front since the connection opened.
    base: u64,
    backlog: Option<Box<Backlog>>,
    /// Messages that somebody waits for or that may expire, in the order in which they leave.
    marks: VecDeque<Mark>,
}

/// A request of a guest that is outstanding until all that it caused is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) conn: ConnId,
    /// The connection's number among all that ever were: `conn` may be another by now.
    pub(crate) life: u64,
    /// The request's number on that connection.
    pub(crate) request: u64,
}

/// A message whose delivery or age matters.
#[derive(Debug)]
struct Mark {
    /// Where it begins and ends, counted from the opening of the connection.
    start: u64,
    end: u64,
    cause: Option<Cause>,
    /// When it is dropped, if nothing of it was sent by then.
    expires: Option<Time>,
}

/// Events that wait since the receiver does not read.
#[derive(Debug, Default)]
struct Backlog {
    waiting: HashSet<Rc<[u8]>>,
    /// Where each begins, counted from the opening of the connection.
    order: VecDeque<(u64, Rc<[u8]>)>,
    /// Bytes of those events.
    bytes: usize,
}

impl Output {
    /// The buffer to append a message to.
    pub(crate) fn buffer(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        }
        // A long queue grows in steps, not by doubling: there may be many of them.
        if self.bytes.len() >= Pool::STEP && self.bytes.capacity() - self.bytes.len() < HEADER_SIZE + PAYLOAD_MAX {
            self.bytes.reserve_exact(Pool::STEP);
        }
        &mut self.bytes
    }

    /// Appends an event. One that is the same as an event still waiting for a receiver that does not read is left out:
    /// it would tell nothing new. Special events count each, so they are always kept.
    /// Tells whether it was appended.
    pub(crate) fn push_event(&mut self, pool: &mut Pool, path: &[u8], token: &[u8]) -> bool {
        let special = path.first() == Some(&b'@');
        let start = self.base + (self.bytes.len() as u64);
        if let Some(backlog) = self.backlog.as_mut().filter(|_| !special) {
            let event: Rc<[u8]> = [path, b"\0", token].concat().into();
            if !backlog.waiting.insert(Rc::clone(&event)) {
                return false;
            }
            backlog.bytes += event.len();
            backlog.order.push_back((start, event));
        }
        put_event(self.buffer(pool), path, token);
        true
    }

    /// Marks the last `len` bytes as a message whose delivery or age matters.
    pub(crate) fn mark(&mut self, len: usize, cause: Option<Cause>, expires: Option<Time>) {
        if cause.is_some() || expires.is_some() {
            let end = self.base + self.bytes.len() as u64;
            self.marks.push_back(Mark { start: end - len as u64, end, cause, expires });
        }
    }

    /// What a message was caused by that is delivered by now, until there is no more.
    pub(crate) fn next_delivered(&mut self) -> Option<Cause> {
        let front = self.base + self.sent as u64;
        while self.marks.front().is_some_and(|mark| mark.end <= front) {
            if let Some(cause) = self.marks.pop_front().and_then(|mark| mark.cause) {
                return Some(cause);
            }
        }
        None
    }

    /// When the next message expires; one that began to leave never does.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        let front = self.base + self.sent as u64;
        self.marks.iter().filter(|mark| mark.start >= front).find_map(|mark| mark.expires)
    }

    /// Drops the messages that expired; returns what they were caused by.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<Cause> {
        let front = self.base + self.sent as u64;
        let expired = |mark: &Mark| mark.start >= front && mark.expires.is_some_and(|expires| expires <= now);
        let mut causes = Vec::new();
        if !self.marks.iter().any(expired) {
            return causes;
        }
        let place = |offset: u64, base: u64| usize::try_from(offset - base).unwrap_or(usize::MAX);
        let (mut kept, mut done, mut cut) = (Vec::with_capacity(self.bytes.len()), 0, 0);
        for mut mark in std::mem::take(&mut self.marks) {
            if expired(&mark) {
                kept.extend_from_slice(&self.bytes[done..place(mark.start, self.base)]);
                done = place(mark.end, self.base);
                cut += mark.end - mark.start;
                causes.extend(mark.cause);
            } else {
                mark.start -= cut;
                mark.end -= cut;
                self.marks.push_back(mark);
            }
        }
        kept.extend_from_slice(&self.bytes[done..]);
        kept.shrink_to_fit();
        self.bytes = kept;
        // What stands where has changed: events fall together with later ones only.
        self.backlog = Some(Box::default());
        causes
    }

    /// What waits to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that the first `count` bytes of [`Output::unsent`] left. With all gone the buffer goes back to the pool;
    /// with some left the receiver is slow, and from now on equal events collapse.
    pub(crate) fn sent(&mut self, count: usize, pool: &mut Pool) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.base += self.bytes.len() as u64;
            self.sent = 0;
            self.backlog = None;
            pool.give(std::mem::take(&mut self.bytes));
            return;
        }
        // Moving what is left pays only once it is less than what left. What stays begins with a whole message.
        if self.sent > self.bytes.len() / 2 {
            let gone = self.whole_messages();
            self.bytes.drain(..gone);
            Pool::fit(&mut self.bytes);
            self.base += gone as u64;
            self.sent -= gone;
        }
        let front = self.base + self.sent as u64;
        let backlog = self.backlog.get_or_insert_default();
        while backlog.order.front().is_some_and(|(start, _)| *start < front) {
            if let Some((_, event)) = backlog.order.pop_front() {
                backlog.bytes -= event.len();
                backlog.waiting.remove(&event);
            }
        }
    }

    /// Bytes at the front that are whole messages, sent to their end.
    fn whole_messages(&self) -> usize {
        let mut end = 0;
        while let Ok(Some((_, rest))) = split_message(&self.bytes[end..]) {
            let next = self.bytes.len() - rest.len();
            if next > self.sent {
                break;
            }
            end = next;
        }
        end
    }

    /// What waits to be sent, and how much of its front ends a message whose beginning is sent.
    pub(crate) fn unload(&self) -> (&[u8], usize) {
        let whole = self.whole_messages();
        let partial = match split_message(&self.bytes[whole..]) {
            Ok(Some((_, rest))) if whole < self.sent => self.bytes.len() - rest.len() - self.sent,
            _ => 0,
        };
        (self.unsent(), partial)
    }

    /// Begins with bytes that waited elsewhere, of which the first `partial` end a message whose beginning is sent.
    pub(crate) fn load(&mut self, bytes: &[u8], partial: usize, pool: &mut Pool) {
        if bytes.is_empty() {
            return;
        }
        let buffer = self.buffer(pool);
        if partial > 0 {
            // The beginning is not known any more, and only its end matters.
            put_message(buffer, 0, 0, 0, bytes.get(..partial).unwrap_or(bytes));
            self.sent = HEADER_SIZE;
        }
        let rest = bytes.get(partial..).unwrap_or_default();
        self.buffer(pool).extend_from_slice(rest);
    }

    /// Drops everything that is not sent; returns what it was caused by.
    pub(crate) fn clear(&mut self, pool: &mut Pool) -> Vec<Cause> {
        let all = self.unsent().len();
        self.sent(all, pool);
        std::iter::from_fn(|| self.next_delivered()).collect()
    }

    /// Bytes that all that waits takes; behind a receiver that does not read, with what is noted about it.
    pub(crate) fn weight(&self) -> usize {
        /// What an event takes in the set and in the list of those that wait, beside its bytes.
        const WAITING: usize = 96;
        /// What a mark takes.
        const MARK: usize = 64;
        let noted = self
            .backlog
            .as_ref()
            .map_or(0, |backlog| backlog.bytes + backlog.order.len() * WAITING + self.marks.len() * MARK);
        self.unsent().len() + noted
    }

    /// Whether events fall together with equal ones that wait.
    pub(crate) fn collapses(&self) -> bool {
        self.backlog.is_some()
    }

    /// Bytes that the buffer counts for, and what is noted about it.
    pub(crate) fn held(&self) -> usize {
        Pool::weight(self.unsent().len()) + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }
}

mod image;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BufferCap;

    fn events(output: &Output) -> usize {
        output.unsent().windows(4).filter(|window| *window == 15u32.to_ne_bytes()).count()
    }

    #[test]
    fn events_stay_apart_while_the_receiver_reads() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        output.push_event(&mut pool, b"/a", b"t");
        output.push_event(&mut pool, b"/a", b"t");
        assert_eq!(events(&output), 2);
    }

    #[test]
    fn equal_events_collapse_behind_a_receiver_that_does_not_read() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        output.push_event(&mut pool, b"/first", b"t");
        output.sent(1, &mut pool);
        for _ in 0..100 {
            for path in [&b"/a"[..], b"/b", b"@introduceDomain"] {
                output.push_event(&mut pool, path, b"t");
            }
        }
        let (a, special) = (b"/a\0t\0", b"@introduceDomain\0");
        let count = |what: &[u8]| output.unsent().windows(what.len()).filter(|window| *window == what).count();
        assert_eq!((count(a), count(special)), (1, 100));
    }

    #[test]
    fn an_event_that_began_to_leave_collapses_no_more() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        output.push_event(&mut pool, b"/first", b"t");
        output.sent(1, &mut pool);
        output.push_event(&mut pool, b"/a", b"t");
        output.push_event(&mut pool, b"/b", b"t");
        let first = output.unsent().len() - 2 * (HEADER_SIZE + 5);
        output.sent(first + 1, &mut pool);
        output.push_event(&mut pool, b"/a", b"t");
        output.push_event(&mut pool, b"/b", b"t");
        let count = |what: &[u8]| output.unsent().windows(what.len()).filter(|window| *window == what).count();
        assert_eq!((count(b"/a\0t\0"), count(b"/b\0t\0")), (2, 1));
    }

    #[test]
    fn what_is_delivered_is_told_in_order_and_once() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        let cause = |request| Cause { conn: ConnId(1), life: 1, request };
        for request in 0..3 {
            output.buffer(&mut pool).extend_from_slice(b"0123456789");
            output.mark(10, Some(cause(request)), None);
        }
        output.sent(9, &mut pool);
        assert_eq!(output.next_delivered(), None);
        output.sent(12, &mut pool);
        assert_eq!((output.next_delivered(), output.next_delivered()), (Some(cause(0)), Some(cause(1))));
        assert_eq!(output.next_delivered(), None);
        assert_eq!(output.clear(&mut pool), [cause(2)]);
    }

    #[test]
    fn old_events_go_unless_they_began_to_leave() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        let time = |seconds| Time(std::time::Duration::from_secs(seconds));
        for (name, expires) in [(b"aaaa", Some(1)), (b"bbbb", None), (b"cccc", Some(2)), (b"dddd", Some(9))] {
            output.buffer(&mut pool).extend_from_slice(name);
            output.mark(4, None, expires.map(time));
        }
        assert_eq!(output.next_expiry(), Some(time(1)));
        output.sent(1, &mut pool);
        assert_eq!(output.next_expiry(), Some(time(2)), "the first began to leave");
        output.expire(time(5));
        assert_eq!(output.unsent(), b"aaabbbbdddd");
        output.sent(3, &mut pool);
        assert_eq!(output.next_delivered(), None);
        assert_eq!(output.next_expiry(), Some(time(9)));
        output.expire(time(9));
        assert_eq!(output.unsent(), b"bbbb");
    }

    #[test]
    fn a_long_queue_takes_little_more_than_its_bytes() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        for _ in 0..2500 {
            output.buffer(&mut pool).extend_from_slice(&[0; 4000]);
        }
        assert!(output.bytes.capacity() <= output.unsent().len() + 2 * Pool::STEP, "{}", output.bytes.capacity());
    }

    #[test]
    fn a_message_that_is_half_sent_is_told_of() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        for _ in 0..3 {
            put_message(output.buffer(&mut pool), 2, 0, 0, b"0123456789");
        }
        let all = output.unsent().to_vec();
        for sent in 0..all.len() {
            let (unsent, partial) = output.unload();
            assert_eq!((unsent, partial), (&all[sent..], (26 - sent % 26) % 26), "{sent}");
            let mut other = Output::default();
            other.load(unsent, partial, &mut pool);
            assert_eq!(other.unload(), (unsent, partial), "{sent}");
            output.sent(1, &mut pool);
        }
        assert_eq!(output.unload(), (&b""[..], 0));
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_pieces() {
        let (mut pool, mut output) = (Pool::new(BufferCap::default()), Output::default());
        let all: Vec<u8> = (0..=255).collect();
        output.buffer(&mut pool).extend_from_slice(&all);
        let mut got = Vec::new();
        for piece in [1usize, 7, 100, 3, 144, 1] {
            got.extend_from_slice(&output.unsent()[..piece]);
            output.sent(piece, &mut pool);
        }
        assert_eq!(got, all);
        assert_eq!((output.held(), output.bytes.capacity()), (0, 0), "an idle connection holds no buffer");
    }
}
