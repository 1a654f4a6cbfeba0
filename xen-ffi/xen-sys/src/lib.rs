//! Raw bindings of the Xen libraries whose ABI is stable: libxenevtchn, libxengnttab, libxenforeignmemory and
//! libxentoolcore, and libxenmanage where it is installed (Xen 4.21 and newer; `cfg(xenmanage)` inside this crate).
//!
//! They are made at build time from the headers of the machine, and the layout of every type is checked then. Names are
//! those of C. The safe layer over them is the package `xen-ffi`; what an item does is said by Xen's own headers.
//!
//! Not here: libxenctrl. Its ABI belongs to one version of Xen, so a program that links it is bound to that version.
#![no_std]
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unnameable_types,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::use_self,
    reason = "the names and shapes are those of the C headers"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
