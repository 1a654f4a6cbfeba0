//! Where the daemon's own messages go, and how a crash leaves its reason.
//!
//! - under systemd (`JOURNAL_STREAM` names our standard error): to the journal, with fields
//! - in the foreground otherwise: to standard error
//! - when daemonising, or with standard error on `/dev/null`: to standard error while there is one, and to the system
//!   log, which is the journal if it runs, else whoever listens on `/dev/log`
//!
//! Messages use `tracing` with fields (`domid`, `connection`, …). Values of nodes are never logged.

use std::backtrace::Backtrace;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{self, PanicHookInfo};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use crate::syslog::{DEFAULT_SYSLOG_SOCKET, Syslog};

/// The journal's priorities of our levels, as the system log has them.
const PRIORITIES: PriorityMappings = PriorityMappings {
    error: Priority::Error,
    warn: Priority::Warning,
    info: Priority::Informational,
    debug: Priority::Debug,
    trace: Priority::Debug,
};

/// How the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The process will leave its standard error.
    pub daemonises: bool,
    /// Log at level debug.
    pub verbose: bool,
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Stderr,
    Journal,
    StderrAndJournal,
    StderrAndSyslog,
}

/// What decides about the destination.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings<'a> {
    daemonises: bool,
    /// `JOURNAL_STREAM`: device and inode of the stream that the journal gave us.
    journal_stream: Option<&'a str>,
    /// Device and inode of standard error.
    stderr: Option<(u64, u64)>,
    /// Standard error is `/dev/null` or closed.
    stderr_is_null: bool,
    journal_runs: bool,
}

impl Destination {
    fn choose(surroundings: Surroundings<'_>) -> Self {
        let stream = surroundings.journal_stream.and_then(|stream| {
            let (device, inode) = stream.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        let stderr_is_journal = stream.is_some() && stream == surroundings.stderr;
        match (surroundings.journal_runs, surroundings.daemonises || surroundings.stderr_is_null) {
            (true, _) if stderr_is_journal => Self::Journal,
            (_, false) => Self::Stderr,
            (true, true) => Self::StderrAndJournal,
            (false, true) => Self::StderrAndSyslog,
        }
    }
}

/// Starts the log and makes panics write their message and backtrace to it. Call it once, before forking.
///
/// # Errors
/// If the log was started already.
pub fn start(options: LogOptions) -> io::Result<()> {
    // The journal is there if it can be reached.
    let journal = tracing_journald::layer().ok();
    let stderr = fs::metadata("/proc/self/fd/2").ok();
    let null = fs::metadata("/dev/null").ok();
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let destination = Destination::choose(Surroundings {
        daemonises: options.daemonises,
        journal_stream: stream.as_deref(),
        stderr: stderr.as_ref().map(|stderr| (stderr.dev(), stderr.ino())),
        stderr_is_null: match (&stderr, &null) {
            (Some(stderr), Some(null)) => stderr.rdev() == null.rdev() && stderr.rdev() != 0,
            (None, _) => true,
            _ => false,
        },
        journal_runs: journal.is_some(),
    });
    let level = if options.verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let both = matches!(destination, Destination::StderrAndJournal | Destination::StderrAndSyslog);
    let journal = journal
        .filter(|_| matches!(destination, Destination::Journal | Destination::StderrAndJournal))
        .map(|layer| layer.with_syslog_identifier("xenstored-rs".into()).with_priority_mappings(PRIORITIES));
    let syslog = (destination == Destination::StderrAndSyslog).then(|| plain(Syslog::new(DEFAULT_SYSLOG_SOCKET)));
    let subscriber = tracing_subscriber::registry()
        .with(level)
        .with((destination == Destination::Stderr).then(|| timed(io::stderr)))
        // Who starts a daemon by hand wants to hear of trouble only; the rest is in the system log.
        .with(both.then(|| plain(io::stderr).with_filter(LevelFilter::WARN)))
        .with(syslog)
        .with(journal);
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Lines for who reads them later: time in UTC, level, message, fields.
fn timed<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_target(false)
}

/// Lines for where the time is known: level, message, fields.
fn plain<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_target(false).without_time()
}

/// Says what a panic was and where it came from, as one message.
fn log_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no text)");
    let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
    tracing::error!("panic at {place}: {text}\n{}", Backtrace::force_capture());
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_HOME: Surroundings<'_> = Surroundings {
        daemonises: false,
        journal_stream: None,
        stderr: Some((5, 77)),
        stderr_is_null: false,
        journal_runs: true,
    };

    #[test]
    fn in_the_foreground_messages_go_to_standard_error() {
        for journal_runs in [true, false] {
            let surroundings = Surroundings { journal_runs, ..AT_HOME };
            assert_eq!(Destination::choose(surroundings), Destination::Stderr);
        }
    }

    #[test]
    fn standard_error_that_is_the_journals_is_replaced_by_the_journal() {
        for daemonises in [true, false] {
            let surroundings = Surroundings { daemonises, journal_stream: Some("5:77"), ..AT_HOME };
            assert_eq!(Destination::choose(surroundings), Destination::Journal);
        }
    }

    #[test]
    fn an_inherited_or_broken_journal_stream_does_not_count() {
        for stream in ["5:78", "77:5", "5", "", "a:b", "5:77:1"] {
            let surroundings = Surroundings { journal_stream: Some(stream), ..AT_HOME };
            assert_eq!(Destination::choose(surroundings), Destination::Stderr, "{stream}");
        }
        let no_journal = Surroundings { journal_stream: Some("5:77"), journal_runs: false, ..AT_HOME };
        assert_eq!(Destination::choose(no_journal), Destination::Stderr);
    }

    #[test]
    fn a_daemon_and_one_without_standard_error_use_the_system_log_too() {
        for (daemonises, stderr_is_null) in [(true, false), (false, true), (true, true)] {
            let with_journal = Surroundings { daemonises, stderr_is_null, ..AT_HOME };
            assert_eq!(Destination::choose(with_journal), Destination::StderrAndJournal);
            let without = Surroundings { journal_runs: false, ..with_journal };
            assert_eq!(Destination::choose(without), Destination::StderrAndSyslog);
        }
    }
}
