//! Domain 0's end of an event channel.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// How many local ports there can be at once.
pub const LOCALS: usize = 16_384;

/// The lowest local port that is given out; those below belong to domain 0's kernel.
pub const FIRST_LOCAL: u32 = 16;

/// The open event file that a local port belongs to.
pub type Owner = u8;

/// Somebody has taken the port and is about to bind it.
const TAKEN: u32 = 1;
/// Events arrive here.
const BOUND: u32 = 2;
/// The last event was written to the event file, and the daemon has not unmasked the port since.
const MASKED: u32 = 4;
/// Another event came while the port was masked.
const PENDING: u32 = 8;

const OWNER_SHIFT: u32 = 8;

/// A port of domain 0. All zero is a free one.
#[derive(Debug)]
#[repr(C)]
pub struct LocalPort {
    state: AtomicU32,
    /// 1 + number of the guest's end, 0 when there is none.
    channel: AtomicU32,
}

impl LocalPort {
    /// Takes the port for `owner` if it is free.
    pub(crate) fn take(&self, owner: Owner) -> bool {
        let taken = TAKEN | (u32::from(owner) << OWNER_SHIFT);
        self.state.compare_exchange(0, taken, SeqCst, SeqCst).is_ok()
    }

    /// Names the guest's end of a port that was taken. Comes before the guest's end names this one: should the
    /// daemon die in between, the broker finds both.
    pub(crate) fn aim(&self, channel: u32) {
        self.channel.store(channel + 1, SeqCst);
    }

    /// Lets events arrive at a port that was taken. As on Xen, the first one is made up: what was sent before may be
    /// lost. The caller writes it to the event file.
    pub(crate) fn bind(&self) {
        self.state.fetch_or(BOUND | MASKED, SeqCst);
    }

    /// Gives the port back.
    pub(crate) fn free(&self) {
        self.channel.store(0, SeqCst);
        self.state.store(0, SeqCst);
    }

    /// Cuts the port off its guest, which is gone; events sent through it are lost from now on.
    pub fn cut_off(&self, channel: u32) {
        let _ = self.channel.compare_exchange(channel + 1, 0, SeqCst, SeqCst);
    }

    /// The number of the guest's end, if there is one.
    #[must_use]
    pub fn channel(&self) -> Option<u32> {
        self.channel.load(SeqCst).checked_sub(1)
    }

    /// Whether `owner` has taken or bound this port.
    #[must_use]
    pub fn belongs_to(&self, owner: Owner) -> bool {
        let state = self.state.load(SeqCst);
        state & (TAKEN | BOUND) != 0 && state >> OWNER_SHIFT == u32::from(owner)
    }

    /// An event arrives; gives the event file to which the port must now be written, if it must.
    pub(crate) fn raise(&self) -> Option<Owner> {
        let raised = self.state.fetch_update(SeqCst, SeqCst, |state| match state {
            _ if state & BOUND == 0 => None,
            _ if state & MASKED == 0 => Some(state | MASKED),
            _ => Some(state | PENDING),
        });
        let before = raised.ok()?;
        (before & MASKED == 0).then(|| Owner::try_from(before >> OWNER_SHIFT).expect("owners fit"))
    }

    /// The daemon has seen the last event; says whether the port must be written again for one that came meanwhile.
    pub(crate) fn unmask(&self) -> bool {
        let unmasked = self.state.fetch_update(SeqCst, SeqCst, |state| match state {
            _ if state & BOUND == 0 || state & MASKED == 0 => None,
            _ if state & PENDING != 0 => Some(state & !PENDING),
            _ => Some(state & !MASKED),
        });
        unmasked.is_ok_and(|before| before & PENDING != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound() -> LocalPort {
        let port = LocalPort { state: AtomicU32::new(0), channel: AtomicU32::new(0) };
        assert!(port.take(7));
        port.aim(3);
        port.bind();
        port
    }

    #[test]
    fn events_while_masked_become_one_at_the_unmask() {
        let port = bound();
        assert_eq!((port.raise(), port.raise()), (None, None), "masked by the made-up first event");
        assert!(port.unmask(), "one delivery for both");
        assert!(!port.unmask(), "and nothing after it");
        assert_eq!(port.raise(), Some(7));
    }

    #[test]
    fn a_free_port_takes_no_event() {
        let port = bound();
        port.free();
        assert_eq!(port.raise(), None);
        assert!(!port.unmask());
        assert!(!port.belongs_to(7));
    }

    #[test]
    fn a_port_is_taken_once() {
        let port = bound();
        assert!(!port.take(1));
        assert!(port.belongs_to(7));
        assert_eq!(port.channel(), Some(3));
    }
}
