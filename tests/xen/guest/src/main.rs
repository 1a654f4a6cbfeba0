//! The kernel of the tests' guests on a real Xen, PV or PVH.
//!
//! It has no interrupts, no memory management and one loop: it looks at its two rings, the store's and the console's,
//! and polls the hypervisor when both are at rest. With the word `serve` on its command line it does to its store ring
//! what it is told over the console ([`serve`]); otherwise it leads a conversation of its own ([`talk`]).
#![no_std]
#![no_main]

mod boot;
mod hypercall;
mod machine;
mod memory;
mod queue;
mod serve;
mod store;
mod talk;

use core::fmt::Write as _;
use machine::Machine;

/// Runs for ever, or until the domain shuts down.
fn run(mut machine: Machine) -> ! {
    if machine.has_word(b"serve") { serve::run(&mut machine) } else { talk::run(&mut machine) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = Emergency;
    let _ = writeln!(text, "guest kernel: {info}");
    hypercall::shutdown(hypercall::Reason::Crash);
    loop {
        core::hint::spin_loop();
    }
}

/// The hypervisor's own console, which takes a guest's words where it was built or told to.
struct Emergency;

impl core::fmt::Write for Emergency {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        hypercall::print(text.as_bytes());
        Ok(())
    }
}
