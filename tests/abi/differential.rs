//! The same program on Debian's library and on ours, over the same kind of daemon: every line must be equal.

use crate::library::Library;
use crate::program::{Built, Run, loaded, program};
use crate::stage::{NEW, stage};
use rstest::rstest;
use std::path::Path;
use xenstored_tests::Store;
use xenstored_tests::scene::Scene;

/// Fails at the first line that differs.
fn assert_same(what: &str, [theirs, ours]: [String; 2]) {
    for (number, (theirs, ours)) in theirs.lines().zip(ours.lines()).enumerate() {
        assert_eq!(theirs, ours, "{what}, line {}: left Debian's library, right ours", number + 1);
    }
    assert_eq!(theirs.lines().count(), ours.lines().count(), "{what}: lines\n{theirs}\n{ours}");
}

/// Runs a program on each library, each time with a new daemon.
fn same(store: Store, run: impl Fn(Library, &Scene) -> String) {
    let outputs = Library::BOTH.map(|library| {
        let mut scene = stage(store);
        let output = run(library, &scene);
        scene.assert_alive();
        output
    });
    assert_same(&format!("{store:?}"), outputs);
}

#[test]
fn each_library_is_the_one_that_is_loaded() {
    let path = program("nodes", Built::Debian);
    for library in Library::BOTH {
        let file = loaded(&path, library);
        let file = Path::new(&file).canonicalize().expect("the file is there");
        let dir = library.dir().canonicalize().expect("the directory is there");
        assert!(file.starts_with(&dir), "{library:?}: {}", file.display());
    }
}

/// Arguments of programs: what this daemon can do. oxenstored has smaller values, and lists that fit one message only.
pub(crate) fn arguments(name: &str, store: Store) -> &'static [&'static str] {
    match (name, store) {
        ("nodes", Store::Ocaml) => &["2048", "500"],
        ("nodes", _) => &["4088", "5000"],
        ("transactions", Store::Ocaml) => &["500"],
        ("transactions", _) => &["1000"],
        ("little", Store::Ocaml) => &["500"],
        ("little", _) => &["5000"],
        ("plugin", _) => &["200"],
        _ => &[],
    }
}

#[rstest]
fn programs_see_the_same(
    #[values(Store::Ours, Store::C, Store::Ocaml)] store: Store,
    #[values("nodes", "transactions", "watches", "opening", "signals", "little", "plugin")] name: &'static str,
) {
    same(store, |library, scene| Run::new(name, library).args(arguments(name, store)).at(scene.host.socket()).output());
}

#[rstest]
fn toolstacks_see_the_same(#[values(Store::Ours, Store::C, Store::Ocaml)] store: Store) {
    same(store, |library, scene| {
        let domain = scene.host.domain(NEW).expect("the domain was made");
        let run = Run::new("domains", library).at(scene.host.socket());
        run.number(domain.domid).number(domain.gfn).number(domain.port).output()
    });
}
