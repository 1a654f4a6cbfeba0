//! What a guest has: two rings, a port for each, and the words of its command line.

use crate::hypercall;
use crate::queue::Queue;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

unsafe extern "C" {
    /// Where the hypervisor's shared information is put (`shared_info_t`).
    static mut shared_info: [u8; 4096];
}

/// Where the bits of pending events begin in the shared information, and where the mask's.
const PENDING: usize = 2048;
const MASK: usize = 2048 + 512;

/// What a PV guest is started with (`start_info_t`).
#[repr(C)]
pub(crate) struct StartInfo {
    magic: [u8; 32],
    pages: u64,
    shared_info: u64,
    flags: u32,
    store_frame: u64,
    store_port: u32,
    console_frame: u64,
    console_port: u32,
    page_table: u64,
    page_table_frames: u64,
    frame_list: u64,
    module: u64,
    module_len: u64,
    command_line: [u8; 1024],
}

/// What a PVH guest is started with (`hvm_start_info`).
#[repr(C)]
pub(crate) struct HvmStartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
}

/// This guest.
pub(crate) struct Machine {
    /// How it runs, in a word.
    pub(crate) kind: &'static str,
    /// Requests to the store.
    pub(crate) requests: Queue,
    /// Its replies and events.
    pub(crate) replies: Queue,
    /// The store's port.
    pub(crate) store_port: u32,
    console_in: Queue,
    console_out: Queue,
    console_port: u32,
    command_line: [u8; 256],
}

impl Machine {
    /// A PV guest.
    ///
    /// # Safety
    /// Only once, with what the hypervisor gave.
    pub(crate) unsafe fn of_pv(info: *const StartInfo) -> Self {
        // SAFETY: the page was mapped by the domain builder and nobody writes to it.
        let info = unsafe { &*info };
        let shared = (&raw const shared_info).addr();
        let machine_address = usize::try_from(info.shared_info).unwrap_or(0);
        // SAFETY: that page is reserved for this.
        unsafe { hypercall::map_pv(shared, machine_address) };
        let (store, console) = (page_of_frame(info.store_frame), page_of_frame(info.console_frame));
        // SAFETY: the domain builder mapped both pages; only rings go to them.
        unsafe { Self::new("pv", store, info.store_port, console, info.console_port, info.command_line.as_ptr()) }
    }

    /// A PVH guest.
    ///
    /// # Safety
    /// Only once, with what the hypervisor gave.
    pub(crate) unsafe fn of_pvh(info: *const HvmStartInfo) -> Self {
        let page_register = (0x4000_0000_u32..0x4001_0000)
            .step_by(256)
            .find(|&leaf| __cpuid(leaf).ebx == u32::from_le_bytes(*b"XenV"))
            .map_or(0, |leaf| __cpuid(leaf + 2).ebx);
        let page = u32::try_from(hypercall::page_address()).unwrap_or(0);
        // SAFETY: the hypervisor named the register by which it fills the page that is reserved for it.
        unsafe { asm!("wrmsr", in("ecx") page_register, in("eax") page, in("edx") 0) };
        let frame = (&raw const shared_info).addr() / 4096;
        // SAFETY: that page is reserved for this.
        unsafe { hypercall::place_shared_info(frame) };
        let ring = |frame, port| {
            let address = usize::try_from(hypercall::hvm_parameter(frame)).unwrap_or(0) * 4096;
            (
                core::ptr::with_exposed_provenance_mut(address),
                u32::try_from(hypercall::hvm_parameter(port)).unwrap_or(0),
            )
        };
        let (store, store_port) = ring(1, 2);
        let (console, console_port) = ring(17, 18);
        // SAFETY: the structure is where the hypervisor said.
        let command_line = unsafe { (*info).command_line };
        let command_line = core::ptr::with_exposed_provenance(usize::try_from(command_line).unwrap_or(0));
        // SAFETY: all memory below 4 GiB is mapped; only rings go to the two pages.
        unsafe { Self::new("pvh", store, store_port, console, console_port, command_line) }
    }

    /// # Safety
    /// The pages must be rings' and stay mapped; the text must end with a NUL, or be null.
    unsafe fn new(
        kind: &'static str,
        store: *mut u8,
        store_port: u32,
        console: *mut u8,
        console_port: u32,
        text: *const u8,
    ) -> Self {
        let mut command_line = [0; 256];
        for (at, byte) in command_line.iter_mut().enumerate() {
            // SAFETY: read up to the NUL.
            *byte = if text.is_null() { 0 } else { unsafe { text.wrapping_add(at).read() } };
            if *byte == 0 {
                break;
            }
        }
        for word in 0..64 {
            // Nobody is to interrupt this guest: it polls.
            shared_word(MASK, word).store(u64::MAX, Ordering::SeqCst);
        }
        // SAFETY: the caller vouches for the page.
        let requests = unsafe { Queue::new(store, 0, 1024, 2048, 2052) };
        // SAFETY: the caller vouches for the page.
        let replies = unsafe { Queue::new(store, 1024, 1024, 2056, 2060) };
        // SAFETY: the caller vouches for the page.
        let console_in = unsafe { Queue::new(console, 0, 1024, 3072, 3076) };
        // SAFETY: the caller vouches for the page.
        let console_out = unsafe { Queue::new(console, 1024, 2048, 3080, 3084) };
        Self { kind, requests, replies, store_port, console_in, console_out, console_port, command_line }
    }

    /// Whether a word stands in the command line.
    pub(crate) fn has_word(&self, word: &[u8]) -> bool {
        self.command_line.split(|&byte| byte == b' ' || byte == 0).any(|known| known == word)
    }

    /// Whether an event of the store came since the last call.
    pub(crate) fn store_signalled(&self) -> bool {
        take_event(self.store_port)
    }

    /// Sends the store an event.
    pub(crate) fn signal_store(&self) {
        hypercall::notify(self.store_port);
    }

    /// Sleeps until the store sends an event.
    pub(crate) fn await_store(&self) {
        hypercall::poll(&[self.store_port]);
        take_event(self.store_port);
    }

    /// Sleeps until the store or the console sends an event.
    pub(crate) fn await_any(&self) {
        hypercall::poll(&[self.store_port, self.console_port]);
    }

    /// Takes what was typed at the console; gives how many bytes.
    pub(crate) fn read_console(&self, out: &mut [u8]) -> usize {
        take_event(self.console_port);
        let count = self.console_in.take(out).unwrap_or(0);
        if count > 0 {
            hypercall::notify(self.console_port);
        }
        count
    }

    /// Writes to the console, waiting for room.
    pub(crate) fn write_console(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Ok(count) = self.console_out.give(bytes) else { return };
            bytes = &bytes[count..];
            hypercall::notify(self.console_port);
            if !bytes.is_empty() {
                take_event(self.console_port);
                if self.console_out.is_full() {
                    hypercall::poll(&[self.console_port]);
                }
            }
        }
    }

    /// Takes a new port for the store in place of the old one.
    pub(crate) fn renew_store_port(&mut self) -> Option<u32> {
        self.store_port = hypercall::renew_port(self.store_port)?;
        Some(self.store_port)
    }
}

impl fmt::Write for Machine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_console(text.as_bytes());
        Ok(())
    }
}

fn shared_word(from: usize, word: usize) -> &'static AtomicU64 {
    let base = (&raw mut shared_info).cast::<u8>();
    // SAFETY: inside the page, aligned, and accessed atomically by everybody.
    unsafe { AtomicU64::from_ptr(base.wrapping_add(from + 8 * word).cast()) }
}

/// Clears a port's pending bit; tells whether it was set.
fn take_event(port: u32) -> bool {
    let bit = 1 << (port % 64);
    shared_word(PENDING, (port / 64) as usize).fetch_and(!bit, Ordering::SeqCst) & bit != 0
}

/// The page of a PV guest's machine frame, by the hypervisor's table of the way back. Virtual is physical here.
fn page_of_frame(frame: u64) -> *mut u8 {
    const TABLE: usize = 0xffff_8000_0000_0000;
    let entry = core::ptr::with_exposed_provenance::<u64>(TABLE + 8 * usize::try_from(frame).unwrap_or(0));
    // SAFETY: the table is mapped for reading in every PV guest and has an entry for each frame.
    let physical = unsafe { entry.read_volatile() };
    core::ptr::with_exposed_provenance_mut(usize::try_from(physical).unwrap_or(0) * 4096)
}
