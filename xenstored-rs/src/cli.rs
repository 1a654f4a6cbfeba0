//! The command line: that of the C daemon, option by option.
//!
//! What every C xenstored of the last years accepts is accepted here under the same names with the same meaning, so
//! that start scripts need no change. One thing is stricter: unknown options and stray words are refused instead of
//! being ignored. Nothing is done here; the caller acts on the [`Options`]. The texts of `--help` are in
//! [`crate::cli_help`].

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};

use crate::trace::{TraceSwitch, TraceSwitches};

/// Exit status of a refused command line.
pub const USAGE_EXIT_STATUS: u8 = 2;

/// Most bytes that `path-max` may allow: the protocol's own limit of a relative path.
pub const PATH_MAX_CAP: u32 = 2048;

/// Domain ids from here on are reserved by the hypervisor (`DOMID_FIRST_RESERVED`).
const FIRST_RESERVED_DOMID: u16 = 0x7ff0;

/// Event channel ports fit in 31 bits.
const PORT_MAX: u32 = 0x7fff_ffff;

/// Longest time that `-w` may name, in seconds: a year and a day.
const TIMEOUT_MAX_SECONDS: u32 = 366 * 24 * 3600;

/// How long sockets and event channels are kept after a stop if nothing else is said.
const KEEP: Duration = Duration::from_secs(60);

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the help text ([`crate::cli_help::help`]) and exit with status 0.
    Help,
    /// Print name and version and exit with status 0.
    Version,
    /// Exit with status 0.
    Nothing,
    /// See whether a daemon with these options could go on with the state in a file.
    CheckState {
        /// An image of a journal, a journal's directory, or a stream.
        file: PathBuf,
        /// The daemon's options.
        options: Box<Options>,
    },
    /// Print a log of the journal for a person and exit.
    DumpJournal(PathBuf),
    /// Run as the store daemon.
    Run(Box<Options>),
}

/// The quotas that can be set, named as the command line and the control interface name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quota {
    /// Nodes that a domain may own.
    Nodes,
    /// Watches that a domain may have.
    Watches,
    /// Requests of a domain whose reply and events are not delivered yet.
    Outstanding,
    /// Bytes of the daemon's memory that a domain may hold.
    Memory,
    /// Transactions that a domain may have open at once.
    Transactions,
    /// Nodes that one transaction may touch.
    TransactionNodes,
    /// Entries of one node's permission list.
    NodePermissions,
    /// Bytes of a path.
    PathMax,
    /// Accounted bytes of one node.
    NodeSize,
}

impl Quota {
    /// Every quota, in the order of the help text.
    pub const ALL: [Self; 9] = [
        Self::Nodes,
        Self::Watches,
        Self::Outstanding,
        Self::Memory,
        Self::Transactions,
        Self::TransactionNodes,
        Self::NodePermissions,
        Self::PathMax,
        Self::NodeSize,
    ];

    /// The quota's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Watches => "watches",
            Self::Outstanding => "outstanding",
            Self::Memory => "memory",
            Self::Transactions => "transactions",
            Self::TransactionNodes => "transaction-nodes",
            Self::NodePermissions => "node-permissions",
            Self::PathMax => "path-max",
            Self::NodeSize => "node-size",
        }
    }

    /// The quota of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quota| quota.name() == name)
    }

    /// Whether the quota has a soft value, which only warns.
    #[must_use]
    pub const fn has_soft_value(self) -> bool {
        matches!(self, Self::Memory)
    }
}

/// One `name=N` of the command line. `value` is in the quota's unit; 0 means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaSetting {
    /// Which quota.
    pub quota: Quota,
    /// Its value.
    pub value: u32,
}

/// Whether the daemon looks for a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sockets and the rings of the domains.
    Host,
    /// `-D`: sockets only; no hypervisor, no `/proc/xen`, no event channel device is touched.
    SocketsOnly,
}

/// From whom a store is taken over, within one process: the other daemon executed this one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TakeOver {
    /// `-U`: from the C daemon, or from another build of this one.
    C,
    /// `--live --restart`: from oxenstored.
    Oxenstored,
}

impl TakeOver {
    /// What a command line says of it.
    fn of(words: &[OsString]) -> Option<Self> {
        if has(words, &["-U", "--live-update"]) {
            Some(Self::C)
        } else {
            is_of_oxenstored(words).then_some(Self::Oxenstored)
        }
    }
}

/// Whether a command line has one of these words.
fn has(words: &[OsString], names: &[&str]) -> bool {
    words.iter().any(|word| names.iter().any(|name| word == name))
}

/// Whether a command line is, or once was, that of oxenstored.
fn is_of_oxenstored(words: &[OsString]) -> bool {
    has(words, &["--live"]) && has(words, &["--restart"])
}

/// Everything that can be chosen on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-D`: whether domains are served.
    pub mode: Mode,
    /// `-N`: stay in the foreground.
    pub no_fork: bool,
    /// `-P`: the launching process prints the daemon's pid to its standard output.
    pub output_pid: bool,
    /// `-V`: log at level debug.
    pub verbose: bool,
    /// `-F`: the pid file, if not the default one.
    pub pid_file: Option<PathBuf>,
    /// `-T`: the trace file; relative names are below the library directory.
    pub trace_file: Option<PathBuf>,
    /// `--trace-control`: what is traced.
    pub trace_switches: TraceSwitches,
    /// `-Q` and the older single options, in the order given: a later one outranks an earlier one.
    pub quotas: Vec<QuotaSetting>,
    /// `-q`: soft quotas, in the order given.
    pub soft_quotas: Vec<QuotaSetting>,
    /// `-w watch-event=`: how long an event may wait for its reader; `None` means for ever.
    pub watch_event_timeout: Option<Duration>,
    /// `-K`: keep the nodes that a dead domain owned.
    pub keep_orphans: bool,
    /// `--event`: event channel port of dom0, when the daemon runs in a domain of its own.
    pub dom0_port: Option<u32>,
    /// `--master-domid`: the domain that this daemon runs in.
    pub master_domid: u16,
    /// `--priv-domid`: the domain that may do everything, beside the sockets.
    pub privileged_domid: u16,
    /// `--state-dir`: where the journal is, if not in the run directory.
    pub state_dir: Option<PathBuf>,
    /// `--no-journal`: nothing outlives the daemon.
    pub no_journal: bool,
    /// `--check-state FILE`: only see whether the state in that file, or the journal in that directory, can be gone on
    /// with.
    pub check_state: Option<PathBuf>,
    /// `-R`: begin with a fresh store, whatever an earlier daemon left.
    pub no_recovery: bool,
    /// `--keep`: how long sockets and event channels are kept after a stop; none is no keeper at all.
    pub keep: Option<Duration>,
    /// `--replace`: one of this kind that runs leaves its place.
    pub replace: bool,
    /// Whether this process was another daemon's before.
    pub take_over: Option<TakeOver>,
    /// The command line is, or once was, that of oxenstored: `--live --restart`.
    pub of_oxenstored: bool,
    /// `--config-file` of oxenstored.
    pub oxenstored_conf: Option<PathBuf>,
    /// Remarks for the log about options that were accepted with another effect than one might expect.
    pub remarks: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Host,
            no_fork: false,
            output_pid: false,
            verbose: false,
            pid_file: None,
            trace_file: None,
            trace_switches: TraceSwitches::default(),
            quotas: Vec::new(),
            soft_quotas: Vec::new(),
            watch_event_timeout: Some(Duration::from_secs(20)),
            keep_orphans: false,
            dom0_port: None,
            master_domid: 0,
            privileged_domid: 0,
            state_dir: None,
            no_journal: false,
            check_state: None,
            no_recovery: false,
            keep: Some(KEEP),
            replace: false,
            take_over: None,
            of_oxenstored: false,
            oxenstored_conf: None,
            remarks: Vec::new(),
        }
    }
}

impl Options {
    /// Takes one quota setting; `path-max` is capped.
    pub(crate) fn set_quota(&mut self, quota: Quota, value: u32) {
        let mut setting = QuotaSetting { quota, value };
        if quota == Quota::PathMax && value > PATH_MAX_CAP {
            setting.value = PATH_MAX_CAP;
            self.remarks.push(format!("path-max {value} is capped at {PATH_MAX_CAP}, the protocol's limit"));
        }
        self.quotas.push(setting);
    }
}

/// Why a command line was refused. The text is one line and names the option.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CliError {
    /// An option that does not exist.
    #[error("unknown option {0} (--help lists the options)")]
    UnknownOption(String),
    /// A word that belongs to no option.
    #[error("unexpected argument \"{0}\": only options are taken (--help lists them)")]
    UnexpectedArgument(String),
    /// An option that needs a value stands at the end.
    #[error("option {0} needs a value")]
    MissingValue(String),
    /// An option that takes no value got one.
    #[error("option {0} takes no value")]
    UnexpectedValue(String),
    /// A value that cannot be used.
    #[error("option {option}: \"{value}\" is not {expected}")]
    BadValue {
        /// The option, as it was written in full.
        option: &'static str,
        /// The refused value.
        value: String,
        /// What would have been right.
        expected: String,
    },
}

/// Reads the command line; `arguments` comes without the program's name.
///
/// A daemon that takes over from another gets the other's command line: what is not known of it is passed over with a
/// remark, since by then there is nobody to read a refusal and a store to lose.
///
/// # Errors
/// The first thing that is wrong. The caller prints it and exits with [`USAGE_EXIT_STATUS`].
pub fn parse<I>(arguments: I) -> Result<Command, CliError>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let words: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let (take_over, of_oxenstored) = (TakeOver::of(&words), is_of_oxenstored(&words));
    let mut options = Box::new(Options { take_over, of_oxenstored, ..Options::default() });
    let mut parser = lexopt::Parser::from_args(words);
    // `-Q=x` means the value "=x" to the C daemon's getopt.
    parser.set_short_equals(false);
    loop {
        match step(&mut parser, &mut options) {
            Ok(Step::Option) => {}
            Ok(Step::Command(command)) => return Ok(command),
            Ok(Step::End) => {
                return Ok(match options.check_state.take() {
                    Some(file) => Command::CheckState { file, options },
                    None => Command::Run(options),
                });
            }
            Err(error) if options.take_over.is_some() => options.remarks.push(format!("passed over: {error}")),
            Err(error) => return Err(error),
        }
    }
}

/// What one step through the command line came to.
enum Step {
    /// An option was taken.
    Option,
    /// It asks for something else than serving.
    Command(Command),
    /// Nothing is left.
    End,
}

/// Takes one option with its value.
fn step(parser: &mut lexopt::Parser, options: &mut Options) -> Result<Step, CliError> {
    let Some(argument) = parser.next().map_err(refused)? else { return Ok(Step::End) };
    match argument {
        // oxenstored tries out so whether its arguments are taken, and takes any output for a complaint.
        Short('H') | Long("help") if options.take_over == Some(TakeOver::Oxenstored) => {
            return Ok(Step::Command(Command::Nothing));
        }
        Short('H') | Long("help") => return Ok(Step::Command(Command::Help)),
        Long("version") => return Ok(Step::Command(Command::Version)),
        Short('D') | Long("no-domain-init") => options.mode = Mode::SocketsOnly,
        Short('N') | Long("no-fork") => options.no_fork = true,
        Short('P') | Long("output-pid") => options.output_pid = true,
        Short('V') | Long("verbose") => options.verbose = true,
        Short('K') | Long("keep-orphans") => options.keep_orphans = true,
        Short('R') | Long("no-recovery") => options.no_recovery = true,
        Long("state-dir") => options.state_dir = Some(file(parser, "--state-dir")?),
        Long("replace") => options.replace = true,
        Long("check-state") => options.check_state = Some(file(parser, "--check-state")?),
        Long("no-journal") => options.no_journal = true,
        Long("keep") => {
            let seconds = number(parser, "--keep", TIMEOUT_MAX_SECONDS)?;
            options.keep = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        }
        Long("dump-journal") => return Ok(Step::Command(Command::DumpJournal(file(parser, "--dump-journal")?))),
        Short('I') | Long("internal-db") => internal_db(parser.optional_value().as_deref(), options)?,
        Short('F') | Long("pid-file") => options.pid_file = Some(file(parser, "--pid-file")?),
        Short('T') | Long("trace-file") => options.trace_file = Some(file(parser, "--trace-file")?),
        Long("trace-control") => trace_control(parser, options)?,
        Short('E') | Long("entry-nb") => old_quota(parser, options, "--entry-nb", Quota::Nodes)?,
        Short('S') | Long("entry-size") => old_quota(parser, options, "--entry-size", Quota::NodeSize)?,
        Short('W') | Long("watch-nb") => old_quota(parser, options, "--watch-nb", Quota::Watches)?,
        Short('t') | Long("transaction") => {
            old_quota(parser, options, "--transaction", Quota::Transactions)?;
        }
        Short('A') | Long("perm-nb") => {
            old_quota(parser, options, "--perm-nb", Quota::NodePermissions)?;
        }
        Short('M') | Long("path-max") => old_quota(parser, options, "--path-max", Quota::PathMax)?,
        Short('Q') | Long("quota") => {
            let QuotaSetting { quota, value } = quota_setting(parser, "--quota", |_| true)?;
            options.set_quota(quota, value);
        }
        Short('q') | Long("quota-soft") => {
            let setting = quota_setting(parser, "--quota-soft", Quota::has_soft_value)?;
            options.soft_quotas.push(setting);
        }
        Short('w') | Long("timeout") => options.watch_event_timeout = timeout(parser)?,
        Long("event") => options.dom0_port = Some(number(parser, "--event", PORT_MAX)?),
        Long("master-domid") => options.master_domid = domid(parser, "--master-domid")?,
        Long("priv-domid") => options.privileged_domid = domid(parser, "--priv-domid")?,
        // They say that this is a take-over, which was looked at first.
        Short('U') | Long("live-update") => {}
        Long("live" | "restart" | "no-access-log" | "reraise-top-level") if options.take_over.is_some() => {}
        Long("config-file") if options.take_over.is_some() => {
            options.oxenstored_conf = Some(file(parser, "--config-file")?);
        }
        Value(word) => return Err(CliError::UnexpectedArgument(printable(&word))),
        unknown => return Err(refused(unknown.unexpected())),
    }
    Ok(Step::Option)
}

/// Turns the parser's refusal into ours.
fn refused(error: lexopt::Error) -> CliError {
    match error {
        lexopt::Error::UnexpectedOption(option) => CliError::UnknownOption(printable(OsStr::new(&option))),
        lexopt::Error::UnexpectedValue { option, .. } => CliError::UnexpectedValue(option),
        lexopt::Error::MissingValue { option } => CliError::MissingValue(option.unwrap_or_else(|| "given last".into())),
        lexopt::Error::UnexpectedArgument(word) => CliError::UnexpectedArgument(printable(&word)),
        other => CliError::UnexpectedArgument(other.to_string()),
    }
}

/// A word of the command line on one line, whatever bytes it has.
fn printable(word: &OsStr) -> String {
    word.to_string_lossy().escape_debug().collect()
}

/// The option's value as text.
fn text(parser: &mut lexopt::Parser, option: &'static str, expected: &str) -> Result<String, CliError> {
    let value = parser.value().map_err(refused)?;
    match value.into_string() {
        Ok(value) if !value.is_empty() => Ok(value),
        Ok(value) => Err(bad(option, &value, expected)),
        Err(value) => Err(bad(option, &printable(&value), expected)),
    }
}

fn bad(option: &'static str, value: &str, expected: impl Into<String>) -> CliError {
    CliError::BadValue { option, value: value.escape_debug().collect(), expected: expected.into() }
}

fn file(parser: &mut lexopt::Parser, option: &'static str) -> Result<PathBuf, CliError> {
    let value = parser.value().map_err(refused)?;
    if value.is_empty() { Err(bad(option, "", "a file name")) } else { Ok(PathBuf::from(value)) }
}

/// A number from 0 to `most`, in decimal digits only.
fn decimal(option: &'static str, value: &str, most: u32) -> Result<u32, CliError> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(number) if digits && number <= most => Ok(number),
        _ => Err(bad(option, value, format!("a number from 0 to {most}"))),
    }
}

fn number(parser: &mut lexopt::Parser, option: &'static str, most: u32) -> Result<u32, CliError> {
    let value = text(parser, option, "a number")?;
    decimal(option, &value, most)
}

fn domid(parser: &mut lexopt::Parser, option: &'static str) -> Result<u16, CliError> {
    let value = number(parser, option, u32::from(FIRST_RESERVED_DOMID - 1))?;
    // The bound above makes this conversion exact.
    Ok(u16::try_from(value).unwrap_or_default())
}

fn old_quota(
    parser: &mut lexopt::Parser,
    options: &mut Options,
    option: &'static str,
    quota: Quota,
) -> Result<(), CliError> {
    let value = number(parser, option, i32::MAX.unsigned_abs())?;
    options.set_quota(quota, value);
    Ok(())
}

/// The `name=N` of `-Q` and `-q`.
fn quota_setting(
    parser: &mut lexopt::Parser,
    option: &'static str,
    allowed: fn(Quota) -> bool,
) -> Result<QuotaSetting, CliError> {
    let names = || -> Vec<_> { Quota::ALL.into_iter().filter(|&quota| allowed(quota)).map(Quota::name).collect() };
    let setting = text(parser, option, "NAME=N")?;
    let Some((name, value)) = setting.split_once('=') else {
        return Err(bad(option, &setting, "NAME=N"));
    };
    let quota = Quota::from_name(name)
        .filter(|&quota| allowed(quota))
        .ok_or_else(|| bad(option, name, format!("one of: {}", names().join(" "))))?;
    Ok(QuotaSetting { quota, value: decimal(option, value, i32::MAX.unsigned_abs())? })
}

fn timeout(parser: &mut lexopt::Parser) -> Result<Option<Duration>, CliError> {
    const OPTION: &str = "--timeout";
    let setting = text(parser, OPTION, "watch-event=SEC")?;
    let Some(seconds) = setting.strip_prefix("watch-event=") else {
        return Err(bad(OPTION, &setting, "watch-event=SEC"));
    };
    let seconds = decimal(OPTION, seconds, TIMEOUT_MAX_SECONDS)?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.into())))
}

fn trace_control(parser: &mut lexopt::Parser, options: &mut Options) -> Result<(), CliError> {
    const OPTION: &str = "--trace-control";
    let expected = || format!("+ or - and one of: {}", TraceSwitch::ALL.map(TraceSwitch::name).join(" "));
    let value = text(parser, OPTION, &expected())?;
    options.trace_switches.change(&value).map_err(|_| bad(OPTION, &value, expected()))
}

/// Older daemons could keep their database in a file; this one has it in memory.
fn internal_db(value: Option<&OsStr>, options: &mut Options) -> Result<(), CliError> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("on") => {}
        Some("off") => {
            options.remarks.push("--internal-db=off has no effect: the store is kept in memory".into());
        }
        Some(other) => return Err(bad("--internal-db", other, "on or off")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
