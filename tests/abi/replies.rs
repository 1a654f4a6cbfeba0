//! Both libraries against a server that answers whatever a test wants: every error, broken payloads, wrong types.

use crate::library::Library;
use crate::program::Run;
use rstest::rstest;
use std::thread;
use xenstore_wire::{Header, Op, put_message};
use xenstored_tests::{Line, Scripted};

/// Every call that makes one request.
const CALLS: [&str; 18] = [
    "read",
    "directory",
    "get_permissions",
    "write",
    "mkdir",
    "rm",
    "set_permissions",
    "watch",
    "unwatch",
    "transaction_start",
    "transaction_end",
    "introduce_domain",
    "release_domain",
    "resume_domain",
    "set_target",
    "is_domain_introduced",
    "get_domain_path",
    "control_command",
];

/// What the server does with the first request; it answers all others well.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// A success with this payload.
    Reply(&'static [u8]),
    /// An error with this payload.
    Error(&'static [u8]),
    /// A watch event, then a success.
    EventFirst(&'static [u8]),
    /// A watch event, then an error.
    EventThenError(&'static [u8]),
    /// A message of the type that the request's number is mapped to.
    Typed(fn(u32) -> u32),
    /// A header that announces so many bytes.
    Long(u32),
    /// No message at all.
    Raw(&'static [u8]),
}

impl Answer {
    fn send(self, line: &mut Line, request: &Header) {
        match self {
            Self::Reply(payload) => line.reply(request, payload),
            Self::Error(payload) => line.message(Op::Error.number(), request, payload),
            Self::EventFirst(payload) => {
                line.event("/some/path", "token");
                line.reply(request, payload);
            }
            Self::EventThenError(payload) => {
                line.event("/some/path", "token");
                line.message(Op::Error.number(), request, payload);
            }
            Self::Typed(number) => line.message(number(request.op), request, b"OK\0"),
            Self::Long(len) => {
                let mut bytes = Vec::new();
                put_message(&mut bytes, request.op, request.req_id, request.tx_id, b"");
                bytes[12..16].copy_from_slice(&len.to_ne_bytes());
                line.send(&bytes);
            }
            Self::Raw(bytes) => line.send(bytes),
        }
    }
}

/// What the program for one call tells, which may have a watch by then.
fn seen(library: Library, call: &str, watching: bool, answer: Answer) -> String {
    let server = Scripted::start();
    let socket = server.socket();
    let playing = thread::spawn(move || {
        let mut line = server.accept();
        if watching {
            line.expect_ok(Op::Watch);
        }
        let (request, _) = line.request();
        answer.send(&mut line, &request);
        while let Some((request, _)) = line.next_request() {
            line.reply(&request, b"good");
        }
    });
    let words: &[&str] = if watching { &[call, "watching"] } else { &[call] };
    let output = Run::new("replies", library).at(socket).args(words).output();
    playing.join().expect("the server plays its part");
    output
}

/// Both libraries must make the same of it.
fn same(call: &str, watching: bool, answer: Answer) -> String {
    let [theirs, ours] = Library::BOTH.map(|library| seen(library, call, watching, answer));
    assert_eq!(theirs, ours, "{call}: left Debian's library, right ours");
    ours
}

#[rstest]
#[case::einval(b"EINVAL\0", "EINVAL")]
#[case::eacces(b"EACCES\0", "EACCES")]
#[case::eexist(b"EEXIST\0", "EEXIST")]
#[case::eisdir(b"EISDIR\0", "EISDIR")]
#[case::enoent(b"ENOENT\0", "ENOENT")]
#[case::enomem(b"ENOMEM\0", "ENOMEM")]
#[case::enospc(b"ENOSPC\0", "ENOSPC")]
#[case::eio(b"EIO\0", "EIO")]
#[case::enotempty(b"ENOTEMPTY\0", "ENOTEMPTY")]
#[case::enosys(b"ENOSYS\0", "ENOSYS")]
#[case::erofs(b"EROFS\0", "EROFS")]
#[case::ebusy(b"EBUSY\0", "EBUSY")]
#[case::eagain(b"EAGAIN\0", "EAGAIN")]
#[case::eisconn(b"EISCONN\0", "EISCONN")]
#[case::eperm(b"EPERM\0", "EPERM")]
#[case::not_in_the_table(b"EQUOTA\0", "EINVAL")]
#[case::without_its_end(b"ENOENT", "ENOENT")]
#[case::without_a_name(b"", "EINVAL")]
#[case::in_small_letters(b"enoent\0", "EINVAL")]
#[case::with_more_behind(b"ENOENT\0EIO\0", "ENOENT")]
fn every_error_is_told_by_its_number(#[case] payload: &'static [u8], #[case] told: &str) {
    for call in CALLS {
        let told = match call {
            "is_domain_introduced" => format!("{call}: no\n"),
            "transaction_start" => format!("{call}: 0\n"),
            _ => format!("{call}: fails: {told}\n"),
        };
        let output = same(call, false, Answer::Error(payload));
        assert!(output.starts_with(&told), "{output}");
        assert!(output.contains("\nafterwards: 4 bytes \"good\"\n"), "the connection goes on: {output}");
    }
}

#[rstest]
#[case::empty(Answer::Reply(b""))]
#[case::ok(Answer::Reply(b"OK\0"))]
#[case::ok_without_its_end(Answer::Reply(b"OK"))]
#[case::one_nul(Answer::Reply(b"\0"))]
#[case::two_nuls(Answer::Reply(b"\0\0"))]
#[case::truth(Answer::Reply(b"T\0"))]
#[case::falsehood(Answer::Reply(b"F\0"))]
#[case::number(Answer::Reply(b"17\0"))]
#[case::number_without_its_end(Answer::Reply(b"17"))]
#[case::number_with_junk(Answer::Reply(b"17x\0"))]
#[case::large_number(Answer::Reply(b"4294967295\0"))]
#[case::too_large_a_number(Answer::Reply(b"4294967297\0"))]
#[case::negative_number(Answer::Reply(b"-1\0"))]
#[case::names(Answer::Reply(b"a\0bc\0d\0"))]
#[case::names_without_their_end(Answer::Reply(b"a\0bc"))]
#[case::permissions(Answer::Reply(b"n0\0r1\0b65535\0"))]
#[case::bad_permission(Answer::Reply(b"n0\0x1\0"))]
#[case::bad_domain(Answer::Reply(b"n0\0rx\0"))]
#[case::most(Answer::Reply(&[b'm'; 4096]))]
fn every_payload_is_read_the_same(#[case] answer: Answer) {
    for call in CALLS {
        let Answer::Reply(payload) = answer else { unreachable!("cases are replies") };
        match call {
            // A list whose last name has no end makes Debian's library write past its memory.
            "directory" if !payload.is_empty() && !payload.ends_with(b"\0") => {
                let ours = seen(Library::Ours, call, false, answer);
                let names = if payload == b"a\0bc" { "1: \"a\"" } else { "0:" };
                let told = format!("directory: {names}\nafterwards: 4 bytes \"good\"\n");
                assert!(ours.starts_with(&told), "{ours}");
            }
            // Debian's takes the beginning of a text for a number, and cuts it to 32 bits.
            "transaction_start" if [&b"17x\0"[..], b"4294967297\0", b"-1\0"].contains(&payload) => {
                let ours = seen(Library::Ours, call, false, answer);
                assert!(ours.starts_with("transaction_start: 0\nafterwards: 4 bytes \"good\"\n"), "{ours}");
            }
            _ => drop(same(call, false, answer)),
        }
    }
}

#[rstest]
#[case::a_reply(Answer::EventFirst(b"OK\0"))]
#[case::an_error(Answer::EventThenError(b"EIO\0"))]
fn an_event_may_come_before(#[case] answer: Answer) {
    for call in CALLS {
        let watching = same(call, true, answer);
        assert!(watching.contains("event: 2: \"/some/path\" \"token\"\n"), "{watching}");
        // Before there is a watch, Debian's library gives up.
        let not_watching = seen(Library::Ours, call, false, answer);
        assert_eq!(watching, format!("watch first: true\n{not_watching}"));
    }
}

#[rstest]
#[case::another_type(Answer::Typed(|op| if op == 2 { 1 } else { 2 }))]
#[case::an_unknown_type(Answer::Typed(|_| 99))]
#[case::too_long(Answer::Long(4097))]
#[case::far_too_long(Answer::Long(u32::MAX))]
#[case::no_protocol_at_all(Answer::Raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))]
fn a_server_that_errs_makes_the_handle_useless(#[case] answer: Answer) {
    for call in CALLS {
        for library in Library::BOTH {
            let output = seen(library, call, false, answer);
            let failed = ["fails: ", "no\n", "0\n"].iter().any(|how| output.starts_with(&format!("{call}: {how}")));
            assert!(failed, "{library:?}: {output}");
            assert!(output.contains("\nafterwards: fails: EBADF\n"), "{library:?} {call}: {output}");
        }
    }
}
