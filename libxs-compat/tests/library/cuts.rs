//! A daemon that dies at each byte of an answer, or stops there for a while.

use crate::{Handle, Outcome, open, open_with, truth};
use nix::errno::Errno;
use rstest::rstest;
use std::ptr::null_mut;
use std::thread;
use xenstore::capi::{
    xs_control_command, xs_directory, xs_get_domain_path, xs_get_features_supported, xs_get_permissions,
    xs_get_quota_names, xs_is_domain_introduced,
};
use xenstore_wire::{Header, Op, put_event, put_message};
use xenstored_tests::Scripted;

/// Whether a call returned something, which is freed.
fn block<T>(block: *mut T) -> Outcome<()> {
    if block.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the block is ours.
    unsafe { libc::free(block.cast()) };
    Ok(())
}

/// A call, and an answer that makes it succeed.
type Case = (&'static str, fn(&Handle) -> Outcome<()>, &'static [u8]);

const CASES: [Case; 13] = [
    ("read", |h| h.read("/a").map(drop), b"value"),
    ("write", |h| h.write("/a", "v"), b"OK\0"),
    ("watch", |h| h.watch("/a", "u"), b"OK\0"),
    ("unwatch", |h| h.unwatch("/a", "u"), b"OK\0"),
    ("start", |h| h.start().map(drop), b"17\0"),
    ("end", |h| h.end(17, false), b"OK\0"),
    ("directory", directory, b"a\0b\0"),
    ("permissions", permissions, b"n0\0r1\0"),
    ("domain path", domain_path, b"/local/domain/1\0"),
    ("control", control, b"said\0"),
    ("introduced", introduced, b"T\0"),
    ("features", features, b"7\0"),
    ("quotas", quotas, b"nodes watches\0"),
];

fn directory(handle: &Handle) -> Outcome<()> {
    // SAFETY: all pointers are valid.
    block(unsafe { xs_directory(handle.0, 0, c"/a".as_ptr(), &mut 0) })
}

fn permissions(handle: &Handle) -> Outcome<()> {
    // SAFETY: all pointers are valid.
    block(unsafe { xs_get_permissions(handle.0, 0, c"/a".as_ptr(), &mut 0) })
}

fn domain_path(handle: &Handle) -> Outcome<()> {
    // SAFETY: the handle is open.
    block(unsafe { xs_get_domain_path(handle.0, 1) })
}

fn control(handle: &Handle) -> Outcome<()> {
    // SAFETY: all pointers are valid; there is no data.
    block(unsafe { xs_control_command(handle.0, c"help".as_ptr(), null_mut(), 0) })
}

fn introduced(handle: &Handle) -> Outcome<()> {
    // SAFETY: the handle is open.
    truth(unsafe { xs_is_domain_introduced(handle.0, 1) })
}

fn features(handle: &Handle) -> Outcome<()> {
    // SAFETY: all pointers are valid.
    truth(unsafe { xs_get_features_supported(handle.0, &mut 0) })
}

fn quotas(handle: &Handle) -> Outcome<()> {
    // SAFETY: all pointers are valid.
    block(unsafe { xs_get_quota_names(handle.0, &mut 0) })
}

/// An event, and the answer to a request.
fn bytes(request: &Header, payload: &[u8]) -> (usize, Vec<u8>) {
    let mut bytes = Vec::new();
    put_event(&mut bytes, b"/watched/x", b"w");
    let event = bytes.len();
    put_message(&mut bytes, request.op, request.req_id, request.tx_id, payload);
    (event, bytes)
}

/// The call fails, the whole event is there nevertheless, and nothing works or hangs afterwards.
#[rstest]
fn a_death_in_an_answer_is_an_error(#[values(false, true)] watching: bool) {
    for (name, call, payload) in CASES {
        for cut in 0.. {
            let server = Scripted::start();
            let socket = server.socket();
            let daemon = thread::spawn(move || {
                let mut line = server.accept();
                if watching {
                    line.expect_ok(Op::Watch);
                }
                let (request, _) = line.request();
                let (event, bytes) = bytes(&request, payload);
                line.send(&bytes[..cut.min(bytes.len())]);
                (cut >= event, cut >= bytes.len())
            });
            let handle = open(&socket);
            if watching {
                handle.watch("/watched", "w").unwrap();
            }
            let told = call(&handle);
            let (event, whole) = daemon.join().unwrap();
            assert_eq!(told, if whole { Ok(()) } else { Err(Errno::EBADF) }, "{name}, {cut} bytes");
            assert_eq!(
                handle.wait(),
                if event { Ok("/watched/x".into()) } else { Err(Errno::EINVAL) },
                "{name}, {cut}"
            );
            assert_eq!(handle.wait(), Err(Errno::EINVAL), "{name}, {cut}");
            assert_eq!(handle.check(), Err(Errno::EINVAL), "{name}, {cut}");
            assert_eq!(handle.read("/"), Err(Errno::EBADF), "{name}, {cut}");
            if whole {
                break;
            }
        }
    }
}

/// The half of an answer that came too late is no answer to what is asked next.
#[test]
fn an_answer_may_be_cut_by_the_end_of_its_time() {
    for (name, call, payload) in CASES {
        let server = Scripted::start();
        let handle = open_with(&server.socket(), 0, &[("XENSTORE_TIMEOUT", "0.02")]).unwrap();
        let mut line = server.accept();
        let (half, rest) = thread::scope(|scope| {
            let late = scope.spawn(|| call(&handle));
            let (request, _) = line.request();
            let (_, bytes) = bytes(&request, payload);
            let (half, rest) = bytes.split_at(bytes.len() - payload.len() - 3);
            line.send(half);
            (late.join().unwrap(), rest.to_vec())
        });
        assert_eq!(half, Err(Errno::ETIMEDOUT), "{name}");
        line.send(&rest);
        let daemon = thread::spawn(move || {
            while let Some((header, _)) = line.next_request() {
                line.reply(&header, b"next");
            }
        });
        let next = std::iter::repeat_with(|| handle.read("/")).find(|next| *next != Err(Errno::ETIMEDOUT));
        assert_eq!(next, Some(Ok(b"next".to_vec())), "{name}");
        assert_eq!(handle.check().unwrap(), "/watched/x", "{name}");
        drop(handle);
        daemon.join().unwrap();
    }
}
