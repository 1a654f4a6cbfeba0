//! Debian's command line tools run against both daemons: what they print and how they exit must be equal.
//!
//! Children are made in sorted order throughout, since C xenstored lists them as they were made and ours by name.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use xenstore_wire::{Op, put_message};
use xenstored_tests::tools::{self, Outcome};
use xenstored_tests::{Backend, Client, Daemon, Starter};

const BOTH: [Backend; 2] = [Backend::Ours, Backend::C];

/// Tools that stand for one command line: `read -p /a` is `xenstore-read -p /a`.
fn run(daemon: &Daemon, words: &[&str]) -> Outcome {
    tools::run(daemon, &format!("xenstore-{}", words[0]), &words[1..])
}

/// How a command line exits and what it prints, each byte a character; complaints are the tools' own and not compared.
fn seen(outcome: &Outcome) -> (i32, String) {
    (outcome.status, outcome.stdout.iter().map(|&byte| char::from(byte)).collect())
}

/// Runs the command lines one after another against each daemon, after `prepare`, and compares step by step; returns
/// what was seen.
fn same_with(prepare: impl Fn(&mut Client), script: &[&[&str]]) -> Vec<(i32, String)> {
    let [ours, theirs] = BOTH.map(|backend| {
        let mut daemon = Daemon::start(backend);
        prepare(&mut daemon.connect());
        let seen: Vec<_> = script.iter().map(|words| seen(&run(&daemon, words))).collect();
        daemon.assert_alive();
        seen
    });
    for ((words, ours), theirs) in script.iter().zip(&ours).zip(&theirs) {
        assert_eq!(ours, theirs, "left ours, right C: xenstore-{}", words.join(" "));
    }
    ours
}

fn same(script: &[&[&str]]) -> Vec<(i32, String)> {
    same_with(|_| {}, script)
}

/// Writes many values in one go and waits for all the answers.
fn write_all(client: &mut Client, nodes: impl Iterator<Item = (String, Vec<u8>)>) {
    for nodes in nodes.collect::<Vec<_>>().chunks(100) {
        let mut bytes = Vec::new();
        for (path, value) in nodes {
            put_message(&mut bytes, Op::Write.number(), 0, 0, &[path.as_bytes(), b"\0", value].concat());
        }
        client.send_raw(&bytes).expect("the daemon takes requests");
        for (path, _) in nodes {
            assert_eq!(client.reply().expect("a reply").result(), Ok(&b"OK\0"[..]), "WRITE {path}");
        }
    }
}

#[test]
fn values_written_are_read_back_alike() {
    let seen = same(&[
        &["write", "/vm/a", "1", "/vm/b", "two words", "/vm/c", ""],
        &["read", "/vm/a", "/vm/b", "/vm/c"],
        &["read", "-p", "/vm/a", "/vm/b"],
        &["read", "-R", "/vm/b"],
        &["read", "/vm/missing"],
        &["read", "/vm/a", "/vm/missing", "/vm/b"],
        &["read", "/missing/deep"],
        &["read", "/vm/"],
        &["read"],
        &["write", "/vm/a", "again"],
        &["read", "/vm/a"],
        &["write", "relative/to/home", "x"],
        &["read", "/local/domain/0/relative/to/home"],
        &["ls", "-f", "/local"],
    ]);
    assert_eq!(seen[1], (0, "1\ntwo words\n\n".into()));
    assert_eq!(seen[4].0, 1);
}

#[test]
fn odd_arguments_write_what_they_say_or_nothing() {
    let seen = same(&[
        &["write", "/vm/dash", "-"],
        &["write", "/vm/empty", ""],
        &["write", "/vm/equals", "a=b c"],
        &["write", "--", "/vm/option", "-p"],
        &["write", "/vm/odd", "1", "/vm/odder"],
        &["write"],
        &["ls", "-f", "/vm"],
        &["write", "bad path", "1"],
        &["write", "/vm/ok", "1", "//bad", "2"],
        &["exists", "/vm/ok"],
        &["write", "/", "root"],
        &["read", "/"],
        &["write", "/", ""],
        &["write", "@special", "1"],
    ]);
    assert_eq!(seen[4].0, 1);
    assert!(!seen[6].1.contains("odd"), "{}", seen[6].1);
}

#[test]
fn escapes_in_values_mean_the_same_bytes() {
    same(&[
        &["write", "/vm/k", r"\001\x41\t\n\r\\\q\"],
        &["read", "/vm/k"],
        &["read", "-R", "/vm/k"],
        &["ls", "-f", "/vm"],
        &["write", "-R", "/vm/raw", r"\001\x41\t"],
        &["read", "/vm/raw"],
        &["read", "-R", "/vm/raw"],
        &["write", "/vm/k", r"\7\77\377\xf\xff\x"],
        &["read", "/vm/k"],
        &["ls", "/vm"],
    ]);
}

#[test]
fn binary_values_survive_the_tools_both_ways() {
    let every_byte: Vec<u8> = (0..=255).collect();
    for backend in BOTH {
        let daemon = Daemon::start(backend);
        let mut client = daemon.connect();
        client.write("/vm/bytes", &every_byte);
        assert_eq!(run(&daemon, &["read", "-R", "/vm/bytes"]).stdout, every_byte, "{backend:?}");
        let text = run(&daemon, &["read", "/vm/bytes"]).stdout;
        let escaped = text.strip_suffix(b"\n").expect("a line");
        let args: [&OsStr; 2] = [OsStr::new("/vm/copy"), OsStr::from_bytes(escaped)];
        assert_eq!(tools::run(&daemon, "xenstore-write", &args).status, 0, "{backend:?}");
        assert_eq!(client.read("/vm/copy"), Ok(every_byte.clone()), "{backend:?}");
    }
    let odd = [0, 7, 8, 9, 10, 13, 0x1f, 0x20, 0x22, 0x5c, 0x7e, 0x7f, 0x80, 0xff];
    let prepare = |client: &mut Client| client.write("/vm/odd", &odd);
    let seen = same_with(prepare, &[&["read", "/vm/odd"], &["read", "-R", "/vm/odd"], &["ls", "-f", "/vm"]]);
    let text = r#"\000\007\x08\t\n\r\x1f "\\~\x7f\x80\xff"#;
    assert_eq!(seen[0].1, format!("{text}\n"));
}

#[test]
fn arguments_that_are_no_text_are_refused_alike() {
    let outcomes = BOTH.map(|backend| {
        let daemon = Daemon::start(backend);
        let value = [OsStr::new("/vm/raw"), OsStr::from_bytes(b"\x80\xffz")];
        let path: OsString = OsStr::from_bytes(b"/vm/\xff").into();
        [
            seen(&tools::run(&daemon, "xenstore-write", &value)),
            seen(&run(&daemon, &["read", "-R", "/vm/raw"])),
            seen(&tools::run(&daemon, "xenstore-read", &[path])),
        ]
    });
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].each_ref().map(|(status, _)| *status), [0, 0, 1]);
}

#[test]
fn long_values_and_paths_print_alike() {
    let prepare = |client: &mut Client| {
        for len in [100, 1000, 2048, 4000] {
            client.write(&format!("/vm/len{len:04}"), &vec![b'v'; len]);
        }
        client.write("/vm/most", &[b'm'; 4096 - "/vm/most|".len()]);
        client.write(&format!("/vm/{}", "p".repeat(1500)), b"long name");
    };
    let too_long = "v".repeat(4093);
    let script: &[&[&str]] = &[
        &["ls", "/vm"],
        &["ls", "-f", "/vm"],
        &["ls", "-p", "/vm"],
        &["ls", "-f", "-p", "/vm"],
        &["read", "/vm/len4000"],
        &["read", "/vm/most"],
        &["write", "/vm/over", &too_long],
        &["exists", "/vm/over"],
    ];
    assert_eq!(same_with(prepare, script)[6].0, 1);
}

#[test]
fn trees_print_alike_in_every_form() {
    let script: &[&[&str]] = &[
        &["write", "/vm/a/a", "1", "/vm/a/b/c", "2", "/vm/b", "3", "/vm/c/d/e/f/g", "deep"],
        &["chmod", "/vm/a", "n0", "r1", "w2", "b3"],
        &["chmod", "/vm/b", "b7"],
        &["ls"],
        &["ls", "/"],
        &["ls", "-p"],
        &["ls", "-f"],
        &["ls", "-f", "-p"],
        &["ls", "-fp", "/vm/a"],
        &["ls", "/vm/b"],
        &["ls", "/vm/missing"],
        &["ls", "vm"],
        &["ls", "-d"],
        &["list", "/"],
        &["list", "-p", "/"],
        &["list", "/vm"],
        &["list", "-p", "/vm"],
        &["list", "/vm", "/vm/a"],
        &["list", "/vm/b"],
        &["list", "/vm/missing"],
        &["list"],
        &["exists", "/vm"],
        &["exists", "/vm/a", "/vm/b"],
        &["exists", "/vm/a", "/vm/missing"],
        &["exists", "/missing/deep"],
        &["exists"],
    ];
    same(script);
}

#[test]
fn removing_takes_what_it_says_and_with_t_the_empty_parents() {
    let seen = same(&[
        &["write", "/vm/a/b/c/d", "1", "/vm/a/x", "2", "/x/v/w", "3"],
        &["rm", "/vm/a/b/c/d"],
        &["ls", "-f", "/vm"],
        &["rm", "-t", "/vm/a/b/c"],
        &["ls", "-f", "/vm"],
        &["rm", "/vm/a/missing"],
        &["rm", "/vm/missing/deeper"],
        &["rm", "-t", "/x/v/w"],
        &["exists", "/x"],
        &["rm", "/"],
        &["rm", "bad path"],
        &["rm", "/vm/a/x", "/vm/a"],
        &["rm"],
        &["ls", "-f", "/"],
    ]);
    assert_eq!(seen[4].1, "/vm/a = \"\"\n/vm/a/x = \"2\"\n");
    assert_eq!(seen[8].0, 1);
}

#[test]
fn permissions_are_set_and_shown_alike() {
    let many: Vec<String> = (1..=40).map(|domid| format!("r{domid}")).collect();
    let long: Vec<&str> = ["chmod", "/vm/many", "n0"].into_iter().chain(many.iter().map(String::as_str)).collect();
    let script: &[&[&str]] = &[
        &["write", "/vm/a/b", "1", "/vm/c", "2", "/vm/many", "3"],
        &["chmod", "/vm/a", "n1", "r2"],
        &["ls", "-fp", "/vm"],
        &["chmod", "-r", "/vm/a", "b5"],
        &["ls", "-fp", "/vm"],
        &["chmod", "-u", "/vm/a/b", "w6"],
        &["ls", "-fp", "/vm"],
        &["chmod", "-r", "-u", "/vm/a/b", "r4"],
        &["ls", "-fp", "/vm"],
        &["chmod", "/vm/c", "x1"],
        &["chmod", "/vm/c"],
        &["chmod", "/vm/missing", "n0"],
        &["chmod", "bad path", "n0"],
        &long,
        &["ls", "-fp", "/vm"],
    ];
    let seen = same(script);
    assert!(seen[14].1.contains("r40"), "{}", seen[14].1);
}

#[test]
fn a_list_of_41_permissions_comes_back_in_order() {
    let many: Vec<String> = (1..=40).map(|domid| format!("r{domid}")).collect();
    let words: Vec<&str> = ["chmod", "/a", "n0"].into_iter().chain(many.iter().map(String::as_str)).collect();
    for backend in BOTH {
        let daemon = Daemon::start(backend);
        let mut client = daemon.connect();
        client.write("/a", b"");
        assert_eq!(run(&daemon, &words).status, 0, "{backend:?}");
        let perms = client.request(Op::GetPerms, b"/a\0").expect("permissions");
        assert_eq!(String::from_utf8_lossy(&perms), format!("n0\0{}\0", many.join("\0")), "{backend:?}");
    }
}

#[test]
fn thousands_of_children_are_all_listed() {
    let prepare = |client: &mut Client| {
        write_all(client, (0..5000).map(|i| (format!("/d/{i:04}"), i.to_string().into_bytes())));
    };
    let seen = same_with(
        prepare,
        &[&["list", "/d"], &["list", "-p", "/d"], &["ls", "/d"], &["ls", "-f", "/d"], &["rm", "/d"]],
    );
    assert_eq!(seen[0].1.lines().count(), 5000);
    assert_eq!(seen[3].1.lines().count(), 5000);
}

#[test]
fn a_thousand_levels_are_walked() {
    let prepare = |client: &mut Client| client.write(&"/w".repeat(1000), b"bottom");
    let script: &[&[&str]] = &[&["ls", "-f", "/"], &["ls", "/w"], &["rm", "/w"], &["ls", "-f", "/"]];
    let seen = same_with(prepare, script);
    assert!(seen[0].1.contains("bottom"));
    assert!(!seen[3].1.contains("bottom"));
}

#[test]
fn a_watching_tool_prints_the_same_paths() {
    let printed = BOTH.map(|backend| {
        let daemon = Daemon::start(backend);
        let mut client = daemon.connect();
        let mut tool = tools::spawn(&daemon, "xenstore-watch", &["-n", "7", "/vm"]);
        let mut lines = BufReader::new(tool.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        let mut printed = Vec::new();
        let changes: [(Op, &[u8]); 6] = [
            (Op::Write, b"/vm/a\x001"),
            (Op::Write, b"/vm/a\x001"),
            (Op::Mkdir, b"/vm/b/c\0"),
            (Op::SetPerms, b"/vm/a\0n0\0r1\0"),
            (Op::Rm, b"/vm/a\0"),
            (Op::Rm, b"/vm\0"),
        ];
        for change in [None].into_iter().chain(changes.into_iter().map(Some)) {
            if let Some((op, payload)) = change {
                assert_eq!(client.request(op, payload), Ok(b"OK\0".to_vec()), "{backend:?} {op:?}");
            }
            line.clear();
            lines.read_line(&mut line).expect("a line");
            printed.push(line.clone());
        }
        lines.read_to_string(&mut line).expect("the end");
        (printed, line, tools::finish(tool).status)
    });
    assert_eq!(printed[0], printed[1]);
    assert_eq!(printed[0].2, 0);
}

#[test]
fn a_watching_tool_ends_alike_when_the_daemon_dies() {
    let ends = BOTH.map(|backend| {
        let daemon = Daemon::start(backend);
        let mut tool = tools::spawn(&daemon, "xenstore-watch", &["-n", "2", "/vm"]);
        let mut line = [0; 3];
        tool.stdout.as_mut().expect("its output is piped").read_exact(&mut line).expect("the initial event");
        let _dir = daemon.kill();
        (line, tools::finish(tool).status)
    });
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn tools_say_alike_that_no_daemon_is_there() {
    let ends = BOTH.map(|backend| {
        let daemon = Daemon::start(backend);
        let dir = daemon.kill();
        let read = std::process::Command::new("xenstore-read")
            .arg("/")
            .env("XENSTORED_PATH", dir.path().join("socket"))
            .output()
            .expect("xenstore-read runs");
        (read.status.code(), read.stdout, read.stderr)
    });
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[0].0, Some(1));
}

#[test]
fn administration_commands_answer_alike() {
    let log = tempfile::tempdir().expect("a temporary directory");
    let trace = log.path().join("trace");
    let trace = trace.to_str().expect("a plain path");
    let script: &[&[&str]] = &[
        &["control", "check"],
        &["control", "check", "x"],
        &["control", "print", "hello"],
        &["control", "print"],
        &["control", "logfile", trace],
        &["control", "log", "on"],
        &["control", "log", "off"],
        &["control", "log", "sideways"],
        &["control", "quota", "set", "nodes", "1234"],
        &["control", "quota", "set", "nodes", "0"],
        &["control", "quota", "set", "nodes"],
        &["control", "quota", "set", "bogus", "1"],
        &["control", "quota", "7"],
        &["control", "quota-soft", "set", "memory", "1000000"],
        &["control", "quota-soft", "set", "nodes", "7"],
        &["control", "bogus"],
        &["control", "live-update"],
        &["control"],
    ];
    let seen = same(script);
    assert_eq!(seen[0], (0, "OK\n".into()));
    let daemon = Daemon::start(Backend::Ours);
    assert_eq!(run(&daemon, &["control", "quota", "set", "nodes", "1234"]).status, 0);
    let quota = run(&daemon, &["control", "quota"]).text();
    assert!(quota.lines().any(|line| line.starts_with("nodes            :     1234 ")), "{quota}");
}

#[test]
fn the_field_s_own_test_program_passes() {
    for backend in BOTH {
        let daemon = Daemon::start(backend);
        let all = tools::run(&daemon, "test-xenstore", &["-i", "50"]);
        assert_eq!(all.status, 0, "{backend:?}: {}", String::from_utf8_lossy(&all.stderr));
        assert_eq!(all.text().lines().count(), 12, "{backend:?}: {}", all.text());
        let random = tools::run(&daemon, "test-xenstore", &["-r", "1"]);
        assert_eq!(random.status, 0, "{backend:?}: {}", String::from_utf8_lossy(&random.stderr));
    }
}

#[test]
fn a_walk_goes_on_while_nodes_vanish_under_it() {
    for backend in BOTH {
        let daemon = Daemon::start(backend);
        let mut client = daemon.connect();
        for round in 0..5 {
            write_all(&mut client, (0..1000).map(|i| (format!("/d/{i:04}"), b"v".to_vec())));
            let walk = tools::spawn(&daemon, "xenstore-ls", &["-f", "/d"]);
            for i in 0..999 {
                let removed = client.request(Op::Rm, format!("/d/{i:04}\0").as_bytes());
                assert_eq!(removed, Ok(b"OK\0".to_vec()), "{backend:?}");
            }
            let walk = tools::finish(walk);
            assert_eq!(walk.status, 0, "{backend:?} round {round}: {}", String::from_utf8_lossy(&walk.stderr));
            assert!(walk.text().contains("/d/0999 = \"v\"\n"), "{backend:?} round {round}");
        }
    }
}

#[test]
fn many_walks_at_once_all_see_the_whole_tree() {
    let mut daemon = Starter::new(Backend::Ours).start();
    let mut client = daemon.connect();
    let nodes = (0..50).flat_map(|vm| (0..20).map(move |i| (format!("/vm/{vm:02}/{i:02}"), b"v".to_vec())));
    write_all(&mut client, nodes);
    let walks: Vec<_> = (0..20).map(|_| tools::spawn(&daemon, "xenstore-ls", &["-f", "/vm"])).collect();
    let texts: Vec<_> = walks.into_iter().map(|walk| tools::finish(walk).text()).collect();
    assert_eq!(texts[0].lines().count(), 50 * 21);
    assert!(texts.iter().all(|text| *text == texts[0]));
    daemon.assert_alive();
}
