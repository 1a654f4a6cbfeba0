//! What guests may see and change.

use crate::scene::{OK, Scene, ask, make_home, nodes_of, perms, refused, set_perms, try_set_perms, write};
use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Event, Setting};

#[test]
fn only_the_privileged_domain_gives_a_node_to_another() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "x", b"mine"), Ok(OK.to_vec()));
    let before = [nodes_of(&mut dom0, 1), nodes_of(&mut dom0, 2)];
    for owner in ["n2", "n0", "b2"] {
        assert_eq!(try_set_perms(&mut guest, "x", &[owner, "b1"]), refused("EPERM"), "{owner}");
    }
    assert_eq!(perms(&mut dom0, "/local/domain/1/x").unwrap(), "n1");
    assert_eq!([nodes_of(&mut dom0, 1), nodes_of(&mut dom0, 2)], before);
    set_perms(&mut dom0, "/local/domain/1/x", &["n2"]);
    assert_eq!([nodes_of(&mut dom0, 1), nodes_of(&mut dom0, 2)], [before[0] - 1, before[1] + 1]);
}

#[test]
fn the_root_is_closed_to_guests_and_never_removed() {
    let mut scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    assert_eq!(try_set_perms(&mut guest, "/", &["b1"]), refused("EACCES"));
    for op in [Op::Rm, Op::Directory, Op::GetPerms] {
        assert_eq!(ask(&mut guest, op, &["/"]), refused("EACCES"), "{op:?}");
    }
    assert_eq!(write(&mut guest, "/x", b"1"), refused("EACCES"));
    let mut dom0 = scene.dom0();
    assert_eq!(ask(&mut dom0, Op::Rm, &["/"]), refused("EINVAL"));
    assert_eq!(dom0.read("/local/domain/1"), Ok(vec![]));
    scene.assert_alive();
}

#[test]
fn what_a_guest_may_not_see_is_not_told_apart_from_what_is_not_there() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    for path in ["/closed", "/closed/there", "/open", "/open/closed"] {
        dom0.write(path, b"x");
    }
    set_perms(&mut dom0, "/open", &["r0"]);
    let mut guest = scene.guest(1);
    let both = ["/closed/there", "/closed/missing", "/closed/missing/deeper", "/closed/there/below"];
    for op in [Op::Read, Op::Directory, Op::GetPerms, Op::Rm, Op::Mkdir] {
        for path in both {
            assert_eq!(ask(&mut guest, op, &[path]), refused("EACCES"), "{op:?} {path}");
        }
    }
    for path in both {
        assert_eq!(try_set_perms(&mut guest, path, &["b1"]), refused("EACCES"), "SET_PERMS {path}");
        assert_eq!(write(&mut guest, path, b"x"), refused("EACCES"), "WRITE {path}");
    }
    assert_eq!(guest.read("/open/missing"), refused("ENOENT"));
    assert_eq!(guest.read("/open/closed"), refused("EACCES"));
}

#[rstest]
fn requests_of_the_toolstack_are_closed_to_guests_whatever_their_arguments(
    #[values(
        Op::Introduce,
        Op::Release,
        Op::IsDomainIntroduced,
        Op::Resume,
        Op::SetTarget,
        Op::Control,
        Op::SetFeature,
        Op::GetQuota,
        Op::SetQuota
    )]
    op: Op,
) {
    let scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    for payload in [b"1\0".as_slice(), b"1\x001\x001\0", b"", b"\0", b"no end", b"junk\0nodes\x00junk\0"] {
        assert_eq!(guest.request(op, payload), refused("EACCES"), "{:?}", String::from_utf8_lossy(payload));
    }
}

#[test]
fn a_guest_learns_its_own_features_and_nobody_elses() {
    let scene = Scene::with(&[1]);
    let mut guest = scene.guest(1);
    for domid in ["1", "2", "junk", ""] {
        assert_eq!(ask(&mut guest, Op::GetFeature, &[domid]), refused("EACCES"), "{domid:?}");
    }
    let mask = guest.request(Op::GetFeature, b"").unwrap();
    let mask = String::from_utf8(mask).unwrap();
    assert!(mask.trim_end_matches('\0').parse::<u32>().is_ok(), "{mask:?}");
}

#[test]
fn an_entry_for_all_domains_is_taken_from_whom_it_was_offered_to() {
    let scene = Scene::with(&[2, 3]);
    let mut dom0 = scene.dom0();
    scene.host.create(1).unwrap();
    assert_eq!(ask(&mut dom0, Op::SetFeature, &["1", "7"]), Ok(OK.to_vec()), "all but that one");
    scene.host.introduce(1).unwrap();
    make_home(&mut dom0, 1);
    let (mut without, mut with) = (scene.guest(1), scene.guest(2));
    assert_eq!(ask(&mut dom0, Op::GetFeature, &["1"]), Ok(b"7\0".to_vec()));
    assert_eq!(write(&mut without, "x", b"seen"), Ok(OK.to_vec()));
    assert_eq!(try_set_perms(&mut without, "x", &["n1", "r32757"]), refused("EINVAL"));
    assert_eq!(perms(&mut dom0, "/local/domain/1/x").unwrap(), "n1");
    assert_eq!(write(&mut with, "x", b"seen"), Ok(OK.to_vec()));
    assert_eq!(try_set_perms(&mut with, "x", &["n2", "r32757"]), Ok(OK.to_vec()));
    assert_eq!(perms(&mut with, "x").unwrap(), "n2 r32757");
    for domid in [1, 3] {
        let mut other = if domid == 3 { scene.guest(3) } else { scene.dom0() };
        assert_eq!(other.read("/local/domain/2/x"), Ok(b"seen".to_vec()), "{domid}");
    }
    assert_eq!(without.read("/local/domain/2/x"), Ok(b"seen".to_vec()));
    assert_eq!(write(&mut without, "/local/domain/2/x", b"changed"), refused("EACCES"));
    scene.add(9);
    assert_eq!(scene.guest(9).read("/local/domain/2/x"), Ok(b"seen".to_vec()), "who comes later too");
}

#[test]
fn events_come_only_of_nodes_that_the_watcher_may_read() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    dom0.write("/known", b"");
    set_perms(&mut dom0, "/known", &["n0", "r1"]);
    let mut guest = scene.guest(1);
    guest.watch("/", "t");
    dom0.write("/secret/a", b"n0");
    set_perms(&mut dom0, "/secret/a", &["n0"]);
    dom0.write("/local/domain/2/x", b"n2");
    assert_eq!(guest.settled_events(), []);
    dom0.write("/pub", b"");
    set_perms(&mut dom0, "/pub", &["r0"]);
    assert_eq!(guest.settled_events(), [Event::new("/pub", "t")], "from when on it may be read");
    dom0.write("/pub", b"new");
    assert_eq!(guest.settled_events(), [Event::new("/pub", "t")]);
    assert_eq!(ask(&mut dom0, Op::Rm, &["/pub"]), Ok(OK.to_vec()));
    assert_eq!(guest.settled_events(), [Event::new("/pub", "t")]);
    set_perms(&mut dom0, "/known", &["n0"]);
    assert_eq!(guest.settled_events(), [Event::new("/known", "t")], "the right is lost");
    dom0.write("/known", b"unseen");
    assert_eq!(ask(&mut dom0, Op::Rm, &["/known"]), Ok(OK.to_vec()));
    assert_eq!(guest.settled_events(), []);
}

#[test]
fn introductions_are_told_to_guests_that_may_know_and_releases_to_all() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    guest.watch("@introduceDomain", "new");
    guest.watch("@releaseDomain", "gone");
    scene.add(9);
    assert_eq!(guest.settled_events(), []);
    scene.destroy(9);
    assert_eq!(guest.settled_events(), [Event::new("@releaseDomain", "gone")]);
    set_perms(&mut dom0, "@introduceDomain", &["n0", "r1"]);
    set_perms(&mut dom0, "@releaseDomain", &["n0"]);
    assert_eq!(guest.settled_events(), []);
    scene.add(9);
    assert_eq!(guest.settled_events(), [Event::new("@introduceDomain", "new")]);
    scene.destroy(9);
    assert_eq!(guest.settled_events(), []);
}

#[test]
fn a_path_is_as_long_as_what_follows_its_home() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    scene.add(12345);
    make_home(&mut dom0, 12345);
    // Four levels, since no name may be that long with its node.
    let of_length = |len: usize| {
        let levels = "d".repeat(500) + "/" + &"e".repeat(500) + "/" + &"f".repeat(500) + "/";
        format!("{levels}{}", "g".repeat(len - levels.len()))
    };
    let (longest, longer) = (of_length(2048), of_length(2049));
    for domid in [1, 12345] {
        let mut guest = scene.guest(domid);
        let home = format!("/local/domain/{domid}");
        assert_eq!(write(&mut guest, &longest, b"x"), Ok(OK.to_vec()), "domain {domid}");
        assert_eq!(dom0.read(&format!("{home}/{longest}")), Ok(b"x".to_vec()));
        assert_eq!(guest.read(&format!("{home}/{longest}")), Ok(b"x".to_vec()));
        assert_eq!(guest.read(&longest), Ok(b"x".to_vec()));
        assert_eq!(write(&mut guest, &longer, b"x"), refused("EINVAL"));
        assert_eq!(guest.read(&format!("{home}/{longer}")), refused("EINVAL"));
    }
}

#[test]
fn an_error_is_that_of_the_request_and_not_of_one_before() {
    let scene = Scene::with_settings(&[Setting::Nodes(2)], &[1, 2]);
    let (mut first, mut second) = (scene.guest(1), scene.guest(2));
    first.watch("x", "t");
    assert_eq!(ask(&mut first, Op::Watch, &["x", "t"]), refused("EEXIST"));
    assert_eq!(second.read("/local/domain/1/x"), refused("EACCES"));
    assert_eq!(first.read("missing"), refused("ENOENT"));
    assert_eq!(write(&mut first, "a", b""), Ok(OK.to_vec()));
    assert_eq!(write(&mut first, "b", b""), refused("ENOSPC"));
}
