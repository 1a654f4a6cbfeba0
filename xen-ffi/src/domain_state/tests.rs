use std::{fs, path::Path};

use rstest::rstest;

use crate::id::Port;

use super::{
    control::Functions,
    library::{Library, XenVersion, candidates, library_dirs},
    *,
};

mod layout;
mod stand_in;

use stand_in::{Kind, host};

fn control(kind: Kind) -> Control {
    Control::open_with(stand_in::functions(kind)).unwrap()
}

fn alive(domid: u16) -> DomainState {
    let unique_id = Some(UniqueId::of_handle([u8::try_from(domid).unwrap(); 16]));
    DomainState { domid: DomId(domid), life: Life::Alive, shutdown: false, unique_id }
}

#[rstest]
fn a_domain_is_asked_for_by_its_number(#[values(Kind::Info, Kind::SingleAndList)] kind: Kind) {
    host::create(0);
    host::create(7);
    let control = control(kind);
    assert_eq!(control.get(DomId(7)).unwrap(), alive(7));
    // Up to 4.17 the library answers with the next domain, 7.
    assert_eq!(control.get(DomId(3)).unwrap(), gone(DomId(3)));
    assert_eq!(control.get(DomId(8)).unwrap(), gone(DomId(8)));
}

#[rstest]
fn what_became_of_a_domain_is_told(#[values(Kind::Info, Kind::SingleAndList)] kind: Kind) {
    host::create(1);
    host::create(2);
    host::shut_down(1);
    host::kill(2);
    let control = control(kind);
    assert_eq!(control.get(DomId(1)).unwrap(), DomainState { shutdown: true, ..alive(1) });
    assert_eq!(control.get(DomId(2)).unwrap(), DomainState { life: Life::Dead, ..alive(2) });
}

#[test]
fn a_crash_is_a_shutdown() {
    host::create(1);
    host::crash(1);
    assert!(control(Kind::Info).get(DomId(1)).unwrap().shutdown);
}

#[rstest]
fn the_first_changes_are_all_domains_and_then_only_what_changed(#[values(Kind::Info, Kind::SingleAndList)] kind: Kind) {
    for domid in [0, 1, 5, 200] {
        host::create(domid);
    }
    let mut control = control(kind);
    assert_eq!(control.changes().unwrap(), [alive(0), alive(1), alive(5), alive(200)]);
    assert_eq!(control.changes().unwrap(), []);

    host::shut_down(5);
    host::remove(1);
    host::create(3);
    let expected = [DomainState { life: Life::Gone, ..alive(1) }, alive(3), DomainState { shutdown: true, ..alive(5) }];
    assert_eq!(control.changes().unwrap(), expected);
    assert_eq!(control.changes().unwrap(), []);
    let gone = DomainState { unique_id: None, life: Life::Gone, ..alive(1) };
    assert_eq!([1, 3, 200].map(|domid| control.seen(DomId(domid))), [gone, alive(3), alive(200)]);
}

#[test]
fn a_number_that_was_given_again_is_a_change() {
    host::create(1);
    let mut control = control(Kind::SingleAndList);
    control.changes().unwrap();
    host::remove(1);
    host::create_with_handle(1, [9; 16]);
    let other = DomainState { unique_id: Some(UniqueId::of_handle([9; 16])), ..alive(1) };
    assert_eq!(control.changes().unwrap(), [other]);
}

#[rstest]
fn a_failure_is_told_and_loses_no_change(#[values(Kind::Info, Kind::SingleAndList)] kind: Kind) {
    host::create(0);
    host::create(4);
    let mut control = control(kind);
    host::fail_from(4, libc::EPERM);
    assert_eq!(control.changes().unwrap_err().errno(), Some(libc::EPERM));
    assert_eq!(control.get(DomId(4)).unwrap_err().errno(), Some(libc::EPERM));
    host::fail_from(u32::MAX, 0);
    assert_eq!(control.changes().unwrap(), [alive(0), alive(4)]);
}

#[test]
fn numbers_that_name_no_domain_end_the_look() {
    host::create(0);
    host::create_with_handle(0x7ff1, [1; 16]);
    assert_eq!(control(Kind::SingleAndList).changes().unwrap(), [alive(0)]);
}

#[test]
fn the_interface_is_closed_once() {
    let control = control(Kind::Info);
    assert_eq!(host::closed(), 0);
    drop(control);
    assert_eq!(host::closed(), 1);
}

#[test]
fn an_interface_that_does_not_open_says_why() {
    host::refuse_to_open(libc::EACCES);
    let error = Control::open_with(stand_in::functions(Kind::Info)).unwrap_err();
    assert_eq!((error.call(), error.errno()), ("xc_interface_open", Some(libc::EACCES)));
    assert_eq!(host::closed(), 0);
}

#[test]
fn ids_of_handles_differ_and_are_never_zero() {
    let id = |byte| UniqueId::of_handle([byte; 16]).value();
    assert_ne!(id(0), 0);
    assert_ne!(id(0), id(1));
    let mut swapped = [0; 16];
    swapped[0] = 1;
    let mut other = [0; 16];
    other[8] = 1;
    assert_ne!(UniqueId::of_handle(swapped), UniqueId::of_handle(other));
    // Written to files, so it may never change: computed by another program from the published constants.
    assert_eq!(id(0), 0x8820_1fb9_60ff_6465);
}

#[rstest]
#[case("libxenctrl.so.4.17", Some((4, 17)))]
#[case("libxenctrl.so.4.17.0", Some((4, 17)))]
#[case("libxenctrl.so.10.2", Some((10, 2)))]
#[case("libxenctrl.so", None)]
#[case("libxenctrl.so.4", None)]
#[case("libxenctrl.so.4.17.old", None)]
#[case("libxenctrl.so.4.17-old", None)]
#[case("libxenguest.so.4.17", None)]
fn a_version_stands_in_the_name(#[case] name: &str, #[case] version: Option<(u32, u32)>) {
    assert_eq!(XenVersion::of_file_name(name), version.map(|(major, minor)| XenVersion { major, minor }));
}

#[test]
fn the_version_that_runs_is_read() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(XenVersion::running(dir.path()), None);
    fs::write(dir.path().join("major"), "4\n").unwrap();
    assert_eq!(XenVersion::running(dir.path()), None);
    fs::write(dir.path().join("minor"), "17\n").unwrap();
    assert_eq!(XenVersion::running(dir.path()), Some(XenVersion { major: 4, minor: 17 }));
    fs::write(dir.path().join("minor"), "seventeen\n").unwrap();
    assert_eq!(XenVersion::running(dir.path()), None);
}

/// A prefix with libraries of three versions, in the places that distributions use.
fn installed() -> tempfile::TempDir {
    let prefix = tempfile::tempdir().unwrap();
    let arch = std::env::consts::ARCH;
    for file in [
        format!("lib/{arch}-linux-gnu/libxenctrl.so.4.9"),
        format!("lib/{arch}-linux-gnu/libxenctrl.so.4.17.0"),
        format!("lib/xen-4.18/lib/{arch}-linux-gnu/libxenctrl.so.4.18"),
        "lib64/libxenctrl.so.4.14".to_owned(),
        "lib64/libxenctrl.so".to_owned(),
        "lib/other/libxenctrl.so.9.9".to_owned(),
    ] {
        let path = prefix.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    prefix
}

fn names(candidates: &[std::path::PathBuf]) -> Vec<&str> {
    candidates.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect()
}

#[test]
fn without_a_known_version_the_newest_is_first() {
    let prefix = installed();
    let found = candidates(None, &library_dirs(prefix.path()));
    let expected = ["libxenctrl.so.4.18", "libxenctrl.so.4.17.0", "libxenctrl.so.4.14", "libxenctrl.so.4.9"];
    assert_eq!(names(&found), expected);
}

#[test]
fn the_version_that_runs_is_the_only_candidate() {
    let prefix = installed();
    let dirs = library_dirs(prefix.path());
    let found = candidates(Some(XenVersion { major: 4, minor: 18 }), &dirs);
    assert_eq!(found[0], Path::new("libxenctrl.so.4.18"), "where the loader looks, first");
    assert_eq!(names(&found), ["libxenctrl.so.4.18"; 2]);
    let found = candidates(Some(XenVersion { major: 4, minor: 12 }), &dirs);
    assert_eq!(found, [Path::new("libxenctrl.so.4.12")]);
}

/// The library comes with the headers that this package is built from.
#[test]
#[cfg_attr(miri, ignore = "loads a C library")]
fn the_installed_library_has_the_functions_and_is_asked() {
    let library = Library::load().unwrap();
    assert!(library.symbol(c"xc_interface_open").is_some());
    assert!(library.symbol(c"xc_interface_of_no_version").is_none());
    Functions::load(&library).unwrap();
    if let Err(error) = Control::open() {
        assert_eq!(error.call(), "xc_interface_open");
        assert!(error.errno().is_some());
    }
}

#[test]
fn who_is_at_the_other_end_of_a_port_is_told() {
    let control = Control::open_with(stand_in::functions(Kind::Info)).unwrap();
    assert_eq!(control.other_end(Port(9)).unwrap(), Some((DomId(5), Port(3))));
    assert_eq!(control.other_end(Port(8)).unwrap(), None);
    let error = control.other_end(Port(7)).unwrap_err();
    assert_eq!((error.call(), error.errno()), ("xc_evtchn_status", Some(libc::EINVAL)));
}
