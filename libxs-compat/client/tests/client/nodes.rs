//! Nodes, domains, quotas: each request once, against a daemon.

use crate::{open, store};
use rstest::rstest;
use xenstore_client::{Access, Error, Features, Nodes, Permission, XsError};
use xenstored_tests::{Backend, Daemon};

fn refused<T>(error: XsError) -> Result<T, Error> {
    Err(Error::Refused(error))
}

#[rstest]
fn values_are_bytes(#[values(Backend::Ours, Backend::C)] backend: Backend) {
    let daemon = Daemon::start(backend);
    let client = open(&daemon.socket());
    let value = [0xff, 0xfe, 0x00, 0x41];
    client.write("/a/bytes", value).unwrap();
    assert_eq!(client.read("/a/bytes").unwrap(), value);
    assert_eq!(client.read_text("/a/bytes"), Err(Error::NotText));
    client.write("/a/empty", "").unwrap();
    assert_eq!(client.read("/a/empty").unwrap(), b"");
    client.write("/a/text", "text").unwrap();
    assert_eq!(client.read_text("/a/text").unwrap(), "text", "no NUL is added");
    let longest = [b'x'; 4096 - "/a/long\0".len()];
    client.write("/a/long", longest).unwrap();
    assert_eq!(client.read("/a/long").unwrap(), longest);
    assert_eq!(client.write("/a/longer", longest), Err(Error::TooLong));
    assert_eq!(client.read_text("/a/text").unwrap(), "text", "the connection goes on");
}

#[rstest]
fn nodes_come_and_go(#[values(Backend::Ours, Backend::C)] backend: Backend) {
    let daemon = Daemon::start(backend);
    let client = open(&daemon.socket());
    assert_eq!(client.read("/a"), refused(XsError::NoEnt));
    assert_eq!(client.read("/a").unwrap_err().name(), "ENOENT");
    assert_eq!(client.exists("/a"), Ok(false));
    client.mkdir("/a").unwrap();
    assert_eq!(client.exists("/a"), Ok(true));
    assert_eq!(client.list("/a").unwrap(), Vec::<Vec<u8>>::new(), "no children are no names");
    client.mkdir("/a/b").unwrap();
    client.mkdir("/a/c").unwrap();
    assert_eq!(client.list("/a").unwrap(), [b"b".to_vec(), b"c".to_vec()]);
    client.remove("/a").unwrap();
    client.remove("/a").unwrap();
    assert_eq!(client.remove("/a/b"), refused(XsError::NoEnt));
    assert_eq!(client.read("/a b"), refused(XsError::Inval));
    assert_eq!(client.read("/a\0b"), Err(Error::Invalid("a string holds a NUL")));
}

#[test]
fn permissions_survive_the_way() {
    let (_daemon, client) = store();
    client.write("/a", "").unwrap();
    let permissions = [
        Permission::new(0, Access::None),
        Permission::new(5, Access::Read),
        Permission::new(6, Access::Write),
        Permission::new(7, Access::Both),
    ];
    client.set_permissions("/a", &permissions).unwrap();
    assert_eq!(client.permissions("/a").unwrap(), permissions);
    assert_eq!(client.set_permissions("/a", &[]), refused(XsError::Inval));
    assert_eq!(client.permissions("/a").unwrap(), permissions);
}

#[test]
fn domains_are_asked_for() {
    let (_daemon, client) = store();
    assert_eq!(client.domain_path(7).unwrap(), b"/local/domain/7");
    assert_eq!(client.is_introduced(7), Ok(false));
    assert_eq!(client.release(7), refused(XsError::NoEnt));
    assert_eq!(client.resume(7), refused(XsError::NoEnt));
    assert_eq!(client.set_target(7, 8), refused(XsError::NoEnt));
    assert!(matches!(client.introduce(7, 1, 1), Err(Error::Refused(_))), "there is no such domain");
}

#[test]
fn features_and_quotas_are_asked_for_and_set() {
    let (_daemon, client) = store();
    assert!(client.features().unwrap().contains(Features::WATCH_DEPTH));
    client.set_domain_features(7, Features::ERROR).unwrap();
    assert_eq!(client.domain_features(7), Ok(Features::ERROR));
    assert_eq!(client.set_domain_features(7, Features(1 << 31)), refused(XsError::Inval));
    let names = client.quota_names().unwrap();
    assert!(names.iter().any(|name| name == "nodes"), "{names:?}");
    client.set_quota("nodes", 777).unwrap();
    assert_eq!(client.quota("nodes"), Ok(777));
    assert_eq!(client.quota("no-such"), refused(XsError::Inval));
    client.set_domain_quota(7, "nodes", 5).unwrap();
    assert_eq!(client.domain_quota(7, "nodes"), Ok(5));
    assert_eq!(client.domain_quota(8, "nodes"), Ok(777));
}

#[test]
fn an_older_daemon_says_what_it_does_not_know() {
    let daemon = Daemon::start(Backend::C);
    let client = open(&daemon.socket());
    assert_eq!(client.features(), refused(XsError::NoSys));
    assert_eq!(client.quota_names(), refused(XsError::NoSys));
}

#[test]
fn control_commands_are_sent_and_their_answer_is_text() {
    let (_daemon, client) = store();
    assert_eq!(client.control("check", &[]).unwrap(), b"OK");
    let help = client.control("help", &[]).unwrap();
    assert!(help.starts_with(b"check"), "{:?}", String::from_utf8_lossy(&help));
    assert_eq!(client.control("quota", &[b"set", b"nodes", b"5"]).unwrap(), b"OK");
    assert_eq!(client.control("no-such", &[]), refused(XsError::Inval));
}
