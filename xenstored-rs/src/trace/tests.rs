use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use jiff::tz::{self, TimeZone};

use super::*;

const MOMENT: Duration = Duration::from_secs(1_769_868_309); // 20260131 14:05:09 UTC

fn trace_to(path: &Path) -> Trace {
    let mut trace = Trace::new(TraceSwitches::default());
    trace.stamp = Stamp::new(TimeZone::UTC);
    trace.set_time(SystemTime::UNIX_EPOCH + MOMENT);
    trace.set_file(path.into()).unwrap();
    trace
}

fn message(payload: &[u8]) -> IoLine<'_> {
    IoLine {
        direction: Direction::In,
        connection: 28,
        domid: 3,
        client_pid: None,
        op: Op::Read.number(),
        payload,
        outcome: None,
    }
}

/// Runs `write` on a fresh trace and returns what the file holds after the opening mark.
fn traced(write: impl FnOnce(&mut Trace)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = trace_to(&path);
    write(&mut trace);
    trace.flush().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    text.strip_prefix("\n***\n").expect("the opening mark").to_string()
}

#[test]
fn a_message_is_one_line_with_blanks_for_nuls() {
    let text = traced(|trace| trace.io(&message(b"/a/b\0")));
    assert_eq!(text, "io: IN 0x1c (d3) 20260131 14:05:09 READ (/a/b )\n");
}

#[test]
fn a_reply_shows_client_outcome_and_duration() {
    let outcome =
        Outcome { op: Op::Write.number(), path: b"/a b", result: "ENOSPC", duration: Duration::from_nanos(12_900) };
    let line = IoLine {
        direction: Direction::Out,
        domid: 0,
        client_pid: Some(812),
        op: Op::Error.number(),
        outcome: Some(outcome),
        ..message(b"ENOSPC\0")
    };
    assert_eq!(
        traced(|trace| trace.io(&line)),
        "io: OUT 0x1c (d0) 20260131 14:05:09 ERROR (ENOSPC ) pid=812 op=WRITE path=/a\\x20b result=ENOSPC us=12\n"
    );
}

#[test]
fn split_and_failed_sends_have_their_own_words() {
    for (direction, word) in
        [(Direction::OutStart, "OUT(START)"), (Direction::OutEnd, "OUT(END)"), (Direction::OutErr, "OUT(ERR)")]
    {
        let text = traced(|trace| trace.io(&IoLine { direction, ..message(b"") }));
        assert_eq!(text, format!("io: {word} 0x1c (d3) 20260131 14:05:09 READ ()\n"));
    }
}

#[test]
fn unknown_types_are_marked() {
    let text = traced(|trace| trace.io(&IoLine { op: 999, ..message(b"x") }));
    assert!(text.ends_with(" **UNKNOWN** (x)\n"), "{text}");
}

#[test]
fn a_payload_cannot_forge_a_line() {
    let text = traced(|trace| trace.io(&message(b"x)\nio: IN 0x1 (d0)\r\x1b[2J\x7f\xc3\xa9")));
    assert_eq!(text.lines().count(), 1);
    assert!(text.ends_with("(x)\\x0aio: IN 0x1 (d0)\\x0d\\x1b[2J\\x7fé)\n"), "{text}");
}

#[test]
fn objects_come_and_go() {
    let text = traced(|trace| {
        trace.create("connection", 16);
        trace.destroy("watch", 17);
    });
    assert_eq!(text, "obj: CREATE connection 0x10\nobj: DESTROY watch 0x11\n");
}

#[test]
fn a_switch_that_is_off_writes_nothing() {
    let text = traced(|trace| {
        trace.switches_mut().change("-io").unwrap();
        trace.io(&message(b"unseen"));
        trace.line(TraceSwitch::Wrl, format_args!("unseen"));
        trace.switches_mut().change("+wrl").unwrap();
        trace.line(TraceSwitch::Wrl, format_args!("seen {}", 1));
        trace.print(b"hello\nthere\0");
    });
    assert_eq!(text, "wrl: seen 1\ncontrol: hello\\x0athere \n");
}

#[test]
fn local_time_follows_the_zone() {
    let mut stamp = Stamp::new(TimeZone::fixed(tz::offset(-3)));
    stamp.now = SystemTime::UNIX_EPOCH + MOMENT;
    assert_eq!(stamp.text(), b"20260131 11:05:09");
    stamp.now += Duration::from_millis(1000);
    assert_eq!(stamp.text(), b"20260131 11:05:10");
}

#[test]
fn without_a_file_nothing_is_collected() {
    let mut trace = Trace::new(TraceSwitches::default());
    trace.io(&message(b"x"));
    trace.create("connection", 1);
    trace.print(b"x");
    assert!(trace.buffer.is_empty() && !trace.is_open() && !trace.wants(TraceSwitch::Io));
    trace.reopen().unwrap();
    trace.flush().unwrap();
}

#[test]
fn the_file_is_private_closed_on_exec_and_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    for _ in 0..2 {
        let mut trace = trace_to(&path);
        trace.create("connection", 1);
        let fd = trace.sink.as_ref().unwrap().file.as_raw_fd();
        let flags = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap();
        assert_ne!(i32::from_str_radix(flags, 8).unwrap() & libc::O_CLOEXEC, 0);
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "\n***\nobj: CREATE connection 0x1\n\n***\nobj: CREATE connection 0x1\n"
    );
}

#[test]
fn rotation_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = trace_to(&path);
    let mut written = 0;
    for round in 0..100 {
        for _ in 0..500 {
            trace.create("connection", written);
            written += 1;
        }
        fs::rename(&path, dir.path().join(format!("trace.{round}"))).unwrap();
        // Lines between the rename and the reopening belong to the old file.
        trace.create("connection", written);
        written += 1;
        trace.reopen().unwrap();
    }
    trace.flush().unwrap();
    let mut seen = Vec::new();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        seen.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("obj: CREATE connection 0x"))
                .map(|number| u64::from_str_radix(number, 16).unwrap()),
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..written).collect::<Vec<_>>());
}

#[test]
fn a_failed_reopening_goes_on_in_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let mut trace = trace_to(&sub.join("trace"));
    let moved = dir.path().join("moved");
    fs::rename(&sub, &moved).unwrap();
    let error = trace.reopen().unwrap_err();
    assert!(error.to_string().contains("sub/trace: cannot open"), "{error}");
    trace.create("connection", 7);
    trace.flush().unwrap();
    assert!(fs::read_to_string(moved.join("trace")).unwrap().ends_with("CREATE connection 0x7\n"));
}

#[test]
fn switching_off_and_on_keeps_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = trace_to(&path);
    trace.create("connection", 1);
    trace.close();
    trace.create("connection", 2);
    trace.reopen().unwrap();
    trace.create("connection", 3);
    trace.flush().unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "\n***\nobj: CREATE connection 0x1\n\n***\nobj: CREATE connection 0x3\n"
    );
}

#[test]
fn a_full_disk_is_reported_once_and_the_gap_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = trace_to(Path::new("/dev/full"));
    trace.create("connection", 1);
    trace.create("connection", 2);
    let error = trace.flush().unwrap_err();
    assert_eq!(error.to_string(), "trace file /dev/full: cannot write");
    trace.create("connection", 3);
    trace.flush().unwrap();
    trace.set_file(path.clone()).unwrap();
    trace.create("connection", 4);
    trace.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "\n*** 3 lines lost\n\n***\nobj: CREATE connection 0x4\n");
}

#[test]
fn much_output_in_one_turn_does_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = trace_to(&path);
    let payload = vec![b'x'; 4096];
    for _ in 0..1000 {
        trace.io(&message(&payload));
        assert!(trace.buffer.len() < BUFFER_TARGET + 5000);
    }
    trace.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().filter(|line| line.starts_with("io: IN")).count(), 1000);
}
