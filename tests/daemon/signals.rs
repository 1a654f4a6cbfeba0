//! The trace file, its rotation, and the orderly end.

use nix::sys::signal::Signal;
use regex::Regex;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use xenstore_wire::Op;
use xenstored_tests::{Backend, ClientError, Daemon, Starter, wait};

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(String::from).collect()
}

#[test]
fn the_trace_has_a_line_for_each_request_and_reply() {
    let files = tempfile::tempdir().expect("a directory");
    let trace = files.path().join("trace");
    let daemon = Starter::new(Backend::Ours).arg("-T").arg(&trace).start();
    let mut client = daemon.connect();
    client.write("/t/a", b"line\nbreak");
    assert_eq!(client.read("/t/missing"), Err("ENOENT".into()));
    client.send(99, 0, b"x").expect("sent");
    client.reply().expect("a reply");
    client.watch("/t", "token");
    let pid = std::process::id();
    let stamp = "[0-9]{8} [0-9]{2}:[0-9]{2}:[0-9]{2}";
    let line = |direction: &str, rest: &str| format!(r"^io: {direction} [^ ]+ \(d0\) {stamp} {rest}");
    let wanted = [
        line("IN", r"WRITE \(/t/a line"),
        line("OUT", r"WRITE \(OK \)"),
        line("IN", r"READ \(/t/missing \)"),
        line("OUT", r"ERROR \(ENOENT \).*result=ENOENT"),
        line("IN", r"\*\*UNKNOWN\*\* "),
        line("OUT", r"WATCH_EVENT \(/t token \)"),
        line("IN", &format!(r".* pid={pid}( |$)")),
        "^obj: CREATE connection ".to_owned(),
        "^obj: CREATE watch ".to_owned(),
        r"^\*\*\*$".to_owned(),
    ];
    for pattern in wanted {
        let regex = Regex::new(&pattern).expect("a pattern");
        wait::until(&format!("a line like {pattern}"), || lines(&trace).iter().any(|line| regex.is_match(line)));
    }
    assert!(!lines(&trace).iter().any(|line| line == "break" || line.starts_with("break")), "a payload makes no line");
    assert_eq!(fs::metadata(&trace).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn no_line_is_lost_while_the_trace_is_rotated_under_load() {
    const REQUESTS: usize = 3000;
    const ROTATIONS: usize = 20;
    let files = tempfile::tempdir().expect("a directory");
    let trace = files.path().join("trace");
    let mut daemon = Starter::new(Backend::Ours).arg("-T").arg(&trace).start();
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = daemon.connect();
            for i in 0..REQUESTS {
                client.write(&format!("/t/n{i}"), b"");
            }
        });
        for rotation in 0..ROTATIONS {
            fs::rename(&trace, files.path().join(format!("old{rotation}"))).expect("the trace is there");
            daemon.signal(Signal::SIGHUP);
            wait::until("a new trace file", || trace.exists());
        }
        load.join().expect("the load");
    });
    let all = || -> Vec<String> {
        fs::read_dir(files.path()).expect("a directory").flat_map(|file| lines(&file.expect("a file").path())).collect()
    };
    let last = format!("(/t/n{} )", REQUESTS - 1);
    wait::until("the last line", || all().iter().any(|line| line.contains(" IN ") && line.contains(&last)));
    let all = all();
    let requests: Vec<&String> =
        all.iter().filter(|line| line.starts_with("io: IN ") && line.contains("WRITE (")).collect();
    assert_eq!(requests.len(), REQUESTS);
    for i in [0, 1, REQUESTS / 2, REQUESTS - 1] {
        let payload = format!("WRITE (/t/n{i} )");
        assert_eq!(requests.iter().filter(|line| line.contains(&payload)).count(), 1, "{payload}");
    }
    daemon.assert_alive();
}

#[test]
fn tracing_is_switched_by_command() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let trace = daemon.dir().join("trace");
    let mut control = |words: &[&str]| {
        let payload: String = words.iter().map(|word| format!("{word}\0")).collect();
        client.request(Op::Control, payload.as_bytes())
    };
    let ok = || Ok(b"OK\0".to_vec());
    let settings = control(&["log"]).expect("settings");
    assert!(String::from_utf8_lossy(&settings).starts_with("Log switch settings:\n"));
    assert_eq!(control(&["logfile", trace.to_str().expect("a plain path")]), ok());
    assert_eq!(control(&["print", "first"]), ok());
    wait::until("a traced line", || lines(&trace).iter().any(|line| line.contains("CONTROL (print first )")));
    assert_eq!(control(&["log", "off"]), ok());
    assert_eq!(control(&["print", "second"]), ok());
    assert_eq!(control(&["log", "on"]), ok());
    assert_eq!(control(&["print", "third"]), ok());
    wait::until("a traced line", || lines(&trace).iter().any(|line| line.contains("CONTROL (print third )")));
    assert!(!lines(&trace).iter().any(|line| line.contains("print second")));
    assert_eq!(control(&["log", "+wrl"]), ok());
    assert_eq!(control(&["log", "-io"]), ok());
    assert_eq!(control(&["print", "fourth"]), ok());
    assert_eq!(control(&["log", "+io"]), ok());
    assert_eq!(control(&["print", "fifth"]), ok());
    wait::until("a traced line", || lines(&trace).iter().any(|line| line.contains("CONTROL (print fifth )")));
    assert!(!lines(&trace).iter().any(|line| line.contains("print fourth")));
    for bad in [&["log", "+bogus"][..], &["log", "bogus"], &["log", "on", "off"], &["logfile"]] {
        assert_eq!(control(bad), Err("EINVAL".into()), "{bad:?}");
    }
}

#[rstest]
#[case::terminated(Signal::SIGTERM)]
#[case::interrupted(Signal::SIGINT)]
fn asked_to_end_it_ends_in_order(#[case] signal: Signal) {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.watch("/t", "w");
    let open = client.start_transaction();
    client.write("/t", b"v");
    assert_ne!(open, 0);
    daemon.signal(signal);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!(client.event().map(|event| event.path), Ok("/t".into()));
    assert_eq!(client.arrival(), Err(ClientError::Closed));
    assert!(!daemon.dir().join("pid").exists(), "the pid file is gone");
    assert!(!daemon.socket().exists(), "the socket is gone");
}

#[test]
fn a_hangup_without_a_trace_is_nothing() {
    let mut daemon = Daemon::start(Backend::Ours);
    for _ in 0..10 {
        daemon.signal(Signal::SIGHUP);
        daemon.assert_alive();
    }
}
