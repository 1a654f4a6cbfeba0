//! Becoming a daemon: leaving the terminal, and telling the launching process how it went.
//!
//! The process that was started by hand (or by a start script) waits until the daemon answers requests or has failed,
//! and ends with its exit status and its message. Until then the daemon keeps the terminal for its messages; only when
//! it reports ready do its standard streams go to `/dev/null`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use xen_ffi::process::{Forked, end, fork};

/// First byte of the report of a daemon that is ready; its pid follows in decimal.
const READY: u8 = b'R';
/// First byte of the report of one that failed; a byte with the exit status and a message follow.
const FAILED: u8 = b'F';

/// Exit status of the launching process if the daemon died without a word.
const DIED_STATUS: u8 = 1;

/// Which of the two processes this is after [`daemonise`].
#[derive(Debug)]
pub enum Side {
    /// The process that was started. It has nothing left to do but to end as the verdict says.
    Launcher(Verdict),
    /// The daemon: no terminal, `/` as its directory, umask 077.
    Daemon(Readiness),
}

/// What the launching process has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The daemon answers requests; end with status 0.
    Ready {
        /// The daemon's pid.
        pid: i32,
    },
    /// The daemon gave up; print the message and end with the status (0 if another daemon runs already).
    Failed {
        /// Exit status.
        status: u8,
        /// One line or more, without the line break at the end.
        message: String,
    },
}

/// The duty to report, once. If it is dropped without a report, the launching process says that the daemon died.
#[derive(Debug)]
#[must_use]
pub struct Readiness {
    /// `None` in the foreground, where nobody waits.
    launcher: Option<File>,
}

impl Readiness {
    /// For a daemon that stays in the foreground: reports go nowhere and the standard streams stay.
    pub const fn foreground() -> Self {
        Self { launcher: None }
    }

    /// Leaves the standard streams and lets the launching process end with status 0.
    ///
    /// # Errors
    /// If `/dev/null` cannot be opened; the launching process is told.
    pub fn ready(self) -> io::Result<()> {
        let Some(mut launcher) = self.launcher else {
            return Ok(());
        };
        if let Err(error) = leave_standard_streams() {
            report_failure(&mut launcher, DIED_STATUS, &format!("cannot leave the terminal: {error}"));
            return Err(error);
        }
        // If the launching process was killed meanwhile, the daemon goes on all the same.
        let _ = launcher.write_all(format!("{}{}", char::from(READY), std::process::id()).as_bytes());
        Ok(())
    }

    /// Reports that the daemon cannot start. Returns whether a launching process takes over printing the message;
    /// if not (foreground), it is for the caller to print it.
    pub fn failed(self, status: u8, message: &str) -> bool {
        self.launcher.is_some_and(|mut launcher| report_failure(&mut launcher, status, message))
    }
}

/// Whether the report was taken.
fn report_failure(launcher: &mut File, status: u8, message: &str) -> bool {
    let mut report = vec![FAILED, status];
    report.extend_from_slice(message.as_bytes());
    launcher.write_all(&report).is_ok()
}

/// Forks twice, so that the daemon has neither a terminal nor a way to get one.
///
/// In the launching process this returns when the daemon has reported or died. Locks and threads do not cross this:
/// take the lock of the pid file afterwards, in the daemon.
///
/// # Errors
/// If the process has more than one thread, or the kernel has no process or descriptor left.
pub fn daemonise() -> io::Result<Side> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    match fork()? {
        Forked::Parent { child } => {
            drop(writer);
            Ok(Side::Launcher(await_verdict(File::from(reader), Pid::from_raw(child))))
        }
        Forked::Child => {
            drop(reader);
            let mut launcher = File::from(writer);
            match leave_session() {
                Ok(()) => Ok(Side::Daemon(Readiness { launcher: Some(launcher) })),
                Err(error) => {
                    report_failure(&mut launcher, DIED_STATUS, &format!("cannot become a daemon: {error}"));
                    end(DIED_STATUS)
                }
            }
        }
    }
}

/// In the first child: a new session, then a child that does not lead it. Returns in that child only.
fn leave_session() -> io::Result<()> {
    setsid()?;
    match fork()? {
        Forked::Parent { .. } => end(0),
        Forked::Child => {
            chdir("/")?;
            close_to_others();
            Ok(())
        }
    }
}

/// Waits for the daemon's report, and for the process between us and it.
fn await_verdict(mut reader: File, child: Pid) -> Verdict {
    let mut report = Vec::new();
    // An error ends the report as the daemon's death would.
    let _ = reader.read_to_end(&mut report);
    while waitpid(child, None) == Err(Errno::EINTR) {}
    read_report(&report)
}

fn read_report(report: &[u8]) -> Verdict {
    match report {
        [READY, pid @ ..] => {
            let pid = std::str::from_utf8(pid).ok().and_then(|pid| pid.parse().ok());
            pid.map_or_else(died, |pid| Verdict::Ready { pid })
        }
        [FAILED, status, message @ ..] => {
            Verdict::Failed { status: *status, message: String::from_utf8_lossy(message).into_owned() }
        }
        _ => died(),
    }
}

fn died() -> Verdict {
    Verdict::Failed { status: DIED_STATUS, message: "the daemon died before it was ready".into() }
}

fn leave_standard_streams() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Sets the umask to 077: no file that this process makes is open to others, whatever it was started with. For the
/// foreground too.
pub fn close_to_others() {
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_back() {
        assert_eq!(read_report(b"R4711"), Verdict::Ready { pid: 4711 });
        let failed = Verdict::Failed { status: 3, message: "no socket\nsecond line".into() };
        assert_eq!(read_report(b"F\x03no socket\nsecond line"), failed);
    }

    #[test]
    fn silence_and_junk_mean_that_the_daemon_died() {
        for report in [&b""[..], b"R", b"Rx", b"F", b"?"] {
            assert_eq!(read_report(report), died(), "{report:?}");
        }
    }

    #[test]
    fn in_the_foreground_nobody_takes_the_report() {
        assert!(!Readiness::foreground().failed(1, "message"));
        Readiness::foreground().ready().unwrap();
    }

    #[test]
    fn a_process_with_several_threads_does_not_fork() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || receiver.recv());
        let error = daemonise().unwrap_err();
        assert!(error.to_string().contains("threads run where there must be one"), "{error}");
        drop(sender);
        assert!(second.join().unwrap().is_err());
    }
}
