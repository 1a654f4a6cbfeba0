//! Permissions as a privileged socket client sets and reads them.

use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::{Backend, Daemon, Starter};

const OK: &[u8] = b"OK\0";

#[test]
fn an_entry_for_all_domains_is_taken_and_read_back() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/a", b"");
    assert_eq!(client.request(Op::SetPerms, b"/a\0n0\0r32757\0b3\0"), Ok(OK.into()));
    assert_eq!(client.request(Op::GetPerms, b"/a\0"), Ok(b"n0\0r32757\0b3\0".to_vec()));
    assert_eq!(client.request(Op::GetPerms, b"@releaseDomain\0"), Ok(b"n0\0r32757\0".to_vec()));
    assert_eq!(client.request(Op::GetPerms, b"@introduceDomain\0"), Ok(b"n0\0".to_vec()));
}

#[test]
fn a_list_of_hundreds_of_entries_keeps_its_order() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/a", b"");
    let list: String = (0..600).map(|domid| format!("{}{domid}\0", ["r", "w", "b", "n"][domid % 4])).collect();
    assert_eq!(client.request(Op::SetPerms, format!("/a\0{list}").as_bytes()), Ok(OK.into()));
    assert_eq!(client.request(Op::GetPerms, b"/a\0"), Ok(list.into_bytes()));
}

#[rstest]
#[case::letter("x0")]
#[case::no_number("r")]
#[case::letters("rabc")]
#[case::empty("")]
#[case::negative("r-1")]
#[case::too_large("r65536")]
#[case::far_too_large("r99999999999")]
#[case::hexadecimal("r0x10")]
#[case::blank("r 1")]
#[case::upper_case("R1")]
fn a_malformed_entry_changes_nothing(#[case] entry: &str) {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/a", b"");
    assert_eq!(client.request(Op::SetPerms, b"/a\0w5\0r6\0"), Ok(OK.into()));
    for list in [format!("/a\0{entry}\0"), format!("/a\0n0\0{entry}\0"), format!("/a\0{entry}\0n0\0")] {
        assert_eq!(client.request(Op::SetPerms, list.as_bytes()), Err("EINVAL".into()), "{list:?}");
    }
    assert_eq!(client.request(Op::SetPerms, b"/a\0"), Err("EINVAL".into()), "no entry at all");
    assert_eq!(client.request(Op::SetPerms, b"/a\0n0"), Err("EINVAL".into()), "no NUL at the end");
    assert_eq!(client.request(Op::GetPerms, b"/a\0"), Ok(b"w5\0r6\0".to_vec()));
}

#[test]
fn the_root_stays_whatever_is_asked() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/t/a", b"kept");
    assert_eq!(client.request(Op::Rm, b"/\0"), Err("EINVAL".into()));
    let tx = client.start_transaction();
    assert_eq!(client.request_in(tx, Op::Rm, b"/\0"), Err("EINVAL".into()));
    assert_eq!(client.commit(tx), Ok(()));
    assert_eq!(client.read("/t/a"), Ok(b"kept".to_vec()));
    daemon.assert_alive();
}

#[test]
fn a_store_whose_privileged_domain_is_another_serves_its_sockets_and_lives() {
    let mut daemon = Starter::new(Backend::Ours).arg("--priv-domid").arg("5").start();
    let mut client = daemon.connect();
    for i in 0..2000 {
        let made = client.request(Op::Write, format!("/t/{i}\0v").as_bytes());
        assert!(made == Ok(OK.into()) || made == Err("EACCES".into()), "{made:?}");
    }
    for i in 0..200 {
        let watched = client.request(Op::Watch, format!("/t/{i}\0w\0").as_bytes());
        assert!(watched == Ok(OK.into()) || watched == Err("ENOSPC".into()), "{watched:?}");
    }
    let listed = client.request(Op::Directory, b"/\0");
    assert!(listed.is_ok() || listed == Err("EACCES".into()), "{listed:?}");
    assert!(daemon.exit_status().is_none(), "{}", daemon.log());
}

#[test]
fn a_socket_client_is_above_the_quotas_of_domains() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/big", &[b'v'; 3000]);
    for i in 0..1200 {
        client.write(&format!("/t/{i}"), b"");
    }
    for i in 0..200 {
        client.watch(&format!("/t/{i}"), "w");
    }
    let open: Vec<u32> = (0..30).map(|_| client.start_transaction()).collect();
    for tx in open {
        assert_eq!(client.commit(tx), Ok(()));
    }
}

#[test]
fn quotas_are_read_and_set_for_all_and_for_one_domain() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let names = client.request(Op::GetQuota, b"").expect("names");
    let names = String::from_utf8_lossy(&names).into_owned();
    let listed: Vec<&str> = names.trim_end_matches('\0').split(' ').collect();
    for name in ["nodes", "watches", "transactions", "node-size", "node-permissions", "memory", "outstanding"] {
        assert!(listed.contains(&name), "{name} in {names}");
    }
    assert_eq!(client.request(Op::GetQuota, b"nodes\0"), Ok(b"1000\0".to_vec()));
    assert_eq!(client.request(Op::SetQuota, b"7\0nodes\x0050\0"), Ok(OK.into()));
    assert_eq!(client.request(Op::GetQuota, b"7\0nodes\0"), Ok(b"50\0".to_vec()));
    assert_eq!(client.request(Op::GetQuota, b"nodes\0"), Ok(b"1000\0".to_vec()));
    assert_eq!(client.request(Op::SetQuota, b"nodes\x002000\0"), Ok(OK.into()));
    assert_eq!(client.request(Op::GetQuota, b"8\0nodes\0"), Ok(b"2000\0".to_vec()), "all without a value of their own");
    assert_eq!(client.request(Op::GetQuota, b"7\0nodes\0"), Ok(b"50\0".to_vec()));
    for payload in [&b"bogus\0"[..], b"7\0bogus\0", b"7\0nodes\0more\0", b"x\0nodes\0"] {
        assert_eq!(client.request(Op::GetQuota, payload), Err("EINVAL".into()), "{}", payload.escape_ascii());
    }
    for payload in [&b"bogus\x001\0"[..], b"nodes\0x\0", b"nodes\x004294967295\0", b"nodes\0", b"", b"7\0nodes\0-1\0"] {
        assert_eq!(client.request(Op::SetQuota, payload), Err("EINVAL".into()), "{}", payload.escape_ascii());
    }
}
