//! Bindings of libxenctrl and libxenguest, made at build time. Names are those of C.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unnameable_types,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::use_self,
    reason = "the names and shapes are those of the C headers"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
