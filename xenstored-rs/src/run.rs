//! From the command line to the loop.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tracing::{error, info, warn};
use xenstore_core::{BufferCap, Config, DomId, Engine, Existence, Limit, Limits, Quota};

use crate::cli::{self, Command, Mode, Options};
use crate::cli_help;
use crate::daemonise::{self, Readiness, Side, Verdict};
use crate::effects::Effects;
use crate::event_loop::{EventLoop, Identity};
use crate::journal::{self, CheckError, RecoveryError, Start};
use crate::keeper::{self, Kept, Key, Link, LinkError};
use crate::keeping::Orders;
use crate::listener::{self, SocketFile};
use crate::logging::{self, LogOptions};
use crate::notify::Notifier;
use crate::oxenstored_conf;
use crate::pid_file::{PidFile, PidFileError};
use crate::predecessor;
use crate::rlimits::{self, HostLimits};
use crate::run_dir::RunDir;
use crate::signals::Signals;
use crate::take_over::{self, Taken};
use crate::trace::Trace;
use crate::unfinished;

/// Exit status of a command line that cannot be followed.
const USAGE: u8 = 2;

/// Exit status of a daemon that could not start.
const FAILED: u8 = 1;

/// Part of the host's memory that buffers of connections may take.
const BUFFER_SHARE: u64 = 16;

/// Bytes of buffers that a connection may take at its worst, beside events that it does not read.
const BYTES_PER_DESCRIPTOR: u64 = 64 << 10;

/// Why the daemon does not start, with the exit status that goes with it.
#[derive(Debug)]
struct Stop {
    status: u8,
    message: String,
    /// A keeper has what another daemon left, and this is tried again.
    again: bool,
}

impl Stop {
    fn new(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self { status: FAILED, message, again: false }
    }
}

impl Stop {
    fn because(what: &str, error: &dyn std::error::Error) -> Self {
        let stop = Self::new(error);
        Self { message: format!("{what}: {}", stop.message), ..stop }
    }
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::new(&error)
    }
}

/// Runs the daemon with these arguments, of which the first is the program's name.
pub fn run<I: IntoIterator<Item = OsString>>(arguments: I) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    if arguments.first().is_some_and(|first| first == keeper::ARGUMENT) {
        return keeper::main(arguments.into_iter().skip(1));
    }
    let mut options = match cli::parse(&arguments) {
        Ok(Command::Help) => return print(cli_help::help()),
        Ok(Command::Version) => return print(&cli_help::version()),
        Ok(Command::Nothing) => return ExitCode::SUCCESS,
        Ok(Command::CheckState { file, options }) => return check_state(&options, &file),
        Ok(Command::DumpJournal(file)) => return dump_journal(&file),
        Ok(Command::Run(options)) => options,
        Err(error) => return fail(USAGE, &error.to_string()),
    };
    oxenstored_conf::add_to(&mut options);
    match start(&options, &arguments) {
        Ok(code) => code,
        Err(Stop { status, message, again }) => {
            if let Some(from) = options.take_over.filter(|_| !again) {
                error!(message, "the store cannot be taken over");
                take_over::give_back(from, RunDir::locate(std::env::var_os, None).ok().as_ref(), &arguments);
            }
            fail(status, &message)
        }
    }
}

/// Prints what was asked for.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot write to standard output: {error}")),
    }
}

/// Says what is wrong to whoever started the process; where nobody reads that, nothing more can be done.
fn fail(status: u8, message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "xenstored-rs: {message}");
    ExitCode::from(status)
}

/// Tells whether a daemon with these options could go on with the state in a file, which is not touched.
fn check_state(options: &Options, file: &Path) -> ExitCode {
    let config = config(options);
    let checked = match journal::check(file, &config) {
        Err(CheckError::Recovery(RecoveryError::Journal(xenstore_journal::Error::NotAJournal { .. })))
            if !file.is_dir() =>
        {
            take_over::check(file, config).map_err(Stop::from)
        }
        checked => checked.map_err(Stop::from),
    };
    match checked {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop { message, .. }) => fail(FAILED, &message),
    }
}

/// Prints a file of a journal.
fn dump_journal(file: &Path) -> ExitCode {
    match journal::dump(file, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &Stop::new(&error).message),
    }
}

/// What can be refused at once is, before the process leaves its terminal.
fn start(options: &Options, arguments: &[OsString]) -> Result<ExitCode, Stop> {
    let files = RunDir::locate(std::env::var_os, options.pid_file.as_deref())?;
    daemonise::close_to_others();
    files.create_missing()?;
    // A process that was another daemon's is in its place already, and left its terminal long ago.
    let starts = options.take_over.is_none();
    if starts && !options.replace {
        match predecessor::await_end(&files.pid_file, &files.socket) {
            Err(running @ PidFileError::AlreadyRunning { .. }) => return Ok(already_running(&running)),
            probed => probed?,
        }
    }
    logging::start(LogOptions { daemonises: !options.no_fork, verbose: options.verbose })?;
    let notifier = Notifier::from_environment().unwrap_or_else(|error| {
        warn!(%error, "NOTIFY_SOCKET is of no use");
        Notifier::default()
    });
    let readiness = if options.no_fork || !starts {
        Readiness::foreground()
    } else {
        match daemonise::daemonise()? {
            Side::Daemon(readiness) => readiness,
            Side::Launcher(Verdict::Ready { pid }) => {
                if options.output_pid {
                    print(&format!("{pid}\n"));
                }
                // The daemon runs, whether somebody reads its number or not.
                return Ok(ExitCode::SUCCESS);
            }
            Side::Launcher(Verdict::Failed { status, message }) => return Ok(fail(status, &message)),
        }
    };
    match prepare(options, arguments, &files) {
        Ok(prepared) => Ok(serve(options, prepared, readiness, &notifier)),
        Err(stop) => {
            if readiness.failed(stop.status, &stop.message) {
                return Ok(ExitCode::from(stop.status));
            }
            Err(stop)
        }
    }
}

/// Another daemon lives: that is what the caller wanted.
fn already_running(running: &PidFileError) -> ExitCode {
    fail(0, &running.to_string())
}

/// A daemon that could serve.
#[derive(Debug)]
struct Prepared {
    pid_file: PidFile,
    socket: SocketFile,
    events: EventLoop,
    /// How descriptors are kept, if they are.
    keeper: Option<Orders>,
    /// The keeper of before.
    link: Option<Link>,
    /// What another daemon needs to follow this one.
    identity: Identity,
    /// It goes on in the place of another.
    took_over: bool,
}

/// Everything that must work before anybody is served.
fn prepare(options: &Options, arguments: &[OsString], files: &RunDir) -> Result<Prepared, Stop> {
    xen_ffi::process::ignore_sigpipe()?;
    let keeper_socket = keeper::socket_path(&files.run_dir);
    let (mut fetched, mut replaced) = (None, false);
    if options.replace && options.take_over.is_none() {
        // A keeper that serves a daemon hands nothing over.
        match keeper::fetch(&keeper_socket) {
            Ok(link) => fetched = Some(link),
            Err(_) => replaced = predecessor::replace(&files.socket)?,
        }
    }
    let mut pid_file = PidFile::acquire(&files.pid_file).map_err(|error| match error {
        running @ PidFileError::AlreadyRunning { .. } => Stop { status: 0, ..Stop::new(&running) },
        error => Stop::new(&error),
    })?;
    // The process is a daemon's whatever comes of this.
    pid_file.set_removed_on_drop(options.take_over.is_none());
    for remark in &options.remarks {
        warn!("{remark}");
    }
    match rlimits::raise_nofile() {
        Ok(raised) if raised.from < raised.to => info!(from = raised.from, to = raised.to, "descriptor limit raised"),
        Ok(_) => {}
        Err(error) => warn!(%error, "the descriptor limit stays as it is"),
    }
    let mut trace = Trace::new(options.trace_switches);
    if let Some(file) = &options.trace_file {
        trace.set_file(files.resolve(file)?)?;
    }
    let signals = Signals::new().map_err(|error| Stop::because("signals cannot be taken", &error))?;
    let (mut link, mut kept) = match fetched.map_or_else(|| keeper::fetch(&keeper_socket), Ok) {
        Ok((link, kept)) => (Some(link), kept),
        Err(LinkError::Absent) => (None, Kept::default()),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "what was kept for this daemon is lost");
            (None, Kept::default())
        }
    };
    let again = |error| Stop { again: true, ..Stop::new(&error) };
    if options.no_recovery && options.take_over.is_none() {
        kept.unfinished = None;
    }
    let taken = match (kept.unfinished, options.take_over) {
        (Some(from), _) => take_over::read_again(from, files, config(options), &mut kept).map_err(again)?,
        (None, Some(from)) => {
            let is_journaled = || journal::is_there(options, files);
            take_over::read(from, files, config(options), kept.listener.as_ref(), is_journaled)?
        }
        (None, None) => None,
    };
    let keeper = keeper_orders(options, arguments, files);
    let identity = identity(arguments, files);
    if let Some(taken) = taken {
        if kept.unfinished.is_none()
            && let Some(link) = link.take()
        {
            // It was of a daemon before the other one.
            let _ = link.dismiss();
        }
        let (events, socket, link) = take_place(options, files, taken, (link, keeper.as_ref()), signals, trace)?;
        return Ok(Prepared { pid_file, socket, events, keeper, link, identity, took_over: true });
    }
    if let (Some(link), Some(from)) = (&link, kept.unfinished) {
        // It was done but for this.
        let _ = link.let_go(Key::Unfinished(from));
    }
    // A journal whose daemon is at work is not touched.
    if kept.listener.is_none() {
        listener::clear(&files.socket)?;
    }
    let Start { journaled, past } = journal::start(options, files, config(options))?;
    // The keeper of a daemon that was replaced may be in the other's service, and end with that. What one holds of a store
    // that is no more is of no use.
    if (replaced || past.is_none())
        && let Some(link) = link.take()
    {
        let _ = link.dismiss();
    }
    if past.is_none() {
        // Event channels first of all: as long as they are open, no port that is bound on them can be bound anew.
        kept = Kept::default();
    }
    let kept_listener = kept.listener;
    let cannot_start = |error: std::io::Error| Stop::because("the event loop cannot start", &error);
    let mut events = EventLoop::new(signals, journaled, Effects::new(trace, files.clone())).map_err(cannot_start)?;
    // Whoever sees the socket may take the kernel's ring for served, so it comes last; but where somebody else listens
    // there, the rings are that one's.
    if kept_listener.is_none() {
        listener::clear(&files.socket)?;
    }
    let own = DomId(options.master_domid);
    match past {
        None if options.mode == Mode::Host => events.serve_domains(own)?,
        None => {}
        Some(state) => {
            events.take_in_kept(kept.clients);
            if options.mode == Mode::Host {
                events.serve_domains_again(own, kept.event_channels, &state)?;
            }
        }
    }
    let (listener, socket) = match kept_listener {
        Some(listener) => listener::adopt(listener, &files.socket)?,
        None => listener::listen(&files.socket)?,
    };
    events.serve_sockets(listener).map_err(cannot_start)?;
    info!(socket = %files.socket.display(), "listening");
    let took_over = options.take_over.is_some() || kept.unfinished.is_some();
    Ok(Prepared { pid_file, socket, events, keeper, link, identity, took_over })
}

/// What another daemon needs to follow this one.
fn identity(arguments: &[OsString], files: &RunDir) -> Identity {
    Identity { arguments: arguments.to_vec(), run_dir: files.run_dir.clone() }
}

/// How descriptors are kept, if they are.
fn keeper_orders(options: &Options, arguments: &[OsString], files: &RunDir) -> Option<Orders> {
    let wait = options.keep.filter(|_| !options.no_journal)?;
    // Those of a take-over too: they say whose options the others are. Where nothing is left to take over, the journal is
    // gone on with.
    Some(Orders {
        socket: keeper::socket_path(&files.run_dir),
        store: files.socket.clone(),
        wait,
        program: std::env::current_exe().unwrap_or_else(|_| "xenstored-rs".into()),
        arguments: arguments.to_vec(),
    })
}

/// Goes on with the store of another daemon, so that a death in the middle of it is followed by another attempt: `keeper` is
/// the one that holds everything already, or how one is started. Where this fails, the other daemon can go on.
fn take_place(
    options: &Options,
    files: &RunDir,
    taken: Taken,
    (held, orders): (Option<Link>, Option<&Orders>),
    signals: Signals,
    trace: Trace,
) -> Result<(EventLoop, SocketFile, Option<Link>), Stop> {
    let (from, again) = (taken.from, held.is_some());
    let link = held.or_else(|| {
        let held = unfinished::hold(&taken, orders?);
        held.map_err(|error| warn!(%error, "a death before the end of the take-over loses the store")).ok()
    });
    match put_in_place(options, files, taken, signals, trace) {
        Ok((events, socket)) => {
            if let Some(link) = &link {
                let _ = link.let_go(Key::Unfinished(from));
            }
            Ok((events, socket, link))
        }
        Err(stop) => {
            if let Some(link) = link.filter(|_| !again) {
                let _ = link.dismiss();
            }
            Err(Stop { again, ..stop })
        }
    }
}

/// Goes on with the store of another daemon, whose process this was.
fn put_in_place(
    options: &Options,
    files: &RunDir,
    mut taken: Taken,
    signals: Signals,
    trace: Trace,
) -> Result<(EventLoop, SocketFile), Stop> {
    let cannot_start = |error: std::io::Error| Stop::because("the event loop cannot start", &error);
    let own = DomId(options.master_domid);
    let engine = std::mem::replace(&mut taken.engine, Engine::new(config(options)));
    let journaled = journal::start_with(engine, options, files, config(options))?;
    let mut events = EventLoop::new(signals, journaled, Effects::new(trace, files.clone())).map_err(cannot_start)?;
    events.take_over(&mut taken, own, options.mode == Mode::Host)?;
    // From here on the store is served here, whatever else is missing.
    let listening = match taken.listener.take() {
        Some(listener) => listener::adopt(listener, &files.socket),
        None => listener::listen(&files.socket),
    };
    let (listener, socket) = listening?;
    events.serve_sockets(listener).map_err(cannot_start)?;
    take_over::finish(&taken);
    Ok((events, socket))
}

/// Reports readiness and serves until the end.
fn serve(options: &Options, prepared: Prepared, readiness: Readiness, notifier: &Notifier) -> ExitCode {
    let Prepared { pid_file, socket, mut events, keeper, link, identity, took_over } = prepared;
    if options.no_fork && options.output_pid {
        print(&format!("{}\n", std::process::id()));
    }
    // The service manager first: where the process that it started ends before it knows better, it takes that for a
    // failed start.
    if let Err(error) = notifier.ready(if options.mode == Mode::Host { "serving domains" } else { "serving sockets" }) {
        warn!(%error, "the service manager cannot be told");
    }
    if let Err(error) = readiness.ready() {
        error!(%error, "the start cannot be reported");
        return ExitCode::from(FAILED);
    }
    // Only now: the keeper outlives this process and must not hold a terminal that this one has left.
    match (keeper, link) {
        (Some(orders), link) => {
            if let Err(error) = events.keep_with(orders, link) {
                warn!(%error, "event channels are not kept");
            }
        }
        // Nothing is to be kept from now on.
        (None, Some(link)) => drop(link.dismiss()),
        (None, None) => {}
    }
    events.set_identity(identity, took_over);
    let ran = events.run();
    let kept = events.stopping();
    if let Err(error) = notifier.stopping() {
        warn!(%error, "the service manager cannot be told");
    }
    // Clients may go on connecting while the keeper waits for the next daemon.
    if !kept && let Err(error) = socket.remove() {
        warn!(%error, "the socket stays");
    }
    if let Err(error) = pid_file.remove() {
        warn!(error = &error as &dyn std::error::Error, "the pid file stays");
    }
    match ran {
        Ok(()) => {
            info!("ending as asked");
            ExitCode::SUCCESS
        }
        Err(error) => {
            error!(%error, "polling fails");
            ExitCode::from(FAILED)
        }
    }
}

/// The engine's settings from the command line and the host.
fn config(options: &Options) -> Config {
    let mut limits = Limits::default();
    for setting in &options.quotas {
        if let Some(quota) = Quota::from_name(setting.quota.name().as_bytes()) {
            limits.set(Limit::Hard(quota), setting.value);
        }
    }
    for setting in &options.soft_quotas {
        limits.set(Limit::SoftMemory, setting.value);
    }
    Config {
        store_domid: DomId(options.master_domid),
        priv_domid: DomId(options.privileged_domid),
        existence: match options.mode {
            Mode::Host => Existence::Asked,
            Mode::SocketsOnly => Existence::Assumed,
        },
        limits,
        keep_orphans: options.keep_orphans,
        event_timeout: options.watch_event_timeout,
        buffers: buffer_cap(),
    }
}

/// What connections may hold in buffers on this host: so much for each descriptor, but no more than its share of the
/// memory.
fn buffer_cap() -> BufferCap {
    let host = match HostLimits::read() {
        Ok(host) => host,
        Err(error) => {
            warn!(%error, "the host's limits cannot be read");
            return BufferCap::default();
        }
    };
    let by_descriptors = host.nofile.saturating_mul(BYTES_PER_DESCRIPTOR);
    let by_memory = host.mem_total.map(|total| total / BUFFER_SHARE);
    let (bytes, source) = match by_memory {
        Some(bytes) if bytes < by_descriptors => (bytes, format!("1/{BUFFER_SHARE} of the host's memory")),
        _ => (by_descriptors, format!("{} descriptors of {BYTES_PER_DESCRIPTOR} bytes", host.nofile)),
    };
    BufferCap { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), source }
}
