//! A daemon that comes back, for programs that asked for it.

use crate::{is_readable, open, open_with};
use nix::errno::Errno;
use rstest::rstest;
use xenstore::XS_OPEN_RECONNECT;
use xenstored_tests::{Backend, Daemon, Starter, wait};

fn replace(daemon: Daemon) -> Daemon {
    Starter::new(Backend::Ours).start_in(daemon.kill())
}

#[test]
fn without_being_asked_a_handle_stays_dead() {
    let daemon = Daemon::start(Backend::Ours);
    let (plain, off) =
        (open(&daemon.socket()), open_with(&daemon.socket(), 0, &[("XENSTORE_RECONNECT", "0")]).unwrap());
    plain.watch("/a", "t").unwrap();
    plain.wait().unwrap();
    let _daemon = replace(daemon);
    assert_eq!(plain.wait(), Err(Errno::EINVAL));
    for handle in [&plain, &off] {
        handle.read("/").unwrap_err();
        assert_eq!(handle.read("/"), Err(Errno::EBADF));
    }
}

#[rstest]
#[case::by_flag(XS_OPEN_RECONNECT, "")]
#[case::by_environment(0, "1")]
fn requests_watches_and_transactions(#[case] flags: libc::c_ulong, #[case] variable: &str) {
    let daemon = Daemon::start(Backend::Ours);
    let handle = open_with(&daemon.socket(), flags, &[("XENSTORE_RECONNECT", variable)]).unwrap();
    handle.watch("/a", "t").unwrap();
    assert_eq!(handle.wait().unwrap(), "/a");
    let descriptor = handle.descriptor();
    let (committed, aborted) = (handle.start().unwrap(), handle.start().unwrap());
    handle.write_in(committed, "/old", "").unwrap();
    let daemon = replace(daemon);
    assert!(is_readable(descriptor, 20_000), "the library does it alone, and the watch fires");
    assert_eq!(handle.check().unwrap(), "/a");
    assert!(!is_readable(descriptor, 0));
    wait::until("a request reaches the new daemon", || handle.write("/a/x", "").is_ok());
    assert_eq!(handle.wait().unwrap(), "/a/x");

    let new = handle.start().unwrap();
    assert!(![committed, aborted].contains(&new), "no number comes twice");
    assert_eq!(handle.read_in(committed, "/"), Err(Errno::EAGAIN));
    assert_eq!(handle.end(committed, false), Err(Errno::EAGAIN), "as after a conflict");
    assert_eq!(handle.end(committed, false), Err(Errno::ENOENT), "and then it is over");
    assert_eq!(handle.end(aborted, true), Ok(()));
    handle.write_in(new, "/new", "1").unwrap();
    handle.end(new, false).unwrap();
    assert_eq!((handle.read("/new"), handle.read("/old")), (Ok(b"1".to_vec()), Err(Errno::ENOENT)));
    drop(daemon);
    handle.read("/new").unwrap_err();
    assert_eq!(handle.read("/new"), Err(Errno::EBADF), "while there is no daemon");
}
