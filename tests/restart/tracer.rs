//! A process that is stopped at its steps: each system call, going in and coming out, each store to chosen words of
//! shared memory, and any single instruction after that.
//!
//! What a process does between two such steps is seen by nobody else, so a death there is a death at the step before.
//! Stores are met by the processor's debug registers (x86-64); elsewhere only system calls and instructions are.

use std::fs;
use std::thread;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Words that can be watched at once: the debug registers that there are.
pub(crate) const MOST_WATCHED: usize = 4;

/// Looks for a stop before the process is looked at: most stops come at once.
const LOOKS: u32 = 64;

/// What became of a process that went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It stands still.
    Stopped,
    /// It sleeps in a system call and waits for others.
    Asleep,
    /// It is no more.
    Gone,
}

/// A process that is stepped through by the thread that attached to it. It ends with this.
#[derive(Debug)]
pub(crate) struct Tracer {
    pid: Pid,
    /// It was let go on and has not stopped since.
    runs: bool,
    /// A signal that it gets when it goes on.
    signal: Option<Signal>,
    /// It is no more, and its number may be another's.
    gone: bool,
    /// It is another one's copy, and no child of this process.
    is_copy: bool,
    /// A copy that it made of itself.
    copy: Option<Pid>,
}

impl Tracer {
    /// Stops a process wherever it is.
    ///
    /// # Errors
    /// `EPERM` where the kernel, or the container around the test, lets nobody trace.
    pub(crate) fn attach(pid: u32) -> Result<Self, Errno> {
        let pid = Pid::from_raw(i32::try_from(pid).expect("a pid fits"));
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACEFORK;
        ptrace::seize(pid, options)?;
        ptrace::interrupt(pid)?;
        Ok(Self::stopped(pid, false))
    }

    /// A process that is about to stop.
    fn stopped(pid: Pid, is_copy: bool) -> Self {
        let mut tracer = Self { pid, runs: true, signal: None, gone: false, is_copy, copy: None };
        while tracer.came() == Came::Asleep {}
        tracer
    }

    /// The copy that the process has made of itself at this step, if it has: it stands still at its beginning, and goes on by
    /// itself where nobody takes it.
    pub(crate) fn take_copy(&mut self) -> Option<Self> {
        self.copy.take().map(|copy| Self::stopped(copy, true))
    }

    /// Leaves the process alone from now on.
    pub(crate) fn let_go(mut self) {
        self.let_copy_go();
        self.gone = ptrace::detach(self.pid, self.signal.take()).is_ok();
    }

    fn let_copy_go(&mut self) {
        if let Some(copy) = self.take_copy() {
            copy.let_go();
        }
    }

    /// Has stores to these addresses, of eight bytes or four, be stops too. Tells whether they can be.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn watch(&self, words: &[(usize, usize)]) -> bool {
        use nix::libc::{c_long, user};
        use std::mem::offset_of;
        use std::ptr::without_provenance_mut;
        assert!(words.len() <= MOST_WATCHED);
        let register = |number: usize| without_provenance_mut(offset_of!(user, u_debugreg) + 8 * number);
        let mut control: c_long = 0;
        for (number, &(address, size)) in words.iter().enumerate() {
            let (stores, length) = (0b01, if size == 8 { 0b10 } else { 0b11 });
            control |= 1 << (2 * number) | (length << 2 | stores) << (16 + 4 * number);
            if ptrace::write_user(self.pid, register(number), address.cast_signed() as c_long).is_err() {
                return false;
            }
        }
        ptrace::write_user(self.pid, register(7), control).is_ok()
    }

    /// Has stores to these addresses be stops too, where that is known how to do.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn watch(&self, _: &[(usize, usize)]) -> bool {
        false
    }

    /// Goes on to the next system call, or out of one, or behind a store.
    pub(crate) fn next(&mut self) -> Came {
        self.go_on(ptrace::syscall)
    }

    /// Goes on by one instruction; a system call is one.
    pub(crate) fn step(&mut self) -> Came {
        self.go_on(ptrace::step)
    }

    fn go_on(&mut self, how: impl Fn(Pid, Option<Signal>) -> nix::Result<()>) -> Came {
        if !self.runs {
            self.let_copy_go();
            if how(self.pid, self.signal.take()).is_err() {
                // It was killed by somebody else; what follows tells how far that is.
                self.runs = true;
                return self.came();
            }
            self.runs = true;
        }
        let came = self.came();
        if came == Came::Stopped && self.signal.is_some() {
            // Not a step of its own.
            return self.go_on(how);
        }
        came
    }

    fn came(&mut self) -> Came {
        loop {
            for _ in 0..LOOKS {
                match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
                    Ok(WaitStatus::StillAlive) => thread::yield_now(),
                    Ok(WaitStatus::Stopped(_, signal)) => {
                        self.runs = false;
                        self.signal = Some(signal).filter(|&signal| signal != Signal::SIGTRAP);
                        return Came::Stopped;
                    }
                    Ok(WaitStatus::PtraceSyscall(_)) => {
                        self.runs = false;
                        return Came::Stopped;
                    }
                    Ok(WaitStatus::PtraceEvent(_, _, event)) => {
                        self.runs = false;
                        if event == Event::PTRACE_EVENT_FORK as i32 {
                            let copy = ptrace::getevent(self.pid).ok().and_then(|copy| i32::try_from(copy).ok());
                            self.copy = copy.map(Pid::from_raw);
                        }
                        return Came::Stopped;
                    }
                    Ok(_) | Err(_) => {
                        self.gone = true;
                        return Came::Gone;
                    }
                }
            }
            if sleeps(self.pid) {
                return Came::Asleep;
            }
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.let_copy_go();
        if !self.gone {
            let _ = nix::sys::signal::kill(self.pid, Signal::SIGKILL);
            if self.is_copy {
                // Its parent is told only then.
                let _ = waitpid(self.pid, Some(WaitPidFlag::__WALL));
            }
        }
    }
}

/// Whether a process waits for others.
pub(crate) fn sleeps(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
