//! The headers by themselves and beside those of Xen.

use crate::compiler::{SYSTEM_INCLUDE, asked, compile, compiler, define_header, include, source};
use rstest::rstest;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

#[rstest]
fn they_compile_alone(
    #[values("c99", "c11", "c17", "gnu17", "c++98", "c++11", "c++20")] standard: &str,
    #[values(&[], &["-DOLD_NAMES"])] options: &[&str],
) {
    let mut command = compiler(standard);
    command.args(options).arg("-I").arg(include()).arg("-fsyntax-only").arg(source("headers/alone.c"));
    compile(&mut command);
}

/// With Xen's first, the compiler compares each of their declarations with ours.
#[rstest]
fn they_agree_with_xen_s(
    #[values("c99", "c17", "c++98", "c++20")] standard: &str,
    #[values(&[], &["-DOURS_FIRST"])] options: &[&str],
) {
    let system = Path::new(SYSTEM_INCLUDE);
    let mut command = compiler(standard);
    command
        .args(options)
        .arg(define_header("OURS", &include().join("xenstore.h")))
        .arg(define_header("THEIRS_LIB", &system.join("xenstore_lib.h")))
        .arg(define_header("THEIRS", &system.join("xenstore.h")))
        .arg("-I")
        .arg(include())
        .arg("-fsyntax-only")
        .arg(source("headers/both.c"));
    compile(&mut command);
}

/// The system's headers without Xen's: links to all others in a directory.
#[rstest]
fn they_need_no_header_of_xen(#[values("c99", "c++98")] standard: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(SYSTEM_INCLUDE).expect("the system's headers") {
        let entry = entry.expect("an entry");
        if entry.file_name() != "xen" {
            symlink(entry.path(), dir.path().join(entry.file_name())).expect("a link");
        }
    }
    let mut command = compiler(standard);
    command.arg("-nostdinc").arg("-DNO_XEN").arg("-I").arg(include());
    for own in [asked("-print-file-name=include").into(), dir.path().into(), dir.path().join(asked("-print-multiarch"))]
    {
        command.arg("-isystem").arg(own);
    }
    compile(command.arg("-fsyntax-only").arg(source("headers/alone.c")));
}
