//! The guest as the tests' hand: it does to its ring what the console says.
//!
//! A message is a letter, the length of what follows in two bytes (low first), and that many bytes. Each is answered
//! by one of the same letter, `x` and `c` not; `e` comes unasked when the store has sent an event, and `h` once at the
//! start.
//!
//! | letter | asks for | answer |
//! |---|---|---|
//! | `s` | put these bytes in the ring of requests, as many as fit, and send an event | how many, 4 bytes |
//! | `r` | take at most so many bytes, 2 bytes, from the ring of replies | a byte, 0; then the bytes |
//! | `n` | send an event | nothing |
//! | `p` | a new port in place of the store's | the port, 4 bytes |
//! | `x` | shut down for this reason, 1 byte | - |
//! | `c` | crash | - |
//!
//! Where the indices of a ring cannot be, the answer to `s` is four bytes of ones, to `r` a byte of 1.

use crate::hypercall::{self, Reason};
use crate::machine::Machine;

/// Longest message.
const LONGEST: usize = 3 + 1024;

pub(crate) fn run(machine: &mut Machine) -> ! {
    let mut input = [0; 2 * LONGEST];
    let mut filled = 0;
    answer(machine, b'h', &[machine.kind.as_bytes()]);
    loop {
        let mut idle = true;
        if machine.store_signalled() {
            answer(machine, b'e', &[]);
            idle = false;
        }
        let count = machine.read_console(&mut input[filled..]);
        filled += count;
        while let Some(len) = whole(&input[..filled]) {
            let message: &[u8] = &input[..len];
            obey(machine, message[0], &message[3..]);
            input.copy_within(len..filled, 0);
            filled -= len;
        }
        if idle && count == 0 {
            machine.await_any();
        }
    }
}

/// Length of the message at the start, if all of it is there.
fn whole(input: &[u8]) -> Option<usize> {
    let len = 3 + usize::from(u16::from_le_bytes([*input.get(1)?, *input.get(2)?]));
    assert!(len <= LONGEST, "a message of {len} bytes");
    (input.len() >= len).then_some(len)
}

fn answer(machine: &Machine, letter: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let [low, high] = u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
    machine.write_console(&[letter, low, high]);
    parts.iter().for_each(|part| machine.write_console(part));
}

fn obey(machine: &mut Machine, letter: u8, payload: &[u8]) {
    match (letter, payload) {
        (b's', bytes) => {
            let count = machine.requests.give(bytes).map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(0));
            if (1..u32::MAX).contains(&count) {
                machine.signal_store();
            }
            answer(machine, b's', &[&count.to_le_bytes()]);
        }
        (b'r', &[low, high]) => {
            let mut bytes = [0; 1024];
            let most = usize::from(u16::from_le_bytes([low, high])).min(bytes.len());
            let was_full = machine.replies.is_full();
            match machine.replies.take(&mut bytes[..most]) {
                Ok(count) => {
                    // As Linux does: a store that found the ring full waits for this.
                    if count > 0 && was_full {
                        machine.signal_store();
                    }
                    answer(machine, b'r', &[&[0], &bytes[..count]]);
                }
                Err(_) => answer(machine, b'r', &[&[1]]),
            }
        }
        (b'n', _) => {
            machine.signal_store();
            answer(machine, b'n', &[]);
        }
        (b'p', _) => {
            let port = machine.renew_store_port().unwrap_or(0);
            answer(machine, b'p', &[&port.to_le_bytes()]);
        }
        (b'x', &[reason]) => {
            if let Some(reason) = Reason::of_number(reason) {
                hypercall::shutdown(reason);
            }
        }
        (b'c', _) => panic!("as asked"),
        _ => panic!("message {letter} of {} bytes", payload.len()),
    }
}
