//! A program that may go on with the store, tried out as a child while this daemon serves.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Most bytes of a program's words that are looked at. One that says more than a pipe holds waits for a reader, and is
/// ended by and by.
const WORDS_MAX: u64 = 64 << 10;

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Candidate {
    child: Child,
    /// Tells of the child's end.
    end: OwnedFd,
    words: PipeReader,
    due: Duration,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// With status 0, or not, and what it said.
    Ended {
        /// Status 0.
        good: bool,
        /// On standard output and standard error.
        words: String,
    },
    /// It did not end by itself.
    Endless,
}

impl Candidate {
    /// Executes a program, which may take until `due`. Its end is told through `token`.
    ///
    /// # Errors
    /// Where it cannot be executed, or the kernel has no descriptors left.
    pub(crate) fn start(
        program: &Path,
        arguments: &[OsString],
        due: Duration,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let (words, said) = io::pipe()?;
        fcntl(&words, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let child = Command::new(program)
            .args(arguments)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()?;
        let watched = watch(&child).and_then(|end| {
            registry.register(&mut SourceFd(&end.as_raw_fd()), token, Interest::READABLE)?;
            Ok(end)
        });
        match watched {
            Ok(end) => Ok(Self { child, end, words, due }),
            Err(error) => {
                let mut child = child;
                let _ = child.kill().and_then(|()| child.wait());
                Err(error)
            }
        }
    }

    /// Until when it may take.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Ends it where its time is over; that is told as any end is.
    pub(crate) fn look(&mut self, now: Duration) {
        if self.due <= now {
            self.due = Duration::MAX;
            // It may have ended just now.
            let _ = self.child.kill();
        }
    }

    /// How it ended, once that was told.
    pub(crate) fn ended(mut self, registry: &Registry) -> Trial {
        let _ = registry.deregister(&mut SourceFd(&self.end.as_fd().as_raw_fd()));
        let status = self.child.wait();
        if self.due == Duration::MAX {
            return Trial::Endless;
        }
        let mut words = Vec::new();
        // A process that it left behind may have the other end: what there is is enough.
        let _ = self.words.take(WORDS_MAX).read_to_end(&mut words);
        let good = status.is_ok_and(|status| status.success());
        Trial::Ended { good, words: String::from_utf8_lossy(&words).into_owned() }
    }
}

/// What tells of the end of a child.
fn watch(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;
    use crate::clock;

    /// How a shell ends that is given a script and that long.
    fn trial(script: &str, patience: Duration) -> Trial {
        let mut poll = Poll::new().unwrap();
        let words = ["-c", script].map(OsString::from);
        let due = clock::now() + patience;
        let mut candidate = Candidate::start(Path::new("/bin/sh"), &words, due, poll.registry(), Token(7)).unwrap();
        let mut events = Events::with_capacity(1);
        while events.is_empty() {
            let left = (candidate.due() != Duration::MAX).then(|| candidate.due().saturating_sub(clock::now()));
            // The ends of other tests' children interrupt it.
            let _ = poll.poll(&mut events, left);
            candidate.look(clock::now());
        }
        candidate.ended(poll.registry())
    }

    #[test]
    fn what_it_says_and_how_it_ends_is_told() {
        let long = Duration::from_secs(600);
        let ended = |good, words: &str| Trial::Ended { good, words: words.into() };
        assert_eq!(trial("echo one; echo two >&2", long), ended(true, "one\ntwo\n"));
        assert_eq!(trial("echo no; exit 3", long), ended(false, "no\n"));
        assert_eq!(trial("kill -9 $$", long), ended(false, ""));
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        assert_eq!(trial("while :; do :; done", Duration::ZERO), Trial::Endless);
        assert_eq!(trial("while echo more; do :; done", Duration::from_millis(20)), Trial::Endless);
    }

    #[test]
    fn what_a_program_leaves_running_is_not_waited_for() {
        let Trial::Ended { good: true, words } = trial("sleep 30 & echo $!", Duration::from_secs(600)) else {
            panic!("it ended well");
        };
        // Its own end is not this test's.
        let pid = nix::unistd::Pid::from_raw(words.trim().parse().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let poll = Poll::new().unwrap();
        let start = |program: &str| {
            Candidate::start(Path::new(program), &[], Duration::MAX, poll.registry(), Token(0)).map(drop)
        };
        assert_eq!(start("/no/such").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(start("/etc/passwd").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
