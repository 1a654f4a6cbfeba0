//! A guest that changes a word of its page between any two accesses of the server: every operation, every place in it,
//! every word, the values that matter.

use core::ops::Range;
use std::{cell::Cell, rc::Rc, sync::Arc};

use rstest::rstest;

use super::{tests::Memory, *};
use crate::{PAGE_SIZE, shared_page::intruder};

const WORDS: [usize; 6] = [
    offset::REQUEST_CONSUMER,
    offset::REQUEST_PRODUCER,
    offset::REPLY_CONSUMER,
    offset::REPLY_PRODUCER,
    offset::CONNECTION,
    offset::ERROR,
];

/// Indices at the start: consumer and how far ahead the producer is, the same for both directions.
const STARTS: &[(u32, u32)] =
    if cfg!(miri) { &[(1020, 12)] } else { &[(0, 0), (1000, 100), (u32::MAX, RING_SIZE), (7, RING_SIZE + 1)] };

/// What a word is changed to.
fn values(now: u32) -> Vec<u32> {
    let mut values: Vec<u32> = if cfg!(miri) {
        vec![0, now.wrapping_sub(1), now.wrapping_add(RING_SIZE + 1)]
    } else {
        let steps = [0, 1, RING_SIZE, RING_SIZE + 1, 1 << 31];
        steps.iter().flat_map(|&step| [step, now.wrapping_add(step), now.wrapping_sub(step)]).collect()
    };
    values.sort_unstable();
    values.dedup();
    values
}

/// The bytes of a page.
type Bytes = [u8; PAGE_SIZE];

/// Memory with its own bytes everywhere, and these indices in both directions.
fn memory(consumer: u32, ahead: u32) -> (Arc<Memory>, Bytes) {
    let memory = Memory::new();
    let mut bytes: Bytes = std::array::from_fn(|at| u8::try_from(at % 251).unwrap());
    for at in WORDS {
        bytes[word_at(at)].fill(0);
    }
    for (at, value) in WORDS.into_iter().zip([consumer, consumer.wrapping_add(ahead)].into_iter().cycle()).take(4) {
        bytes[word_at(at)].copy_from_slice(&value.to_ne_bytes());
    }
    memory.page().copy_in(0, &bytes);
    (memory, bytes)
}

fn bytes_of(memory: &Arc<Memory>) -> Bytes {
    let mut bytes = [0; PAGE_SIZE];
    memory.page().copy_out(0, &mut bytes);
    bytes
}

fn word_at(at: usize) -> Range<usize> {
    at..at + 4
}

/// An operation on the ring of a page that had these bytes, and then perhaps another number in one word. Checks what it
/// came to; gives what it may have changed of the page.
type Operation = fn(&Ring, &Bytes, Intrusion) -> Vec<Range<usize>>;

/// A word and its new number.
#[derive(Clone, Copy, Debug)]
struct Intrusion {
    at: usize,
    value: u32,
}

/// Plays `operation` with each intrusion at each place, and checks that nothing else of the page changed.
fn at_every_place(operation: Operation) {
    for &(consumer, ahead) in STARTS {
        let (memory, bytes) = memory(consumer, ahead);
        let accesses = Rc::new(Cell::new(0));
        let counted = Rc::clone(&accesses);
        let at_work = intruder::let_in(move || counted.set(counted.get() + 1));
        operation(&Ring::new(memory.page()), &bytes, Intrusion { at: WORDS[0], value: consumer });
        drop(at_work);
        // The indices are read at the first places; what comes then are bytes, which take the interpreter hours.
        let few = |place: &usize| !cfg!(miri) || *place < 3;
        for place in (0..accesses.get()).filter(few) {
            for at in WORDS {
                let now = u32::from_ne_bytes(bytes[word_at(at)].try_into().unwrap());
                for value in values(now) {
                    memory.page().copy_in(0, &bytes);
                    intrude(&memory, &bytes, place, Intrusion { at, value }, operation);
                }
            }
        }
    }
}

fn intrude(memory: &Arc<Memory>, before: &Bytes, place: usize, intrusion: Intrusion, operation: Operation) {
    let (other, mut accesses) = (memory.page(), 0);
    let at_work = intruder::let_in(move || {
        if accesses == place {
            other.write_u32(intrusion.at, intrusion.value);
        }
        accesses += 1;
    });
    let may_change = operation(&Ring::new(memory.page()), before, intrusion);
    drop(at_work);
    let (mut expected, mut got) = (*before, bytes_of(memory));
    expected[word_at(intrusion.at)].copy_from_slice(&intrusion.value.to_ne_bytes());
    for range in may_change {
        got[range.clone()].fill(0);
        expected[range].fill(0);
    }
    assert!(got == expected, "{intrusion:?} before access {place}");
}

fn read(ring: &Ring, before: &Bytes, intrusion: Intrusion) -> Vec<Range<usize>> {
    let mut buffer = [0; RING_SIZE as usize];
    match ring.read(&mut buffer) {
        Ok(taken) => {
            let was = u32::from_ne_bytes(before[word_at(offset::REQUEST_CONSUMER)].try_into().unwrap());
            // Whatever became of the indices, what was taken stands in one row, from where one of them pointed.
            let found = [was, intrusion.value].into_iter().any(|consumer| {
                let row = (0..taken).map(|step| before[(consumer as usize + step) % RING_SIZE as usize]);
                row.eq(buffer[..taken].iter().copied())
            });
            assert!(found, "{intrusion:?}: these bytes were never in a row");
            vec![word_at(offset::REQUEST_CONSUMER)]
        }
        Err(error) => {
            assert!(error.producer.wrapping_sub(error.consumer) > RING_SIZE);
            Vec::new()
        }
    }
}

fn write(ring: &Ring, _: &Bytes, _: Intrusion) -> Vec<Range<usize>> {
    match ring.write(&[0xaa; 300]) {
        Ok(put) => {
            assert!(put <= 300);
            let replies = offset::REPLIES..offset::REPLIES + RING_SIZE as usize;
            vec![word_at(offset::REPLY_PRODUCER), replies]
        }
        Err(error) => {
            assert!(error.producer.wrapping_sub(error.consumer) > RING_SIZE);
            Vec::new()
        }
    }
}

fn look(ring: &Ring, _: &Bytes, _: Intrusion) -> Vec<Range<usize>> {
    let _whatever = (ring.indices(), ring.connection(), ring.port());
    for bytes in [ring.waiting(), ring.room()].into_iter().flatten() {
        assert!(bytes <= RING_SIZE);
    }
    Vec::new()
}

fn start_afresh(ring: &Ring, _: &Bytes, _: Intrusion) -> Vec<Range<usize>> {
    ring.reset();
    ring.set_connected();
    vec![offset::REQUEST_CONSUMER..offset::FEATURES, word_at(offset::CONNECTION)]
}

#[rstest]
#[case::taking_requests(read)]
#[case::putting_replies(write)]
#[case::looking(look)]
#[case::starting_afresh(start_afresh)]
fn a_word_that_changes_in_between_leads_nowhere_else(#[case] operation: Operation) {
    at_every_place(operation);
}

#[test]
fn what_was_judged_is_what_is_used() {
    let (memory, bytes) = memory(10, 100);
    let (other, mut accesses) = (memory.page(), 0);
    let at_work = intruder::let_in(move || {
        accesses += 1;
        // Both indices were read by now.
        if accesses == 3 {
            other.write_u32(offset::REQUEST_CONSUMER, 5000);
            other.write_u32(offset::REQUEST_PRODUCER, 70);
        }
    });
    let mut buffer = [0; RING_SIZE as usize];
    assert_eq!(Ring::new(memory.page()).read(&mut buffer), Ok(100));
    drop(at_work);
    assert_eq!(buffer[..100], bytes[10..110]);
    assert_eq!(memory.page().read_u32(offset::REQUEST_CONSUMER), 110);
}
