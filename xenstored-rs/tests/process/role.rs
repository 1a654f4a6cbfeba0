//! The processes under test.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use xenstored_rs::daemonise::{self, Readiness, Side, Verdict};
use xenstored_rs::logging::{self, LogOptions};
use xenstored_rs::notify::Notifier;
use xenstored_rs::pid_file::{self, PidFile};
use xenstored_rs::rlimits;

/// Plays the role and returns the exit status of its process.
pub(crate) fn play(role: &str, arguments: &[String]) -> ExitCode {
    let argument = |index: usize| Path::new(&arguments[index]);
    match role {
        "ready" => daemon(|readiness| become_ready(readiness, argument(0), argument(1))),
        "failing" => daemon(|readiness| assert!(readiness.failed(3, "no socket\nfor us"))),
        "dying" => daemon(|_| std::process::abort()),
        "holder" => hold(argument(0)),
        "contender" => contend(argument(0)),
        "notifying" => notify(),
        "panicking" => panic_with_log(),
        "silenced" => pipe_signal(),
        "limited" => raise_limit(),
        other => panic!("no role {other}"),
    }
}

/// Daemonises; the launching process prints and ends as the verdict says, the daemon does `work`.
fn daemon(work: impl FnOnce(Readiness)) -> ExitCode {
    match daemonise::daemonise().unwrap() {
        Side::Launcher(Verdict::Ready { pid }) => {
            println!("{pid}");
            ExitCode::SUCCESS
        }
        Side::Launcher(Verdict::Failed { status, message }) => {
            eprintln!("{message}");
            ExitCode::from(status)
        }
        Side::Daemon(readiness) => {
            work(readiness);
            ExitCode::SUCCESS
        }
    }
}

/// Takes the lock, makes a file, reports ready, then tells over the socket what became of it, and waits for the end.
fn become_ready(readiness: Readiness, pid_path: &Path, socket: &Path) {
    let pid_file = PidFile::acquire(pid_path).unwrap();
    fs::write(pid_path.with_extension("made"), "").unwrap();
    println!("before ready");
    readiness.ready().unwrap();
    println!("after ready");
    let mut stream = UnixStream::connect(socket).unwrap();
    // Fields after the command name: state, parent, process group, session, terminal.
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let streams: Vec<_> =
        (0..3).map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().display().to_string()).collect();
    let report = format!(
        "pid={} session={} terminal={} directory={} streams={}\n",
        std::process::id(),
        fields[3],
        fields[4],
        std::env::current_dir().unwrap().display(),
        streams.join(",")
    );
    stream.write_all(report.as_bytes()).unwrap();
    let mut end = Vec::new();
    stream.read_to_end(&mut end).unwrap();
    pid_file.remove().unwrap();
}

/// Holds the lock until standard input ends, then removes the file or, asked with `k`, dies with it.
fn hold(path: &Path) -> ExitCode {
    let pid_file = PidFile::acquire(path).unwrap();
    println!("{}", std::process::id());
    let mut last_words = Vec::new();
    std::io::stdin().read_to_end(&mut last_words).unwrap();
    if last_words == b"k" {
        std::process::abort();
    }
    pid_file.remove().unwrap();
    ExitCode::SUCCESS
}

fn contend(path: &Path) -> ExitCode {
    let probed = pid_file::probe(path).map_or_else(|error| error.to_string(), |()| "free".into());
    let acquired = PidFile::acquire(path);
    let said = acquired.as_ref().map_or_else(ToString::to_string, |_| {
        assert_eq!(fs::read_to_string(path).unwrap(), format!("{}\n", std::process::id()));
        "acquired".into()
    });
    println!("{probed}\n{said}");
    ExitCode::SUCCESS
}

fn notify() -> ExitCode {
    let notifier = Notifier::from_environment().unwrap();
    assert_eq!(std::env::var_os("NOTIFY_SOCKET"), None);
    assert_eq!(Notifier::from_environment().unwrap().stopping().err().map(|error| error.to_string()), None);
    notifier.ready("serving").unwrap();
    notifier.stopping().unwrap();
    ExitCode::SUCCESS
}

fn panic_with_log() -> ExitCode {
    logging::start(LogOptions { daemonises: false, verbose: false }).unwrap();
    tracing::debug!("unseen");
    tracing::info!(domid = 7, "seen");
    assert!(logging::start(LogOptions { daemonises: false, verbose: false }).is_err());
    panic!("forced");
}

fn pipe_signal() -> ExitCode {
    xen_ffi::process::ignore_sigpipe().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let bit = 1_u64 << (libc::SIGPIPE - 1);
    ExitCode::from(u8::from(u64::from_str_radix(ignored, 16).unwrap() & bit == 0))
}

fn raise_limit() -> ExitCode {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 100, hard).unwrap();
    let raised = rlimits::raise_nofile().unwrap();
    assert_eq!((raised.from, raised.to), (100, hard));
    assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    ExitCode::SUCCESS
}
