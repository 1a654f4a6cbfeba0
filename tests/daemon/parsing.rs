//! Requests as bytes: whole, in pieces, malformed.

use rstest::rstest;
use std::collections::BTreeSet;
use std::time::Duration;
use xenstore_wire::{Header, Op, XsError, put_message};
use xenstored_tests::{Backend, Client, ClientError, Daemon, wait};

/// The bytes of a request.
fn message(op: Op, req_id: u32, tx_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_message(&mut bytes, op.number(), req_id, tx_id, payload);
    bytes
}

/// A hundred requests whose answers are all different.
fn hundred_requests() -> Vec<u8> {
    (0..100u32).flat_map(|i| message(Op::GetDomainPath, i, 0, format!("{i}\0").as_bytes())).collect()
}

fn take_hundred_replies(client: &mut Client) {
    for i in 0..100u32 {
        let reply = client.reply().unwrap_or_else(|e| panic!("reply {i}: {e}"));
        assert_eq!(reply.header.req_id, i);
        assert_eq!(reply.payload, format!("/local/domain/{i}\0").into_bytes());
    }
}

#[rstest]
#[case::read(Op::Read, Err("EINVAL"))]
#[case::transaction_start(Op::TransactionStart, Ok(()))]
#[case::reset_watches(Op::ResetWatches, Ok(()))]
#[case::directory(Op::Directory, Err("EINVAL"))]
#[case::control(Op::Control, Err("EINVAL"))]
#[case::write(Op::Write, Err("EINVAL"))]
fn a_request_without_payload_is_answered_with_nothing_behind_it(#[case] op: Op, #[case] want: Result<(), &str>) {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    assert_eq!(client.request(op, b"").map(drop), want.map_err(String::from));
    daemon.assert_alive();
}

#[rstest]
#[case::read(Op::Read, b"")]
#[case::directory(Op::Directory, b"")]
#[case::directory_part(Op::DirectoryPart, b"0\0")]
#[case::get_perms(Op::GetPerms, b"")]
#[case::set_perms(Op::SetPerms, b"n0\0")]
#[case::write(Op::Write, b"value")]
#[case::mkdir(Op::Mkdir, b"")]
#[case::rm(Op::Rm, b"")]
#[case::watch(Op::Watch, b"token\0")]
#[case::unwatch(Op::Unwatch, b"token\0")]
fn no_request_takes_a_path_that_ends_in_a_slash(#[case] op: Op, #[case] rest: &[u8]) {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    for path in ["/local/domain/", "/local/domain/7/", "/local/domain/99999999999/", "/t/", "t/", "//"] {
        let payload = [path.as_bytes(), b"\0", rest].concat();
        assert_eq!(client.request(op, &payload), Err("EINVAL".into()), "{path}");
    }
    daemon.assert_alive();
}

#[test]
fn a_number_that_is_no_domain_is_an_ordinary_name_in_a_path() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    assert_eq!(client.read("/local/domain/99999999999"), Err("ENOENT".into()));
    client.write("/local/domain/99999999999", b"odd");
    assert_eq!(client.read("/local/domain/99999999999"), Ok(b"odd".to_vec()));
}

#[rstest]
#[case::release(Op::Release)]
#[case::resume(Op::Resume)]
#[case::is_introduced(Op::IsDomainIntroduced)]
#[case::domain_path(Op::GetDomainPath)]
fn a_domain_is_named_by_decimal_digits_and_never_by_accident(#[case] op: Op) {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    for domid in ["", " ", "abc", "-1", "65536", "70000", "4294967296", "1 ", " 1", "0x1", "+1", "1.0", "1\x002"] {
        let got = client.request(op, format!("{domid}\0").as_bytes());
        assert_eq!(got, Err("EINVAL".into()), "{domid:?}");
    }
    assert_eq!(client.request(op, b"1"), Err("EINVAL".into()), "no NUL");
    daemon.assert_alive();
}

#[test]
fn introducing_a_domain_checks_its_numbers_before_anything_else() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    for payload in [
        &b"5\x001\x000\0"[..],
        b"x\x001\x001\0",
        b"5\0x\x001\0",
        b"5\x001\0x\0",
        b"5\x001\0",
        b"5\0",
        b"",
        b"65536\x001\x001\0",
    ] {
        assert_eq!(client.request(Op::Introduce, payload), Err("EINVAL".into()), "{}", payload.escape_ascii());
    }
    for payload in [&b"x\x005\0"[..], b"5\0x\0", b"5\0", b"", b"5\x006\x007\0"] {
        assert_eq!(client.request(Op::SetTarget, payload), Err("EINVAL".into()), "{}", payload.escape_ascii());
    }
    daemon.assert_alive();
}

#[test]
fn only_the_protocol_s_error_names_are_ever_sent() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut reader = daemon.connect();
    client.write("/t/a", b"1");
    client.watch("/t", "w");
    for i in 0..600 {
        client.write(&format!("/many/{i:08}"), b"");
    }
    let tx = client.start_transaction();
    assert_eq!(client.request_in(tx, Op::Read, b"/t/a\0"), Ok(b"1".to_vec()));
    assert_eq!(client.request_in(tx, Op::Write, b"/t/b\x002"), Ok(b"OK\0".to_vec()));
    reader.write("/t/a", b"2");
    let mut seen = BTreeSet::new();
    let attempts: [(u32, Op, &[u8]); 12] = [
        (0, Op::Read, b"/missing\0"),
        (0, Op::Read, b"bad path\0"),
        (0, Op::Watch, b"/t\0w\0"),
        (0, Op::Directory, b"/many\0"),
        (0, Op::Unwatch, b"/t\0other\0"),
        (tx, Op::TransactionStart, b"\0"),
        (tx, Op::TransactionEnd, b"T\0"),
        (tx, Op::Read, b"/t/a\0"),
        (0, Op::TransactionEnd, b"T\0"),
        (0, Op::WatchEvent, b""),
        (0, Op::Release, b"0\0"),
        (0, Op::Control, b"bogus\0"),
    ];
    for (tx_id, op, payload) in attempts {
        client.send(op.number(), tx_id, payload).expect("the daemon takes requests");
        let name = client.reply().expect("a reply").error();
        seen.insert(name.unwrap_or_else(|| panic!("{op:?} {} must fail", payload.escape_ascii())));
    }
    let wanted = ["E2BIG", "EAGAIN", "EBUSY", "EEXIST", "EINVAL", "ENOENT", "ENOSYS"];
    assert_eq!(seen, wanted.iter().map(|&name| name.into()).collect());
    assert!(seen.iter().all(|name| XsError::from_name(name.as_bytes()).is_some()));
}

#[test]
fn ids_come_back_whatever_they_are() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/t", b"v");
    let tx = client.start_transaction();
    let ids: Vec<u32> = (0..50u32)
        .map(|i| match i % 4 {
            0 => 0,
            1 => u32::MAX,
            _ => i.wrapping_mul(0x9e37_79b9),
        })
        .collect();
    let requests = ids.iter().zip([0, tx, 77].into_iter().cycle());
    let bytes: Vec<u8> = requests.clone().flat_map(|(&id, tx_id)| message(Op::Read, id, tx_id, b"/t\0")).collect();
    client.send_raw(&bytes).expect("the daemon takes requests");
    for (&id, tx_id) in requests {
        let reply = client.reply().expect("a reply");
        assert_eq!((reply.header.req_id, reply.header.tx_id), (id, tx_id));
        let want = if tx_id == 77 { Err("ENOENT".into()) } else { Ok(&b"v"[..]) };
        assert_eq!(reply.result(), want);
    }
}

#[test]
fn requests_in_one_go_are_answered_one_by_one_in_order() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.send_raw(&hundred_requests()).expect("the daemon takes requests");
    take_hundred_replies(&mut client);
}

#[test]
fn requests_byte_by_byte_are_answered_one_by_one_in_order() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut other = daemon.connect();
    for (at, byte) in hundred_requests().iter().enumerate() {
        client.send_raw(&[*byte]).expect("the daemon takes a byte");
        if at % 7 == 0 {
            // An answer to somebody else proves that the daemon has looked at the byte by now.
            assert_eq!(other.read("/"), Ok(Vec::new()));
        }
    }
    take_hundred_replies(&mut client);
}

#[test]
fn a_header_in_two_pieces_is_one_header() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let mut other = daemon.connect();
    let bytes = message(Op::GetDomainPath, 7, 0, b"3\0");
    for (from, to) in [(0, 7), (7, 16), (16, 17), (17, 18)] {
        client.send_raw(&bytes[from..to]).expect("the daemon takes requests");
        assert_eq!(other.read("/"), Ok(Vec::new()));
    }
    assert_eq!(client.reply().expect("a reply").payload, b"/local/domain/3\0");
}

#[test]
fn half_a_message_and_an_idle_client_cost_no_processor_time() {
    let daemon = Daemon::start(Backend::Ours);
    let mut half = daemon.connect();
    half.send_raw(&[2, 0, 0, 0, 1, 0, 0]).expect("the daemon takes requests");
    let mut idle = daemon.connect();
    assert_eq!(idle.read("/"), Ok(Vec::new()));
    let before = idle.turns().expect("it counts its turns");
    idle.set_patience(Duration::from_millis(700));
    assert_eq!(idle.arrival(), Err(ClientError::Timeout));
    let turns = idle.turns().expect("it counts its turns") - before;
    assert!(turns < 10, "{turns} turns for nothing");
}

#[test]
fn a_client_that_only_listens_from_now_on_gets_all_answers_and_then_the_end() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.watch("/t", "w");
    client.send_raw(&hundred_requests()).expect("the daemon takes requests");
    client.send_raw(&message(Op::Write, 100, 0, b"/t\0last")).expect("the daemon takes requests");
    client.finish_sending().expect("the socket is open");
    take_hundred_replies(&mut client);
    assert_eq!(client.reply().map(|reply| reply.header.req_id), Ok(100));
    assert_eq!(client.event().map(|event| event.path), Ok("/t".into()));
    assert_eq!(client.arrival(), Err(ClientError::Closed));
    assert_eq!(daemon.connect().read("/t"), Ok(b"last".to_vec()));
    daemon.assert_alive();
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_message_leaves_nothing_behind() {
    let mut daemon = Daemon::start(Backend::Ours);
    for cut in 0..20 {
        let mut client = daemon.connect();
        let bytes = message(Op::Write, 1, 0, b"/t\0v");
        client.send_raw(&bytes[..cut.min(bytes.len() - 1)]).expect("the daemon takes requests");
        client.finish_sending().expect("the socket is open");
        assert_eq!(client.arrival(), Err(ClientError::Closed), "cut at {cut}");
    }
    assert_eq!(daemon.connect().read("/t"), Err("ENOENT".into()));
    daemon.assert_alive();
}

#[rstest]
#[case::one_more(4097)]
#[case::largest_positive(0x7fff_ffff)]
#[case::negative(0x8000_0000)]
#[case::largest(u32::MAX)]
fn an_announced_length_beyond_the_limit_ends_this_connection_only(#[case] len: u32) {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut neighbour = daemon.connect();
    neighbour.watch("/t", "w");
    let descriptors = daemon.descriptors();
    let memory = daemon.anonymous_kib();
    for _ in 0..200 {
        let mut client = daemon.connect();
        client.send_raw(&message(Op::GetDomainPath, 1, 0, b"3\0")).expect("the daemon takes requests");
        client.send_raw(&Header { op: 2, req_id: 2, tx_id: 0, len }.encode()).expect("the daemon takes a header");
        assert_eq!(client.reply().map(|reply| reply.payload), Ok(b"/local/domain/3\0".to_vec()));
        assert_eq!(client.arrival(), Err(ClientError::Closed));
    }
    daemon.connect().write("/t", b"v");
    assert_eq!(neighbour.event().map(|event| event.path), Ok("/t".into()));
    wait::until("the daemon has closed what is over", || daemon.descriptors() <= descriptors);
    assert!(daemon.anonymous_kib() < memory + 1024, "{memory} KiB before, {} after", daemon.anonymous_kib());
    daemon.assert_alive();
}

#[test]
fn noise_on_many_connections_disturbs_nobody() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut neighbour = daemon.connect();
    neighbour.write("/t", b"kept");
    let mut state = 1u64;
    for _ in 0..300 {
        let noise: Vec<u8> = (0..400)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56).to_le_bytes()[0]
            })
            .collect();
        let mut client = daemon.connect();
        // Most random headers announce too much, and then the daemon may close before all is sent.
        let _ = client.send_raw(&noise);
        let _ = client.finish_sending();
        client.closed().expect("the connection ends");
    }
    assert_eq!(neighbour.read("/t"), Ok(b"kept".to_vec()));
    daemon.assert_alive();
}

#[test]
fn the_longest_value_that_fits_a_message_is_kept() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let value: Vec<u8> = (0..4093u32).map(|i| i.to_le_bytes()[0]).collect();
    client.write("/a", &value);
    assert_eq!(client.read("/a"), Ok(value));
    let long_path = format!("/{}", "p".repeat(4093));
    client.write(&long_path, b"");
    assert_eq!(client.read(&long_path), Ok(Vec::new()));
    assert_eq!(client.request(Op::Rm, format!("{long_path}\0").as_bytes()), Ok(b"OK\0".to_vec()));
}
