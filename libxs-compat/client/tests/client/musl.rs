//! A program for another C library, linked statically: the client needs none of the system's.

use crate::store;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use xenstore_client::Nodes;

const TARGET: &str = "x86_64-unknown-linux-musl";

fn rustc() -> OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// Whether the toolchain has the standard library for it.
fn is_there() -> bool {
    let output = Command::new(rustc()).args(["--print", "target-libdir", "--target", TARGET]).output();
    let dir = output.expect("rustc runs").stdout;
    String::from_utf8(dir).is_ok_and(|dir| Path::new(dir.trim_end()).is_dir())
}

#[test]
fn a_static_program_watches() {
    if !is_there() {
        eprintln!("not tried: this toolchain has no {TARGET}");
        return;
    }
    let test = std::env::current_exe().expect("a test knows its own file");
    let target = test.ancestors().nth(3).expect("tests live in <target>/<profile>/deps");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The library alone: what the tests need is not built for that target.
    let built = Command::new(cargo)
        .args(["build", "--quiet", "-p", "xenstore-client", "--lib", "--target", TARGET, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("cargo runs").success(), "the library does not build");
    let (daemon, client) = store();
    let (built, program) = (target.join(TARGET).join("debug"), daemon.dir().join("follow"));
    let linked = Command::new(rustc())
        .args(["--edition", "2024", "--target", TARGET, "-o"])
        .arg(&program)
        // The second has what the compiler itself runs.
        .arg("-L")
        .arg(built.join("deps"))
        .arg("-L")
        .arg(target.join("debug/deps"))
        .arg("--extern")
        .arg(format!("xenstore_client={}", built.join("libxenstore_client.rlib").display()))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/follow.rs"))
        .status();
    assert!(linked.expect("rustc runs").success(), "the program does not build");
    let described = Command::new("readelf").args(["--wide", "--program-headers"]).arg(&program).output();
    let described = String::from_utf8(described.expect("readelf runs").stdout).expect("text");
    assert!(described.contains("LOAD") && !described.contains("INTERP"), "it is not static: {described}");

    client.write("/followed", "value").unwrap();
    let output = Command::new("timeout")
        .args(["60".as_ref(), program.as_os_str(), "/followed".as_ref(), "1".as_ref()])
        .env("XENSTORED_PATH", daemon.socket())
        .output()
        .expect("the program starts");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"/followed = \"value\"\n"[..]),
        "{output:?}"
    );
}
