//! What a guest may use, and how it is counted.

use crate::scene::{OK, Scene, ask, nodes_of, refused, set_perms, try_set_perms, write, write_in};
use xenstore_wire::Op;

#[test]
fn one_deep_write_does_not_pass_the_node_quota() {
    let scene = Scene::with_args(&["--quota", "nodes=12"], &[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for node in 0..9 {
        assert_eq!(write(&mut guest, &format!("n{node}"), b""), Ok(OK.to_vec()));
    }
    let before = nodes_of(&mut dom0, 1);
    let deep = vec!["a"; 1000].join("/");
    assert_eq!(write(&mut guest, &deep, b"x"), refused("ENOSPC"));
    assert_eq!(dom0.read("/local/domain/1/a"), refused("ENOENT"));
    assert_eq!(nodes_of(&mut dom0, 1), before);
    assert_eq!(write(&mut guest, "a/b", b"x"), Ok(OK.to_vec()), "as many as are left");
    assert_eq!(write(&mut guest, "c", b"x"), refused("ENOSPC"));
}

#[test]
fn transactions_over_the_quota_are_refused_at_once_and_work_again_after_an_end() {
    let mut scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for _ in 0..25 {
        guest.send(Op::TransactionStart.number(), 0, b"\0").unwrap();
    }
    let mut open = Vec::new();
    for number in 0..25 {
        let reply = guest.reply().unwrap();
        match reply.result() {
            Ok(id) => open.push(String::from_utf8_lossy(id).trim_end_matches('\0').parse::<u32>().unwrap()),
            Err(name) => assert_eq!((name.as_str(), open.len()), ("ENOSPC", 10), "number {number}"),
        }
    }
    assert_eq!(open.len(), 10);
    let usage = ask(&mut dom0, Op::Control, &["quota", "1"]).unwrap();
    let usage = String::from_utf8_lossy(&usage).into_owned();
    let line = usage.lines().find(|line| line.starts_with("transactions")).unwrap();
    assert!(line.contains("10 (max"), "{line}");
    let log = scene.log();
    let told = log.lines().filter(|line| line.contains("domid=1") && line.contains("\"transactions\"")).count();
    assert!((1..10).contains(&told), "a few lines say which domain, which quota: {log}");
    for (number, tx) in open.into_iter().enumerate() {
        assert_eq!(write_in(&mut guest, tx, &format!("n{number}"), b""), Ok(OK.to_vec()));
        assert_eq!(guest.commit(tx), Ok(()));
    }
    let tx = guest.start_transaction();
    assert_eq!(guest.commit(tx), Ok(()));
    scene.assert_alive();
}

#[test]
fn a_guest_removes_its_node_below_a_parent_that_is_too_large() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "mine/child", b""), Ok(OK.to_vec()));
    for node in 0..100 {
        dom0.write(&format!("/local/domain/1/mine/{}{node}", "x".repeat(40)), b"");
    }
    assert_eq!(write(&mut guest, "mine/another", b""), refused("ENOSPC"), "it is full");
    assert_eq!(ask(&mut guest, Op::Rm, &["mine/child"]), Ok(OK.to_vec()));
    assert_eq!(dom0.read("/local/domain/1/mine/child"), refused("ENOENT"));
}

#[test]
fn creates_that_fail_and_writes_of_what_is_there_are_not_counted() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    dom0.write("/ro", b"");
    set_perms(&mut dom0, "/ro", &["r0"]);
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "there", b""), Ok(OK.to_vec()));
    let before = nodes_of(&mut dom0, 1);
    let large = vec![b'x'; 3000];
    for _ in 0..500 {
        assert_eq!(write(&mut guest, "/ro/a/b/c", b""), refused("EACCES"));
        assert_eq!(write(&mut guest, "too/large", &large), refused("ENOSPC"));
        assert_eq!(ask(&mut guest, Op::Mkdir, &["there"]), Ok(OK.to_vec()));
        assert_eq!(write(&mut guest, "there", b"again"), Ok(OK.to_vec()));
    }
    assert_eq!(nodes_of(&mut dom0, 1), before);
}

#[test]
fn a_guest_gives_as_many_permissions_as_its_quota_and_the_privileged_domain_any_number() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    assert_eq!(write(&mut guest, "x", b""), Ok(OK.to_vec()));
    // Entries of domains that do not exist would be as many.
    assert_eq!(try_set_perms(&mut guest, "x", &["n1", "r0", "r0", "r0", "r0", "r0"]), refused("ENOSPC"));
    assert_eq!(try_set_perms(&mut guest, "x", &["n1", "r0", "r0", "r0", "r0"]), Ok(OK.to_vec()));
    let many: Vec<&str> = std::iter::once("n1").chain(std::iter::repeat_n("r0", 999)).collect();
    set_perms(&mut dom0, "/local/domain/1/x", &many);
    let read = ask(&mut dom0, Op::GetPerms, &["/local/domain/1/x"]).unwrap();
    assert_eq!(read.split(|&byte| byte == 0).count(), 1001, "and the end");
}

#[test]
fn a_value_larger_than_a_node_may_be_is_the_privileged_domains_only() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    let value = vec![b'v'; 3000];
    assert_eq!(write(&mut guest, "x", &value), refused("ENOSPC"));
    assert_eq!(guest.read("x"), refused("ENOENT"));
    dom0.write("/local/domain/1/x", &value);
    assert_eq!(guest.read("x"), Ok(value));
}

#[test]
fn a_quota_of_one_domain_is_set_while_it_is_over_it() {
    let scene = Scene::with(&[1, 2]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.guest(1);
    for node in 0..59 {
        assert_eq!(write(&mut guest, &format!("n{node}"), b""), Ok(OK.to_vec()));
    }
    let names = dom0.request(Op::GetQuota, b"").unwrap();
    let names = String::from_utf8_lossy(&names).into_owned();
    for name in ["nodes", "watches", "transactions", "node-size", "node-permissions"] {
        assert!(names.trim_end_matches('\0').split(' ').any(|known| known == name), "{name} in {names}");
    }
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nodes", "50"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "new", b""), refused("ENOSPC"));
    assert_eq!(write(&mut guest, "n1", b"other"), Ok(OK.to_vec()));
    for node in 0..9 {
        assert_eq!(ask(&mut guest, Op::Rm, &[&format!("n{node}")]), Ok(OK.to_vec()));
    }
    assert_eq!(write(&mut guest, "new", b""), refused("ENOSPC"), "51 are left");
    assert_eq!(ask(&mut guest, Op::Rm, &["n9"]), Ok(OK.to_vec()));
    assert_eq!(ask(&mut guest, Op::Rm, &["n10"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "new", b""), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "newer", b""), refused("ENOSPC"));
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nodes", "0"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut guest, "newer", b""), Ok(OK.to_vec()), "0 is no limit");
    assert_eq!(ask(&mut dom0, Op::SetQuota, &["1", "nonsense", "1"]), refused("EINVAL"));
    assert_eq!(write(&mut scene.guest(2), "x", b""), Ok(OK.to_vec()));
}
