//! A domain that runs: its console, and its ring page as domain 0 sees it.

use crate::builder::Built;
use crate::line::Line;
use std::collections::VecDeque;
use std::sync::Arc;
use xen_ffi::event_channel::BoundPort;
use xen_ffi::{PAGE_SIZE, SharedPage};

/// Rings of a console page (`struct xencons_interface`): place, size, and places of the numbers of bytes taken and
/// given.
const IN: Ring = Ring { start: 0, size: 1024, taken: 3072, given: 3076 };
const OUT: Ring = Ring { start: 1024, size: 2048, taken: 3080, given: 3084 };

struct Ring {
    start: usize,
    size: u32,
    taken: usize,
    given: usize,
}

impl Ring {
    fn place(&self, index: u32) -> usize {
        self.start + (index % self.size) as usize
    }

    fn waiting(&self, page: &SharedPage) -> u32 {
        page.read_u32(self.given).wrapping_sub(page.read_u32(self.taken)).min(self.size)
    }
}

/// What is kept of a domain.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) domid: u16,
    pub(crate) built: Built,
    /// The domain's port of the store; its kernel may take another.
    pub(crate) store_port: u32,
    pub(crate) line: Arc<Line>,
    pub(crate) ring: SharedPage,
    console: SharedPage,
    console_port: BoundPort,
    came: Vec<u8>,
    to_send: VecDeque<u8>,
}

impl Live {
    pub(crate) fn new(domid: u16, built: Built, ring: SharedPage, console: SharedPage, port: BoundPort) -> Self {
        Self {
            domid,
            built,
            store_port: built.store_port,
            line: Arc::new(Line::new(domid)),
            ring,
            console,
            console_port: port,
            came: Vec::new(),
            to_send: VecDeque::new(),
        }
    }

    /// The local port by which the console signals.
    pub(crate) fn console_port(&self) -> &BoundPort {
        &self.console_port
    }

    /// Sends a message to the kernel, as soon as there is room.
    pub(crate) fn tell(&mut self, letter: u8, payload: &[u8]) {
        let [low, high] = u16::try_from(payload.len()).expect("a message has less than 64 KiB").to_le_bytes();
        self.to_send.extend([letter, low, high]);
        self.to_send.extend(payload);
        self.pump();
    }

    /// Moves what is there, both ways.
    pub(crate) fn pump(&mut self) {
        let page = &self.console;
        let (mut index, count) = (page.read_u32(OUT.taken), OUT.waiting(page));
        for _ in 0..count {
            let mut byte = [0];
            page.copy_out(OUT.place(index), &mut byte);
            self.came.extend(byte);
            index = index.wrapping_add(1);
        }
        page.write_u32(OUT.taken, index);
        let room = IN.size - IN.waiting(page);
        let mut given = page.read_u32(IN.given);
        let sent = self.to_send.len().min(room as usize);
        for byte in self.to_send.drain(..sent) {
            page.copy_in(IN.place(given), &[byte]);
            given = given.wrapping_add(1);
        }
        // The bytes first, then their number: stores are not reordered on the processors that this runs on, and the
        // compiler may not reorder around the fence.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        page.write_u32(IN.given, given);
        if count > 0 || sent > 0 {
            // A domain that dies at this moment needs no signal.
            let _ = self.console_port.notify();
        }
        self.pass_on();
    }

    /// Cuts what came into messages.
    fn pass_on(&mut self) {
        while let [letter, low, high, rest @ ..] = self.came.as_slice() {
            let len = usize::from(u16::from_le_bytes([*low, *high]));
            let Some(payload) = rest.get(..len) else { break };
            self.line.take_in(*letter, payload.to_vec());
            self.came.drain(..3 + len);
        }
    }

    /// A copy of the ring page.
    pub(crate) fn copy_of_ring(&self) -> Box<[u8; PAGE_SIZE]> {
        let mut copy = Box::new([0; PAGE_SIZE]);
        self.ring.copy_out(0, copy.as_mut_slice());
        copy
    }
}
