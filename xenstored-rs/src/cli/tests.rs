use rstest::rstest;

use super::*;

fn options(arguments: &[&str]) -> Options {
    match parse(arguments) {
        Ok(Command::Run(options)) => *options,
        other => panic!("{arguments:?} gave {other:?}"),
    }
}

fn refusal(arguments: &[&str]) -> String {
    let text = parse(arguments).expect_err("refused").to_string();
    assert!(!text.contains('\n'), "one line: {text:?}");
    text
}

#[test]
fn no_arguments_run_with_the_defaults() {
    let options = options(&[]);
    assert_eq!(options, Options::default());
    assert_eq!(options.mode, Mode::Host);
    assert_eq!(options.watch_event_timeout, Some(Duration::from_secs(20)));
}

#[rstest]
#[case::short(&["-H"], Command::Help)]
#[case::long(&["--help"], Command::Help)]
#[case::after_others(&["-N", "-D", "--help"], Command::Help)]
#[case::version(&["--version"], Command::Version)]
fn help_and_version_are_commands(#[case] arguments: &[&str], #[case] expected: Command) {
    assert_eq!(parse(arguments), Ok(expected));
}

#[rstest]
#[case::separate(&["-D", "-N", "-P", "-V", "-K"])]
#[case::bundled(&["-DNPVK"])]
#[case::long(&["--no-domain-init", "--no-fork", "--output-pid", "--verbose", "--keep-orphans"])]
fn flags_work_in_every_form(#[case] arguments: &[&str]) {
    let options = options(arguments);
    assert_eq!(options.mode, Mode::SocketsOnly);
    assert!(options.no_fork && options.output_pid && options.verbose && options.keep_orphans);
}

#[rstest]
#[case::short_apart(&["-F", "/run/a.pid"])]
#[case::short_joined(&["-F/run/a.pid"])]
#[case::long_apart(&["--pid-file", "/run/a.pid"])]
#[case::long_joined(&["--pid-file=/run/a.pid"])]
fn the_pid_file_may_be_given_in_every_form(#[case] arguments: &[&str]) {
    assert_eq!(options(arguments).pid_file, Some(PathBuf::from("/run/a.pid")));
}

#[rstest]
#[case::nodes(&["-E", "7"], &["--entry-nb", "7"], Quota::Nodes)]
#[case::node_size(&["-S", "7"], &["--entry-size=7"], Quota::NodeSize)]
#[case::watches(&["-W7"], &["--watch-nb", "7"], Quota::Watches)]
#[case::transactions(&["-t", "7"], &["--transaction", "7"], Quota::Transactions)]
#[case::permissions(&["-A", "7"], &["--perm-nb", "7"], Quota::NodePermissions)]
#[case::path_max(&["-M", "7"], &["--path-max", "7"], Quota::PathMax)]
fn the_old_single_options_are_quotas(#[case] short: &[&str], #[case] long: &[&str], #[case] quota: Quota) {
    for arguments in [short, long] {
        assert_eq!(options(arguments).quotas, [QuotaSetting { quota, value: 7 }]);
    }
}

#[test]
fn every_quota_can_be_set_by_name() {
    for quota in Quota::ALL {
        let argument = format!("{}=12", quota.name());
        assert_eq!(options(&["-Q", &argument]).quotas, [QuotaSetting { quota, value: 12 }]);
        assert_eq!(options(&["--quota", &argument]).quotas, [QuotaSetting { quota, value: 12 }]);
    }
}

#[test]
fn quotas_keep_their_order_so_that_the_last_counts() {
    let quotas = options(&["-E", "5", "-Q", "nodes=0", "-Q", "nodes=9"]).quotas;
    assert_eq!(quotas.iter().map(|setting| setting.value).collect::<Vec<_>>(), [5, 0, 9]);
}

#[test]
fn only_memory_has_a_soft_quota() {
    let options = options(&["-q", "memory=100"]);
    assert_eq!(options.soft_quotas, [QuotaSetting { quota: Quota::Memory, value: 100 }]);
    assert_eq!(refusal(&["-q", "nodes=100"]), "option --quota-soft: \"nodes\" is not one of: memory");
}

#[rstest]
#[case::short(&["-M", "5000"])]
#[case::by_name(&["-Q", "path-max=5000"])]
fn path_max_is_capped_and_says_so(#[case] arguments: &[&str]) {
    let options = options(arguments);
    assert_eq!(options.quotas, [QuotaSetting { quota: Quota::PathMax, value: 2048 }]);
    assert_eq!(options.remarks.len(), 1);
    assert!(options.remarks[0].contains("5000") && options.remarks[0].contains("2048"));
}

#[test]
fn a_state_is_checked_with_the_options_of_a_daemon() {
    let command = parse(["-E", "5", "--check-state", "/x/image.3"]).unwrap();
    let Command::CheckState { file, options } = command else { panic!("{command:?}") };
    assert_eq!((file, options.quotas.len()), (PathBuf::from("/x/image.3"), 1));
    assert!(refusal(&["--check-state"]).contains("--check-state"));
}

#[test]
fn the_event_timeout_is_in_seconds_and_zero_switches_it_off() {
    assert_eq!(options(&["-w", "watch-event=3"]).watch_event_timeout, Some(Duration::from_secs(3)));
    assert_eq!(options(&["--timeout=watch-event=0"]).watch_event_timeout, None);
}

#[test]
fn trace_options_set_file_and_switches() {
    let options = options(&["-T", "trace", "--trace-control=+wrl", "--trace-control", "-io"]);
    assert_eq!(options.trace_file, Some(PathBuf::from("trace")));
    assert!(options.trace_switches.is_on(TraceSwitch::Obj) && options.trace_switches.is_on(TraceSwitch::Wrl));
    assert!(!options.trace_switches.is_on(TraceSwitch::Io));
}

#[test]
fn domain_ids_and_the_port_have_long_forms() {
    let options = options(&["--master-domid", "4", "--priv-domid=5", "--event", "17"]);
    assert_eq!((options.master_domid, options.privileged_domid, options.dom0_port), (4, 5, Some(17)));
}

#[rstest]
#[case::no_value(&["-I"], 0)]
#[case::on(&["--internal-db=on"], 0)]
#[case::joined(&["-Ioff"], 1)]
#[case::off(&["--internal-db=off"], 1)]
fn options_of_older_releases_are_harmless(#[case] arguments: &[&str], #[case] remarks: usize) {
    let options = options(arguments);
    assert_eq!(options.remarks.len(), remarks);
    assert_eq!(Options { remarks: Vec::new(), ..options }, Options::default());
}

#[rstest]
#[case::unknown_long(&["--frobnicate"], "unknown option --frobnicate")]
#[case::unknown_short(&["-z"], "unknown option -z")]
#[case::unknown_in_a_bundle(&["-Nz"], "unknown option -z")]
#[case::other_daemons_option(&["--config-file", "f"], "unknown option --config-file")]
#[case::short_master(&["-m", "1"], "unknown option -m")]
#[case::short_priv(&["-p", "1"], "unknown option -p")]
#[case::stray_word(&["-N", "word"], "unexpected argument \"word\"")]
#[case::after_dashes(&["--", "-N"], "unexpected argument \"-N\"")]
#[case::line_break(&["a\nb"], "unexpected argument \"a\\nb\"")]
#[case::missing_value(&["-F"], "needs a value")]
#[case::value_for_a_flag(&["--no-fork=yes"], "--no-fork takes no value")]
#[case::empty_file(&["--pid-file="], "option --pid-file: \"\" is not a file name")]
#[case::not_a_number(&["-E", "ten"], "option --entry-nb: \"ten\" is not a number from 0 to 2147483647")]
#[case::sign(&["-E", "+5"], "\"+5\" is not a number")]
#[case::negative(&["--entry-nb=-5"], "\"-5\" is not a number")]
#[case::trailing_junk(&["-Q", "nodes=5k"], "\"5k\" is not a number")]
#[case::too_large(&["-Q", "nodes=2147483648"], "is not a number from 0 to 2147483647")]
#[case::no_quota_value(&["-Q", "nodes"], "option --quota: \"nodes\" is not NAME=N")]
#[case::unknown_quota(&["-Q", "path-length=5"], "\"path-length\" is not one of: nodes watches")]
#[case::short_equals(&["-Q=nodes=5"], "option --quota: \"\" is not one of")]
#[case::unknown_timeout(&["-w", "request=5"], "is not watch-event=SEC")]
#[case::unknown_switch(&["--trace-control", "+foo"], "is not + or - and one of: obj io wrl acc tdb")]
#[case::no_sign(&["--trace-control", "io"], "is not + or - and one of")]
#[case::reserved_domid(&["--priv-domid", "32752"], "is not a number from 0 to 32751")]
#[case::port(&["--event", "2147483648"], "is not a number from 0 to 2147483647")]
#[case::internal_db(&["--internal-db=maybe"], "is not on or off")]
fn what_is_wrong_is_refused_with_a_clear_line(#[case] arguments: &[&str], #[case] expected: &str) {
    let text = refusal(arguments);
    assert!(text.contains(expected), "{text:?} should contain {expected:?}");
}

#[test]
fn bytes_that_are_no_text_are_refused_not_a_panic() {
    use std::os::unix::ffi::OsStringExt;
    let junk = || OsString::from_vec(vec![b'-', 0xff, b'x']);
    assert!(parse([junk()]).is_err());
    assert!(parse([OsString::from("-Q"), junk()]).is_err());
    assert!(matches!(parse([OsString::from("-F"), junk()]), Ok(Command::Run(_))), "a file name may be any bytes");
}

#[test]
fn help_names_every_option_and_fits_a_terminal() {
    let help = crate::cli_help::help();
    for option in [
        "-D",
        "-N",
        "-F",
        "-P",
        "-V",
        "-H",
        "-T",
        "-Q",
        "-q",
        "-E",
        "-S",
        "-W",
        "-t",
        "-A",
        "-M",
        "-w",
        "-K",
        "-R",
        "-I",
        "-U",
        "--no-domain-init",
        "--no-fork",
        "--pid-file",
        "--output-pid",
        "--verbose",
        "--help",
        "--version",
        "--trace-file",
        "--trace-control",
        "--quota",
        "--quota-soft",
        "--entry-nb",
        "--entry-size",
        "--watch-nb",
        "--transaction",
        "--perm-nb",
        "--path-max",
        "--timeout",
        "--keep-orphans",
        "--master-domid",
        "--priv-domid",
        "--event",
        "--no-recovery",
        "--internal-db",
        "--live-update",
        "XENSTORED_RUNDIR",
        "XENSTORED_PATH",
    ] {
        assert!(help.contains(option), "{option} is not in the help text");
    }
    for quota in Quota::ALL {
        assert!(help.contains(quota.name()), "{} is not in the help text", quota.name());
    }
    for line in help.lines() {
        assert!(line.len() <= 80, "too wide: {line}");
    }
}

#[test]
fn the_manual_page_has_every_option_of_the_help() {
    let page = include_str!("../../../docs/xenstored-rs.8.md");
    let options: Vec<&str> = crate::cli_help::help()
        .split(|byte: char| !byte.is_ascii_lowercase() && byte != '-')
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(options.len() > 30 && options.contains(&"--check-state"), "{options:?}");
    for option in options {
        assert!(page.contains(&format!("**{option}**")), "{option} is not in the manual page");
    }
}
