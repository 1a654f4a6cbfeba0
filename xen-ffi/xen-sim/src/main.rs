//! `xen-sim`: runs a store daemon on a simulated Xen host, and acts on that host.

use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};
use xen_sim::{Host, control};

const HELP: &str = "\
usage: xen-sim run --dir DIR [--domains N] [--no-introduce] [--stay] -- DAEMON [ARGS…]
       xen-sim ctl --dir DIR COMMAND…

run starts a host with domains 0 to N in DIR and DAEMON on it, with its run directory at DIR/run, introduces
domains 1 to N, offers their rings as DIR/guest-1.sock and so on, prints `ready`, and ends when the daemon does
and with its status. With --stay the host goes on until it is interrupted.

ctl acts on the host that runs in DIR:
";

/// How long the daemon may take to answer.
const START_UP: Duration = Duration::from_secs(30);

/// How long the daemon may take to end once it was asked to.
const END: Duration = Duration::from_secs(5);

/// How often a daemon that nothing announces is looked at.
const LOOK: Duration = Duration::from_millis(5);

enum Call {
    Help,
    Run(Run),
    Ctl(PathBuf, Vec<String>),
}

struct Run {
    dir: PathBuf,
    domains: u16,
    introduce: bool,
    stay: bool,
    daemon: PathBuf,
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let done = parse().map_err(io::Error::other).and_then(|call| match call {
        Call::Help => io::stdout().write_all(format!("{HELP}{}", control::HELP).as_bytes()).map(|()| ExitCode::SUCCESS),
        Call::Run(run) => self::run(&run),
        Call::Ctl(dir, words) => {
            let text = control::ask(&dir, &words)?;
            io::stdout().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    });
    done.unwrap_or_else(|error| {
        // Nothing is left to say it to when even this fails.
        let _ = writeln!(io::stderr(), "xen-sim: {error}");
        ExitCode::FAILURE
    })
}

fn parse() -> Result<Call, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    use lexopt::ValueExt as _;
    let mut parser = lexopt::Parser::from_env();
    let command = match parser.next()? {
        Some(Value(command)) => command.string()?,
        None | Some(Long("help") | Short('h')) => return Ok(Call::Help),
        Some(other) => return Err(other.unexpected()),
    };
    let mut dir = None;
    let mut words = Vec::new();
    let (mut domains, mut introduce, mut stay) = (0, true, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(Call::Help),
            Long("dir") if dir.is_none() => dir = Some(PathBuf::from(parser.value()?)),
            Long("domains") if command == "run" => domains = parser.value()?.parse()?,
            Long("no-introduce") if command == "run" => introduce = false,
            Long("stay") if command == "run" => stay = true,
            Long(option) if command == "ctl" => words.push(format!("--{option}").into()),
            Value(word) => {
                words.push(word);
                if command == "run" {
                    words.extend(parser.raw_args()?);
                }
            }
            other => return Err(other.unexpected()),
        }
    }
    let dir = dir.ok_or("--dir is missing")?;
    let mut words = words.into_iter();
    match command.as_str() {
        "run" => {
            let daemon = words.next().ok_or("which daemon?")?.into();
            Ok(Call::Run(Run { dir, domains, introduce, stay, daemon, args: words.collect() }))
        }
        "ctl" => Ok(Call::Ctl(dir, words.map(|word| word.string()).collect::<Result<_, _>>()?)),
        _ => Err(format!("no command {command}").into()),
    }
}

fn run(run: &Run) -> io::Result<ExitCode> {
    // A socket for each guest needs more descriptors than most sessions begin with.
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?;
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM])?;

    let host = Host::start(&run.dir)?;
    // What an earlier daemon left would look like a daemon that listens.
    let _ = fs::remove_file(host.socket());
    for domid in 1..=run.domains {
        host.create(domid)?;
    }
    let mut command = host.command(&run.daemon)?;
    command.args(&run.args);
    let mut daemon =
        Daemon(command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{} does not start: {error}", run.daemon.display()))
        })?);
    let deadline = Instant::now() + START_UP;
    while host.ask_for_sign_of_life().is_err() {
        if let Some(status) = daemon.0.try_wait()? {
            return Err(io::Error::other(format!("the daemon ended ({status}) before it answered")));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("the daemon does not answer"));
        }
        thread::sleep(LOOK);
    }
    if run.introduce {
        host.introduce_all(&(1..=run.domains).collect::<Vec<_>>())?;
    }
    for domid in 0..=run.domains {
        host.offer(domid)?;
    }
    fs::write(host.dir().join("daemon.pid"), format!("{}\n", daemon.0.id()))?;
    let mut out = io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;

    let mut ended = None;
    for signal in &mut signals {
        if signal != SIGCHLD {
            return Ok(match ended {
                Some(status) => exit_code(status),
                None => exit_code(daemon.end()?),
            });
        }
        if ended.is_none() {
            ended = daemon.0.try_wait()?;
            if let Some(status) = ended
                && !run.stay
            {
                return Ok(exit_code(status));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemon that was started; it does not outlive the host.
struct Daemon(Child);

impl Daemon {
    /// Asks the daemon to end, and makes it end when it does not.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let pid = i32::try_from(self.0.id()).map_err(io::Error::other)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM)?;
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, Some(signal)) => ExitCode::from(128 + u8::try_from(signal).unwrap_or(0)),
        (None, None) => ExitCode::FAILURE,
    }
}
