//! Finds the Xen libraries by pkg-config and makes their bindings from the headers that are installed.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    process::ExitCode,
};

/// Libraries that every supported Xen has, with the least version whose functions are called.
const REQUIRED: [(&str, &str); 4] =
    [("xenevtchn", "1.2"), ("xengnttab", "1.0"), ("xenforeignmemory", "1.0"), ("xentoolcore", "1.0")];

/// The stable library for the state of domains; Xen 4.21 is the first to have it.
const MANAGE: (&str, &str) = ("xenmanage", "1.0");

/// Functions to bind, as regular expressions.
const FUNCTIONS: [&str; 5] = [
    "xenevtchn_(open|fdopen|close|fd|notify|bind_interdomain|bind_unbound_port|bind_virq|unbind|pending|unmask|restrict)",
    "xengnttab_(open|close|fd|map_grant_ref|unmap|set_max_grants)",
    "xenforeignmemory_(open|close|map|unmap|restrict)",
    "xentoolcore_restrict_all",
    "xenmanage_(open|close|get_domain_info|poll_changed_domain)",
];

/// Constants to bind.
const CONSTANTS: [&str; 6] = [
    "XENEVTCHN_NO_CLOEXEC",
    "VIRQ_DOM_EXC",
    "GNTTAB_RESERVED_XENSTORE",
    "XENSTORE_RING_SIZE",
    "XENSTORE_(CONNECTED|RECONNECT)",
    "XENMANAGE_GETDOMSTATE_.*",
];

fn main() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn generate() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rustc-check-cfg=cfg(xenmanage)");

    let mut include_paths = Vec::new();
    for (name, least) in REQUIRED {
        let library = probe(name, least).map_err(|error| {
            format!(
                "the Xen library lib{name} (version {least} or newer) was not found.\n\
                 Install the Xen development files: on Debian and its kin `apt install libxen-dev`, \
                 on Fedora `dnf install xen-devel`.\n\
                 pkg-config said: {error}"
            )
        })?;
        include_paths.extend(library.include_paths);
    }
    // Its absence is no fault: an older Xen has none, and the safe layer then asks libxenctrl at run time.
    let manage = probe(MANAGE.0, MANAGE.1).ok();
    println!("cargo::metadata=manage={}", u8::from(manage.is_some()));

    let mut builder = bindgen::Builder::default()
        .header("wrapper.h")
        .use_core()
        .ctypes_prefix("core::ffi")
        .rust_edition(bindgen::RustEdition::Edition2024)
        // A value that this header's version does not know must stay a number: an enum of Rust would be undefined.
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .allowlist_type("xenstore_domain_interface")
        .layout_tests(true)
        .derive_default(false)
        // Text of C headers is not Rust documentation; rustdoc would take its examples for tests.
        .generate_comments(false)
        .formatter(bindgen::Formatter::None)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new().rerun_on_header_files(true)));
    if let Some(library) = manage {
        println!("cargo::rustc-cfg=xenmanage");
        builder = builder.clang_arg("-DXEN_SYS_MANAGE");
        include_paths.extend(library.include_paths);
    }
    for path in include_paths {
        builder = builder.clang_arg(format!("-I{}", path.display()));
    }
    for pattern in FUNCTIONS {
        builder = builder.allowlist_function(pattern);
    }
    for pattern in CONSTANTS {
        builder = builder.allowlist_var(pattern);
    }

    // bindgen panics where there is no libclang at all. What it then prints tells where it looked.
    let bindings = panic::catch_unwind(AssertUnwindSafe(|| builder.generate()))
        .map_err(|_| "libclang was not found".to_owned())
        .and_then(|result| result.map_err(|error| error.to_string()))
        .map_err(|cause| {
            format!(
                "no bindings could be made from the headers of Xen.\n\
                 This needs libclang with its own headers: on Debian and its kin `apt install libclang-dev`, \
                 on Fedora `dnf install clang-devel`.\n\
                 The cause: {cause}"
            )
        })?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?).join("bindings.rs");
    bindings.write_to_file(&out).map_err(|error| format!("cannot write {}: {error}", out.display()))
}

/// Asks pkg-config for a library; what it finds is linked. It says itself what environment it depends on.
fn probe(name: &str, least: &str) -> Result<pkg_config::Library, pkg_config::Error> {
    pkg_config::Config::new().atleast_version(least).probe(name)
}
