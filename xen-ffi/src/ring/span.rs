//! Where bytes stand in a ring: pure arithmetic on two free-running indices, either of which a guest may have forged.

use core::ops::Range;

/// Bytes of one direction's ring.
pub const RING_SIZE: u32 = 1024;

/// Indices that cannot be: more bytes between them than the ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring indices {producer} (producer) and {consumer} (consumer) are more than {RING_SIZE} apart")]
pub struct IndexError {
    /// Index of the next byte that will be written.
    pub producer: u32,
    /// Index of the next byte that will be read.
    pub consumer: u32,
}

/// Bytes that may be copied: positions in the ring, in at most two pieces, to be taken in this order. The second is
/// empty or starts at the ring's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Up to the ring's end at most.
    pub first: Range<usize>,
    /// The rest.
    pub second: Range<usize>,
}

impl Spans {
    /// Bytes of both pieces, at most [`RING_SIZE`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How many bytes were written and not yet read. Indices run through all of `u32` and wrap.
///
/// # Errors
/// [`IndexError`] if they are more than [`RING_SIZE`] apart, in either direction.
pub fn filled(producer: u32, consumer: u32) -> Result<u32, IndexError> {
    let distance = producer.wrapping_sub(consumer);
    if distance <= RING_SIZE { Ok(distance) } else { Err(IndexError { producer, consumer }) }
}

/// What may be read, at most `limit` bytes.
///
/// # Errors
/// [`IndexError`] if the indices cannot be.
pub fn readable(producer: u32, consumer: u32, limit: usize) -> Result<Spans, IndexError> {
    Ok(spans(consumer, filled(producer, consumer)?, limit))
}

/// What may be written, at most `limit` bytes.
///
/// # Errors
/// [`IndexError`] if the indices cannot be.
pub fn writable(producer: u32, consumer: u32, limit: usize) -> Result<Spans, IndexError> {
    Ok(spans(producer, RING_SIZE - filled(producer, consumer)?, limit))
}

fn spans(start: u32, available: u32, limit: usize) -> Spans {
    let size = RING_SIZE as usize;
    // The ring's size divides the indices' range, so the position goes on over the wrap of the index.
    let start = (start % RING_SIZE) as usize;
    let len = (available as usize).min(limit);
    let until_end = len.min(size - start);
    Spans { first: start..start + until_end, second: 0..len - until_end }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, byte by byte.
    fn by_hand(start: u32, len: u32) -> Vec<usize> {
        (0..len).map(|step| (start.wrapping_add(step) % RING_SIZE) as usize).collect()
    }

    fn positions(spans: &Spans) -> Vec<usize> {
        spans.first.clone().chain(spans.second.clone()).collect()
    }

    /// Both functions against the model, whole and cut short.
    fn check(producer: u32, consumer: u32, limit: u32) {
        let distance = producer.wrapping_sub(consumer);
        let read = readable(producer, consumer, limit as usize);
        let write = writable(producer, consumer, limit as usize);
        if distance > RING_SIZE {
            let error = IndexError { producer, consumer };
            assert_eq!((read, write), (Err(error), Err(error)));
            return;
        }
        let (read, write) = (read.unwrap(), write.unwrap());
        assert_eq!(positions(&read), by_hand(consumer, distance.min(limit)), "reading {producer} {consumer}");
        assert_eq!(positions(&write), by_hand(producer, (RING_SIZE - distance).min(limit)));
        for spans in [read, write] {
            assert!(spans.first.end <= RING_SIZE as usize && spans.second.end <= RING_SIZE as usize);
            assert!(spans.second.start == 0, "the second piece starts at the start");
            assert!(spans.second.is_empty() || spans.first.end == RING_SIZE as usize);
            assert_eq!(spans.is_empty(), positions(&spans).is_empty());
        }
    }

    /// Numbers around which something changes.
    fn edges() -> Vec<u32> {
        let around = [0, 1, 2, 512, RING_SIZE, 2 * RING_SIZE, 1 << 31, 0xffff_fc00];
        let mut edges: Vec<u32> = around
            .iter()
            .flat_map(|&edge: &u32| (0..5).map(move |step| edge.wrapping_add(step).wrapping_sub(2)))
            .collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic, and slow")]
    fn every_distance_from_every_edge() {
        for consumer in edges() {
            for distance in 0..=RING_SIZE + 2 {
                check(consumer.wrapping_add(distance), consumer, u32::MAX);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic, and slow")]
    fn every_pair_of_edges() {
        for consumer in edges() {
            for producer in edges() {
                for limit in [0, 1, 2, 511, 1023, 1024, 1025, u32::MAX] {
                    check(producer, consumer, limit);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic, and slow")]
    fn every_position_and_distance_covers_each_byte_once() {
        for start in 0..RING_SIZE {
            for distance in 0..=RING_SIZE {
                // Starting a little before the wrap, half of these cross it.
                let consumer = (u32::MAX - RING_SIZE / 2).wrapping_add(start);
                let read = readable(consumer.wrapping_add(distance), consumer, usize::MAX).unwrap();
                let write = writable(consumer.wrapping_add(distance), consumer, usize::MAX).unwrap();
                assert_eq!(read.len(), distance as usize);
                assert_eq!(write.len(), (RING_SIZE - distance) as usize);
                assert_eq!(read.first.start, (consumer % RING_SIZE) as usize);
                // What is written goes on where what can be read ends.
                let end = if read.second.is_empty() { read.first.end } else { read.second.end };
                assert_eq!(write.first.start, end % RING_SIZE as usize);
            }
        }
    }

    #[test]
    fn the_ring_is_full_at_its_size_and_broken_beyond() {
        assert_eq!(filled(1024, 0), Ok(1024));
        assert_eq!(filled(1025, 0), Err(IndexError { producer: 1025, consumer: 0 }));
        assert_eq!(filled(0, 1), Err(IndexError { producer: 0, consumer: 1 }));
        assert_eq!(filled(511, u32::MAX - 512), Ok(1024));
        assert_eq!(filled(512, u32::MAX - 512), Err(IndexError { producer: 512, consumer: u32::MAX - 512 }));
        assert!(writable(1024, 0, 10).unwrap().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 4096 }, failure_persistence: None, ..<_>::default() })]

        #[test]
        fn any_indices(producer: u32, consumer: u32, limit: u32) {
            check(producer, consumer, limit);
        }

        #[test]
        fn any_possible_indices(consumer: u32, distance in 0..=RING_SIZE, limit in 0..2 * RING_SIZE) {
            check(consumer.wrapping_add(distance), consumer, limit);
        }
    }
}
