//! Requests to the store and its answers, one at a time (xen/include/public/io/xs_wire.h).

use crate::machine::Machine;

/// Types of messages that this guest sends and gets.
pub(crate) const READ: u32 = 2;
pub(crate) const WATCH: u32 = 4;
pub(crate) const WRITE: u32 = 11;
const WATCH_EVENT: u32 = 15;

const MOST: usize = 4096;

/// The store, as this guest sees it.
pub(crate) struct Store {
    next_id: u32,
    /// The last message that came.
    message: [u8; MOST],
    /// Letters of the watches that fired and were not asked for yet: the first of each token.
    fired: [bool; 256],
}

impl Store {
    pub(crate) const fn new() -> Self {
        Self { next_id: 1, message: [0; MOST], fired: [false; 256] }
    }

    /// Sends a request and gives its answer; `None` if that is an error.
    pub(crate) fn request(&mut self, machine: &Machine, op: u32, parts: &[&[u8]]) -> Option<&[u8]> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let words = [op, self.next_id, 0, u32::try_from(len).unwrap_or(0)];
        self.next_id = self.next_id.wrapping_add(1);
        words.iter().for_each(|word| send(machine, &word.to_le_bytes()));
        parts.iter().for_each(|part| send(machine, part));
        machine.signal_store();
        loop {
            let (came, len) = self.receive(machine);
            if came != WATCH_EVENT {
                return (came == op).then_some(&self.message[..len]);
            }
        }
    }

    /// The letter of a watch that fired, waiting for one.
    pub(crate) fn event(&mut self, machine: &Machine) -> u8 {
        loop {
            if let Some(letter) = (0..=u8::MAX).find(|&letter| self.fired[usize::from(letter)]) {
                self.fired[usize::from(letter)] = false;
                return letter;
            }
            self.receive(machine);
        }
    }

    /// Takes a message: its type and length. An event is noted.
    fn receive(&mut self, machine: &Machine) -> (u32, usize) {
        let mut header = [0; 16];
        receive(machine, &mut header);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let len = word(12) as usize;
        receive(machine, &mut self.message[..len]);
        if word(0) == WATCH_EVENT {
            let token = self.message[..len].split(|&byte| byte == 0).nth(1).unwrap_or_default();
            self.fired[usize::from(token.first().copied().unwrap_or(0))] = true;
        }
        (word(0), len)
    }
}

fn send(machine: &Machine, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Ok(count) = machine.requests.give(bytes) else { panic!("the ring of requests is broken") };
        bytes = &bytes[count..];
        if !bytes.is_empty() {
            machine.signal_store();
            if machine.requests.is_full() {
                machine.await_store();
            }
        }
    }
}

fn receive(machine: &Machine, out: &mut [u8]) {
    let mut filled = 0;
    while filled < out.len() {
        let was_full = machine.replies.is_full();
        let Ok(count) = machine.replies.take(&mut out[filled..]) else { panic!("the ring of replies is broken") };
        filled += count;
        if was_full {
            machine.signal_store();
        }
        if count == 0 {
            machine.await_store();
        }
    }
}
