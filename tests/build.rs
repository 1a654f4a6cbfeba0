//! Compiles the preload library that carries Debian's daemons where there is no hypervisor.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::Command;

fn main() {
    let mut cargo = std::io::stdout();
    let library = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("preload.so");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o"])
        .arg(&library)
        .arg("peer/preload.c")
        .arg("-ldl")
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("{} cannot compile peer/preload.c: {other:?}", compiler.display()),
    }
    for line in [
        format!("cargo::rustc-env=PEER_PRELOAD={}", library.display()),
        "cargo::rerun-if-changed=peer/preload.c".into(),
        "cargo::rerun-if-env-changed=CC".into(),
    ] {
        writeln!(cargo, "{line}").expect("cargo reads what a build script prints");
    }
}
