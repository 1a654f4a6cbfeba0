//! What the hypervisor knows of a domain.

use std::hint;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// How many ports a domain can offer to domain 0 at once.
pub const PORTS_PER_DOMAIN: usize = 8;

/// What a domain is and how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainFlags {
    /// There is such a domain.
    pub exists: bool,
    /// It has shut down.
    pub shutdown: bool,
    /// It was destroyed, but is not gone while others hold its memory: "dead" to Xen, "dying" to libxenctrl.
    pub dying: bool,
    /// Its store ring can be mapped by grant reference.
    pub granted: bool,
}

impl DomainFlags {
    fn to_bits(self) -> u32 {
        u32::from(self.exists)
            | u32::from(self.shutdown) << 1
            | u32::from(self.dying) << 2
            | u32::from(self.granted) << 3
    }

    fn from_bits(bits: u32) -> Self {
        Self { exists: bits & 1 != 0, shutdown: bits & 2 != 0, dying: bits & 4 != 0, granted: bits & 8 != 0 }
    }
}

/// One moment of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainView {
    /// What it is and how it is.
    pub flags: DomainFlags,
    /// Why it shut down (`SHUTDOWN_*`), when it has.
    pub reason: u32,
    /// Number of its ring page.
    pub slot: u32,
    /// Frame number of its ring page.
    pub gfn: u64,
    /// Differs from that of every other domain that there was on this host.
    pub unique_id: u64,
    /// Its handle, a uuid.
    pub handle: [u8; 16],
    /// Its ports that domain 0 may bind, each with the number of its channel; port 0 is none.
    pub ports: [(u32, u32); PORTS_PER_DOMAIN],
}

impl DomainView {
    /// The channel behind a port of this domain.
    #[must_use]
    pub fn channel(&self, port: u32) -> Option<u32> {
        self.ports.iter().find(|&&(number, _)| number == port && port != 0).map(|&(_, channel)| channel)
    }
}

/// A domain's place in shared memory. All zero is no domain.
///
/// One writer, the broker; readers look again when the sequence moved meanwhile.
#[derive(Debug)]
#[repr(C)]
pub struct DomainRecord {
    /// Odd while the record is being written.
    sequence: AtomicU32,
    flags: AtomicU32,
    reason: AtomicU32,
    slot: AtomicU32,
    gfn: AtomicU64,
    unique_id: AtomicU64,
    handle: [AtomicU64; 2],
    ports: [AtomicU32; PORTS_PER_DOMAIN],
    channels: [AtomicU32; PORTS_PER_DOMAIN],
}

impl DomainRecord {
    /// The domain as it is now.
    #[must_use]
    pub fn read(&self) -> DomainView {
        loop {
            let before = self.sequence.load(Acquire);
            if before.is_multiple_of(2) {
                let view = self.copy();
                fence(Acquire);
                if self.sequence.load(Relaxed) == before {
                    return view;
                }
            }
            hint::spin_loop();
        }
    }

    /// Replaces the domain. Only the broker may, one thread at a time.
    pub fn write(&self, view: &DomainView) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        self.flags.store(view.flags.to_bits(), Relaxed);
        self.reason.store(view.reason, Relaxed);
        self.slot.store(view.slot, Relaxed);
        self.gfn.store(view.gfn, Relaxed);
        self.unique_id.store(view.unique_id, Relaxed);
        let (halves, _) = view.handle.as_chunks::<8>();
        for (word, half) in self.handle.iter().zip(halves) {
            word.store(u64::from_ne_bytes(*half), Relaxed);
        }
        for (index, &(port, channel)) in view.ports.iter().enumerate() {
            self.ports[index].store(port, Relaxed);
            self.channels[index].store(channel, Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    fn copy(&self) -> DomainView {
        let mut handle = [0; 16];
        let (halves, _) = handle.as_chunks_mut::<8>();
        for (half, word) in halves.iter_mut().zip(&self.handle) {
            *half = word.load(Relaxed).to_ne_bytes();
        }
        let mut ports = [(0, 0); PORTS_PER_DOMAIN];
        for (index, pair) in ports.iter_mut().enumerate() {
            *pair = (self.ports[index].load(Relaxed), self.channels[index].load(Relaxed));
        }
        DomainView {
            flags: DomainFlags::from_bits(self.flags.load(Relaxed)),
            reason: self.reason.load(Relaxed),
            slot: self.slot.load(Relaxed),
            gfn: self.gfn.load(Relaxed),
            unique_id: self.unique_id.load(Relaxed),
            handle,
            ports,
        }
    }
}
