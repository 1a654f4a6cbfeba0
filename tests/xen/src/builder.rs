//! Builds PV domains by libxenguest, as a toolstack does, without the store.

use crate::control::{Control, check, failed};
use crate::sys;
use std::ffi::CString;
use std::io;
use std::ptr;
use std::ptr::NonNull;

/// Memory of a domain, KiB. libxenguest refuses PV domains of less.
const MEMORY: u64 = 4096;

/// Above its memory: what the hypervisor counts beside it.
const SLACK: u64 = 1024;

/// A domain that was built, paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    pub(crate) store_port: u32,
    pub(crate) store_frame: u64,
    pub(crate) console_port: u32,
    pub(crate) console_frame: u64,
}

/// What libxenguest knows of a domain while it is built.
struct Image(NonNull<sys::xc_dom_image>);

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image came from the library and is released here only.
        unsafe { sys::xc_dom_release(self.0.as_ptr()) };
    }
}

/// Builds domain `domid` with `kernel` in it and `words` as its command line. `granted` says whether its store and
/// console pages stand in its grant table, as is usual. Where this fails, no domain is left.
pub(crate) fn build(control: &Control, domid: u16, kernel: &[u8], words: &str, granted: bool) -> io::Result<Built> {
    control.create(domid, MEMORY + SLACK)?;
    let built = fill(control, domid, kernel, words, granted);
    if built.is_err() {
        control.destroy(domid)?;
    }
    built
}

fn fill(control: &Control, domid: u16, kernel: &[u8], words: &str, granted: bool) -> io::Result<Built> {
    let store_port = control.alloc_port(domid)?;
    let console_port = control.alloc_port(domid)?;
    let words = CString::new(words)?;
    // SAFETY: the handle is open and the text ends with a NUL; it is copied.
    let image = unsafe { sys::xc_dom_allocate(control.raw(), words.as_ptr(), ptr::null()) };
    let mut image = Image(NonNull::new(image).ok_or_else(|| failed("xc_dom_allocate"))?);
    // SAFETY: the image is the library's own, and nobody else has it.
    let settings = unsafe { image.0.as_mut() };
    settings.container_type = sys::xc_dom_image__bindgen_ty_1::XC_DOM_PV_CONTAINER;
    settings.max_vcpus = 1;
    settings.console_evtchn = console_port;
    settings.xenstore_evtchn = store_port;
    settings.total_pages = MEMORY / 4;
    let raw = image.0.as_ptr();
    // SAFETY: the image is alive, and so is the kernel until it is released.
    check("xc_dom_kernel_mem", unsafe { sys::xc_dom_kernel_mem(raw, kernel.as_ptr().cast(), kernel.len()) })?;
    // SAFETY: image and handle are alive.
    check("xc_dom_boot_xen_init", unsafe { sys::xc_dom_boot_xen_init(raw, control.raw(), domid.into()) })?;
    // SAFETY: the image is alive.
    check("xc_dom_parse_image", unsafe { sys::xc_dom_parse_image(raw) })?;
    // SAFETY: the image is alive. The size is in MiB.
    check("xc_dom_mem_init", unsafe { sys::xc_dom_mem_init(raw, u32::try_from(MEMORY / 1024).unwrap_or(0)) })?;
    // SAFETY: the image is alive.
    check("xc_dom_boot_mem_init", unsafe { sys::xc_dom_boot_mem_init(raw) })?;
    // SAFETY: the image is alive.
    check("xc_dom_build_image", unsafe { sys::xc_dom_build_image(raw) })?;
    // SAFETY: the image is alive.
    check("xc_dom_boot_image", unsafe { sys::xc_dom_boot_image(raw) })?;
    if granted {
        // SAFETY: the image is alive.
        check("xc_dom_gnttab_init", unsafe { sys::xc_dom_gnttab_init(raw) })?;
    }
    let store_frame = machine_frame(&image, |image| image.xenstore_pfn)?;
    let console_frame = machine_frame(&image, |image| image.console_pfn)?;
    Ok(Built { store_port, store_frame, console_port, console_frame })
}

/// The machine frame behind one of the domain's own.
fn machine_frame(image: &Image, frame: impl Fn(&sys::xc_dom_image) -> sys::xen_pfn_t) -> io::Result<u64> {
    // SAFETY: the image is alive, and nobody changes it.
    let known = unsafe { image.0.as_ref() };
    let frame = frame(known);
    if known.pv_p2m.is_null() || frame >= known.p2m_size {
        return Err(io::Error::other(format!("frame {frame} is not the domain's")));
    }
    let frame = usize::try_from(frame).map_err(io::Error::other)?;
    // SAFETY: the table has `p2m_size` entries.
    Ok(unsafe { known.pv_p2m.wrapping_add(frame).read() })
}
