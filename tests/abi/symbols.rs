//! The shared library as the linker sees it: names, versions, what it needs.

use crate::compiler::root;
use crate::library::Library;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use xenstored_tests::tools::XEN_BIN;

/// What came after 4.0, by version; all else that Xen's library has is 4.0.
const NEWER: [(&str, &[&str]); 2] = [
    ("VERS_4.1", &["xs_get_features_domain", "xs_get_features_supported", "xs_set_features_domain"]),
    (
        "VERS_4.2",
        &[
            "xs_get_domain_quota",
            "xs_get_global_quota",
            "xs_get_quota_names",
            "xs_set_domain_quota",
            "xs_set_global_quota",
            "xs_watch_depth",
            "xs_watch_try_depth",
        ],
    ),
];

/// Where Debian keeps the symbols of its own library.
const DEBIAN_S: &str = "/var/lib/dpkg/info/libxenstore4:amd64.symbols";

fn file(library: Library) -> PathBuf {
    library.dir().join("libxenstore.so.4")
}

/// Runs a tool; its status and what it printed.
fn run(command: &mut Command) -> (i32, String) {
    let output = command.env("LC_ALL", "C").output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    (output.status.code().expect("it ends by itself"), text)
}

/// Every symbol that a library defines for others, with its version.
fn symbols(library: Library) -> BTreeMap<String, String> {
    let (status, text) = run(Command::new("readelf").args(["--wide", "--dyn-syms"]).arg(file(library)));
    assert_eq!(status, 0, "{text}");
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() >= 8 && words[6] != "UND" && words[4] != "LOCAL" && words[0] != "Num:")
        .map(|words| {
            let (name, version) = words[7].split_once("@@").unwrap_or((words[7], ""));
            (name.to_owned(), version.to_owned())
        })
        .collect()
}

#[test]
fn every_symbol_has_the_version_that_it_came_with() {
    let mut expected = symbols(Library::Debian);
    assert_eq!(expected.keys().filter(|name| name.starts_with("xs_")).count(), 37);
    for (version, names) in NEWER {
        expected.insert(version.into(), String::new());
        expected.extend(names.iter().map(|&name| (name.into(), version.into())));
    }
    assert_eq!(symbols(Library::Ours), expected);
}

#[test]
fn each_version_builds_on_the_one_before() {
    let (status, text) = run(Command::new("readelf").args(["--wide", "--version-info"]).arg(file(Library::Ours)));
    assert_eq!(status, 0, "{text}");
    let defined = text.split("Version definition section").nth(1).expect("definitions");
    let defined = defined.split("Version needs section").next().expect("their end");
    let names: Vec<&str> = defined.lines().filter_map(|line| line.split("Name: ").nth(1)).map(str::trim).collect();
    assert_eq!(names, ["libxenstore.so.4", "VERS_4.0", "VERS_4.1", "VERS_4.2"], "{defined}");
    let parents: Vec<&str> =
        defined.lines().filter_map(|line| line.split("Parent 1: ").nth(1)).map(str::trim).collect();
    assert_eq!(parents, ["VERS_4.0", "VERS_4.1"], "{defined}");
}

/// A fault here does not show when programs run: the loader takes a symbol without a version for any.
#[test]
fn dpkg_finds_all_symbols_and_no_other() {
    let gensymbols = |package: &str, level: &str, symbols: &Path| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("debian")).expect("a directory");
        std::fs::copy(root().join("debian/control"), dir.path().join("debian/control")).expect("a copy");
        std::fs::copy(root().join("debian/changelog"), dir.path().join("debian/changelog")).expect("a copy");
        let mut command = Command::new("dpkg-gensymbols");
        command.args(["-v4.22.0", "-O/dev/null", level]).arg(format!("-p{package}")).current_dir(dir.path());
        command.arg(format!("-e{}", file(Library::Ours).display())).arg(format!("-I{}", symbols.display()));
        run(&mut command)
    };
    let ours = root().join("debian/libxenstore4-rs.symbols");
    let (status, text) = gensymbols("libxenstore4-rs", "-c4", &ours);
    assert_eq!(status, 0, "beside our own list: {text}");
    let (status, text) = gensymbols("libxenstore4-rs", "-c1", Path::new(DEBIAN_S));
    assert_eq!(status, 0, "beside Debian's list: {text}");
    assert!(!text.contains("#MISSING"), "beside Debian's list: {text}");
    // Its own list is just like ours, as far as it goes.
    let list = |path: &Path| -> BTreeSet<String> {
        let text = std::fs::read_to_string(path).expect("a list of symbols");
        text.lines().filter(|line| line.contains('@')).map(str::to_owned).collect()
    };
    assert!(list(Path::new(DEBIAN_S)).is_subset(&list(&ours)));
}

#[test]
fn abidiff_finds_additions_only() {
    let (status, text) = run(Command::new("abidiff").args([file(Library::Debian), file(Library::Ours)]));
    // Bits: 1 and 2 are failures of the tool, 4 is a change, 8 one that breaks programs.
    assert_eq!(status, 4, "{text}");
    assert!(text.contains("0 Removed, 10 Added function symbols"), "{text}");
    assert!(text.contains("0 Removed, 0 Added variable symbol"), "{text}");
}

#[test]
fn it_needs_what_every_system_has_and_is_loaded_like_any_other() {
    let (status, text) =
        run(Command::new("readelf").args(["--wide", "--dynamic", "--program-headers"]).arg(file(Library::Ours)));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("Library soname: [libxenstore.so.4]"), "{text}");
    let needed: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split("Shared library: [").nth(1))
        .map(|name| name.trim_end_matches(']'))
        .collect();
    // libxentoolcore is what a program shuts its handles in with.
    let allowed = BTreeSet::from(["libxentoolcore.so.1", "libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"]);
    assert!(needed.is_subset(&allowed), "{needed:?}");
    for wrong in ["TEXTREL", "RPATH", "RUNPATH"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    assert!(text.contains("GNU_RELRO"), "{text}");
    let stack = text.lines().find(|line| line.contains("GNU_STACK")).expect("a stack");
    assert!(!stack.contains("RWE"), "{stack}");
}

/// Programs and libraries of Debian's Xen that link libxenstore.
fn users() -> Vec<PathBuf> {
    let (status, text) = run(Command::new("dpkg").args([
        "-L",
        "xen-utils-4.17",
        "xen-utils-common",
        "xenstore-utils",
        "libxenmisc4.17",
    ]));
    assert_eq!(status, 0, "{text}");
    let files: BTreeSet<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.is_file()).collect();
    let users = files.into_iter().filter(|path| {
        // A file that is no program has no dynamic section.
        let (_, dynamic) = run(Command::new("readelf").arg("--dynamic").arg(path));
        dynamic.contains("[libxenstore.so.4]")
    });
    users.collect()
}

#[test]
fn every_program_of_debian_finds_its_symbols() {
    let users = users();
    assert!(users.len() >= 25, "{users:?}");
    for user in users {
        let private = Path::new(XEN_BIN).parent().expect("…/xen-4.17/bin").join("lib");
        let path = std::env::join_paths([Library::Ours.dir(), &private]).expect("plain paths");
        let (_, text) = run(Command::new("ldd").arg("-r").arg(&user).env("LD_LIBRARY_PATH", path));
        assert!(text.contains(Library::Ours.dir().to_str().expect("a plain path")), "{}: {text}", user.display());
        for wrong in ["xs_", "VERS_", "no version information", "not found"] {
            assert!(!text.contains(wrong), "{}: {text}", user.display());
        }
    }
}
