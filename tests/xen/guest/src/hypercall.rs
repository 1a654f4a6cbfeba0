//! Calls of the hypervisor. Numbers and structures are those of xen/include/public: xen.h, sched.h, event_channel.h,
//! memory.h and hvm/.

use core::arch::asm;

unsafe extern "C" {
    /// Code that the hypervisor fills in: an entry of 32 bytes for each call.
    static mut hypercall_page: [u8; 4096];
}

const MEMORY_OP: usize = 12;
const UPDATE_VA_MAPPING: usize = 14;
const CONSOLE_IO: usize = 18;
const SCHED_OP: usize = 29;
const EVENT_CHANNEL_OP: usize = 32;
const HVM_OP: usize = 34;

/// This domain, whatever its number.
const SELF: u16 = 0x7ff0;

/// Why a domain shuts down.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Reason {
    Poweroff = 0,
    Reboot = 1,
    Suspend = 2,
    Crash = 3,
}

impl Reason {
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        [Self::Poweroff, Self::Reboot, Self::Suspend, Self::Crash].get(usize::from(number)).copied()
    }
}

/// Address of the page that the hypervisor fills in.
pub(crate) fn page_address() -> usize {
    (&raw const hypercall_page).addr()
}

/// Makes a call; what it needs less than four arguments for ignores the rest.
///
/// # Safety
/// Pointers among the arguments must be what the call wants, and its effect must be one that Rust allows.
unsafe fn call(number: usize, arguments: [usize; 4]) -> isize {
    let entry = page_address() + 32 * number;
    let [first, second, third, fourth] = arguments;
    let result: isize;
    // SAFETY: the entry is code of the hypervisor's, which keeps all registers but those named; the caller vouches for
    // what the call does.
    unsafe {
        asm!(
            "call {entry}",
            entry = in(reg) entry,
            inlateout("rdi") first => _,
            inlateout("rsi") second => _,
            inlateout("rdx") third => _,
            inlateout("r10") fourth => _,
            lateout("rax") result,
            out("rcx") _,
            out("r8") _,
            out("r9") _,
            out("r11") _,
        );
    }
    result
}

/// Sends an event.
pub(crate) fn notify(port: u32) {
    // SAFETY: EVTCHNOP_send reads one number.
    unsafe { call(EVENT_CHANNEL_OP, [4, (&raw const port).addr(), 0, 0]) };
}

/// Replaces a port by a new one that domain 0 may bind.
pub(crate) fn renew_port(old: u32) -> Option<u32> {
    #[repr(C)]
    struct AllocUnbound {
        domain: u16,
        remote: u16,
        port: u32,
    }
    // SAFETY: EVTCHNOP_close reads one number.
    unsafe { call(EVENT_CHANNEL_OP, [3, (&raw const old).addr(), 0, 0]) };
    let mut request = AllocUnbound { domain: SELF, remote: 0, port: 0 };
    // SAFETY: EVTCHNOP_alloc_unbound reads and fills this structure.
    let result = unsafe { call(EVENT_CHANNEL_OP, [6, (&raw mut request).expose_provenance(), 0, 0]) };
    (result == 0).then_some(request.port)
}

/// Sleeps until one of the ports has an event pending.
pub(crate) fn poll(ports: &[u32]) {
    #[repr(C)]
    struct Poll {
        ports: *const u32,
        count: u32,
        timeout: u64,
    }
    let request = Poll { ports: ports.as_ptr(), count: u32::try_from(ports.len()).unwrap_or(0), timeout: 0 };
    // SAFETY: SCHEDOP_poll reads this structure and as many ports as it says.
    unsafe { call(SCHED_OP, [3, (&raw const request).addr(), 0, 0]) };
}

/// Shuts the domain down. It comes back from a suspension only.
pub(crate) fn shutdown(reason: Reason) {
    let reason = reason as u32;
    // SAFETY: SCHEDOP_shutdown reads one number.
    unsafe { call(SCHED_OP, [2, (&raw const reason).addr(), 0, 0]) };
}

/// Prints on the hypervisor's console.
pub(crate) fn print(bytes: &[u8]) {
    // SAFETY: CONSOLEIO_write reads as many bytes as it is told.
    unsafe { call(CONSOLE_IO, [0, bytes.len(), bytes.as_ptr().addr(), 0]) };
}

/// Maps the frame at this machine address at a page of a PV guest's own.
///
/// # Safety
/// Nothing may be kept in the page that was there.
pub(crate) unsafe fn map_pv(page: usize, machine_address: usize) {
    // Present, writable, user, accessed, dirty; and this page's translation is flushed.
    // SAFETY: the caller gives the page away.
    unsafe { call(UPDATE_VA_MAPPING, [page, machine_address | 0x67, 2, 0]) };
}

/// Puts the shared information at a frame of an HVM guest's own.
///
/// # Safety
/// Nothing may be kept in the page that was there.
pub(crate) unsafe fn place_shared_info(frame: usize) {
    #[repr(C)]
    struct AddToPhysmap {
        domain: u16,
        size: u16,
        space: u32,
        index: usize,
        frame: usize,
    }
    let request = AddToPhysmap { domain: SELF, size: 0, space: 0, index: 0, frame };
    // SAFETY: XENMEM_add_to_physmap reads this structure; the caller gives the page away.
    unsafe { call(MEMORY_OP, [7, (&raw const request).addr(), 0, 0]) };
}

/// A parameter of an HVM guest.
pub(crate) fn hvm_parameter(index: u32) -> u64 {
    #[repr(C)]
    struct Parameter {
        domain: u16,
        index: u32,
        value: u64,
    }
    let mut request = Parameter { domain: SELF, index, value: 0 };
    // SAFETY: HVMOP_get_param reads and fills this structure.
    unsafe { call(HVM_OP, [1, (&raw mut request).expose_provenance(), 0, 0]) };
    request.value
}
