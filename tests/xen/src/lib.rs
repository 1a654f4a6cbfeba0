//! Domains on a real Xen for the tests.
//!
//! It offers what `xen-sim` offers on a simulated host, by the same names, so that the same tests run on both: a
//! [`Host`] that creates domains and destroys them, and [`Guest`], a domain's kernel, which does to its ring what the
//! test says. Here the kernel is a program of its own (`tests/xen/guest`) that runs in the domain; the test tells it
//! what to do over the domain's console, and looks at its ring page as domain 0 may look at any page.
//!
//! All of this runs in domain 0 of a machine that nothing else is done with. There is one Xen, so one host at a time.

mod bridge;
mod builder;
mod control;
mod domain;
mod guest;
mod host;
mod hypervisor;
mod line;
mod sys;

pub use guest::{Guest, Page};
pub use host::Host;
pub use xen_sim::{Domain, DomainOptions, RING_SIZE, ShutdownReason, Word};

/// A guest that speaks the wire protocol.
pub type GuestClient = xen_sim::GuestClient<Guest>;

/// Whether the ring of this domain's kernel is served: whether somebody has bound its port.
///
/// # Errors
/// Where there is no Xen, or the kernel has no such ring.
pub fn kernel_is_served() -> std::io::Result<bool> {
    let port = xen_ffi::xen_files::read_own_port(std::path::Path::new(xen_ffi::xen_files::PORT_FILE))
        .map_err(std::io::Error::other)?;
    control::Control::open()?.is_bound(0, port.0)
}

/// The words of the ring of this domain's kernel, for people.
///
/// # Errors
/// Where there is no Xen, or the kernel has no such ring.
pub fn words_of_own_ring() -> std::io::Result<String> {
    let page = xen_ffi::xen_files::map_own_ring(std::path::Path::new(xen_ffi::xen_files::RING_FILE))
        .map_err(std::io::Error::other)?;
    let words = Word::ALL.map(|word| format!("{} {:#x}", word.name(), page.read_u32(word.offset())));
    Ok(words.join(", "))
}
