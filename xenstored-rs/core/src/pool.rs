//! Buffers that connections borrow while they have something to hold.

/// What the host allows for buffers, and where that comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferCap {
    /// Most bytes that all connections may hold together. At the cap a new connection is refused.
    pub bytes: usize,
    /// The limits of the host that gave the number, for a person.
    pub source: String,
}

impl Default for BufferCap {
    fn default() -> Self {
        Self { bytes: 256 << 20, source: "built-in default".to_owned() }
    }
}

/// Free buffers, and the count of what connections hold.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Vec<u8>>,
    /// Bytes that the buffers of connections count for at the moment.
    held: usize,
    cap: BufferCap,
    peak: usize,
    /// Bytes of buffers that went back to the system since somebody asked.
    pub(crate) dropped: usize,
}

impl Pool {
    /// Most bytes of a buffer that goes back to the free list; a larger one goes back to the system.
    const LARGEST: usize = 8 << 10;

    /// Most free buffers, 1 MiB at their largest; the rest go back to the system.
    const MOST_FREE: usize = 128;

    /// Bytes by which a long buffer grows at a time.
    pub(crate) const STEP: usize = 1 << 20;

    pub(crate) fn new(cap: BufferCap) -> Self {
        Self { free: Vec::new(), held: 0, cap, peak: 0, dropped: 0 }
    }

    /// An empty buffer; it counts as held from the next [`Pool::account`] on.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// What a buffer counts for with so many bytes in it: about what it takes, [`Pool::fit`] keeping the two together.
    ///
    /// What the buffer happens to take does not count, so that the same calls come to the same whatever buffers were at
    /// hand: who is refused or given up for want of room must not depend on it.
    pub(crate) fn weight(len: usize) -> usize {
        match len {
            0 => 0,
            1..Self::STEP => len.next_power_of_two(),
            _ => len + Self::STEP,
        }
    }

    /// Gives up most of the room of a large buffer that is nearly empty.
    pub(crate) fn fit(buffer: &mut Vec<u8>) {
        if buffer.capacity() > Self::LARGEST && buffer.len() < buffer.capacity() / 4 {
            buffer.shrink_to(2 * buffer.len());
        }
    }

    /// Gives a buffer back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 || buffer.capacity() > Self::LARGEST || self.free.len() >= Self::MOST_FREE {
            self.dropped += buffer.capacity();
            return;
        }
        buffer.clear();
        self.free.push(buffer);
    }

    /// Notes that a connection holds `now` bytes where it held `before`.
    pub(crate) fn account(&mut self, before: usize, now: usize) {
        self.held = self.held - before + now;
        self.peak = self.peak.max(self.held);
    }

    /// Whether connections hold all that they may.
    pub(crate) fn is_full(&self) -> bool {
        self.held >= self.cap.bytes
    }

    /// Bytes held, most ever held, free bytes, free buffers.
    pub(crate) fn figures(&self) -> (usize, usize, usize, usize) {
        (self.held, self.peak, self.free.iter().map(Vec::capacity).sum(), self.free.len())
    }

    /// Most bytes ever held.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    /// Goes on with what was held at most before.
    pub(crate) fn set_peak(&mut self, peak: usize) {
        self.peak = self.peak.max(peak);
    }

    /// The cap.
    pub(crate) fn cap(&self) -> &BufferCap {
        &self.cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_come_back_and_large_ones_do_not() {
        let mut pool = Pool::new(BufferCap::default());
        pool.give(Vec::with_capacity(4096));
        pool.give(Vec::with_capacity(Pool::LARGEST + 1));
        assert_eq!(pool.take().capacity(), 4096);
        assert_eq!(pool.take().capacity(), 0);
    }

    #[test]
    fn what_a_buffer_counts_for_is_near_what_it_takes() {
        for len in [1, 100, 5000, 100_000, Pool::STEP - 1, Pool::STEP, 5 * Pool::STEP] {
            let mut buffer = vec![0; 16 * Pool::STEP];
            buffer.truncate(len);
            Pool::fit(&mut buffer);
            let (weight, takes) = (Pool::weight(len), buffer.capacity());
            assert!((len..=2 * len.max(Pool::STEP)).contains(&weight), "{len} bytes count for {weight}");
            assert!(takes <= (4 * weight).max(Pool::LARGEST), "{len} bytes take {takes} and count for {weight}");
        }
    }

    #[test]
    fn the_free_list_is_bounded() {
        let mut pool = Pool::new(BufferCap::default());
        for _ in 0..10 * Pool::MOST_FREE {
            pool.give(Vec::with_capacity(64));
        }
        assert_eq!(pool.figures().3, Pool::MOST_FREE);
    }
}
