//! Makes bindings of libxenctrl and libxenguest from the headers that are installed, and links the two.

use std::env;
use std::path::PathBuf;

/// Functions to bind, as regular expressions.
const FUNCTIONS: [&str; 3] = [
    "xc_interface_(open|close)",
    "xc_domain_(create|max_vcpus|setmaxmem|unpause|destroy|resume)|xc_evtchn_(alloc_unbound|status)",
    "xc_dom_(allocate|release|kernel_mem|boot_xen_init|parse_image|mem_init|boot_mem_init|build_image|boot_image|gnttab_init)",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    let mut builder = bindgen::Builder::default()
        .header("wrapper.h")
        .use_core()
        .ctypes_prefix("core::ffi")
        .rust_edition(bindgen::RustEdition::Edition2024)
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .allowlist_var("EVTCHNSTAT_interdomain")
        .derive_default(false)
        .generate_comments(false)
        .formatter(bindgen::Formatter::None)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new().rerun_on_header_files(true)));
    for name in ["xencontrol", "xenguest"] {
        let library = pkg_config::Config::new()
            .probe(name)
            .unwrap_or_else(|error| panic!("the development files of Xen are missing, libxen-dev on Debian: {error}"));
        for path in library.include_paths {
            builder = builder.clang_arg(format!("-I{}", path.display()));
        }
    }
    for pattern in FUNCTIONS {
        builder = builder.allowlist_function(pattern);
    }
    let bindings = builder.generate().unwrap_or_else(|error| panic!("no bindings of libxenguest: {error}"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    bindings.write_to_file(&out).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}
