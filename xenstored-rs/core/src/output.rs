//! Bytes on their way to a connection.

use std::{
    collections::{HashSet, VecDeque},
    rc::Rc,
};

use xenstore_wire::put_event;

use crate::pool::Pool;

/// Replies and events of a connection, serialised, in the order in which they leave.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Leading bytes that are sent already.
    sent: usize,
    /// Bytes that were sent and dropped from the front since the connection opened.
    base: u64,
    backlog: Option<Box<Backlog>>,
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
        &mut self.bytes
    }

    /// Appends an event. One that is the same as an event still waiting for a receiver that does not read is left out:
    /// it would tell nothing new. Special events count each, so they are always kept.
    pub(crate) fn push_event(&mut self, pool: &mut Pool, path: &[u8], token: &[u8]) {
        let special = path.first() == Some(&b'@');
        let start = self.base + (self.bytes.len() as u64);
        if let Some(backlog) = self.backlog.as_mut().filter(|_| !special) {
            let event: Rc<[u8]> = [path, b"\0", token].concat().into();
            if !backlog.waiting.insert(Rc::clone(&event)) {
                return;
            }
            backlog.bytes += event.len();
            backlog.order.push_back((start, event));
        }
        put_event(self.buffer(pool), path, token);
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
        // Moving what is left pays only once it is less than what left.
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.base += self.sent as u64;
            self.sent = 0;
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

    /// Drops everything that is not sent.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        let all = self.unsent().len();
        self.sent(all, pool);
    }

    /// Bytes of memory that the buffer takes.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity() + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BufferCap;
    use xenstore_wire::HEADER_SIZE;

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
        assert_eq!(output.held(), 0, "an idle connection holds no buffer");
    }
}
