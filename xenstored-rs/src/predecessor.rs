//! Another daemon that runs: does it serve, or is it about to end, and does it leave its place?

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use xenstore_wire::{HEADER_SIZE, Header, Op, PAYLOAD_MAX, put_message};

use crate::clock;
use crate::live_update::HAND_OVER;
use crate::pid_file::{self, PidFileError};

/// How long a daemon that does not answer may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for an answer of a daemon that is busy.
const ANSWER: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits while a daemon that holds the pid file ends: a restart starts the new one before the old one is gone.
///
/// # Errors
/// [`PidFileError::AlreadyRunning`] for one that serves its socket, or that does not end; others as
/// [`pid_file::probe`].
pub(crate) fn await_end(pid_file: &Path, socket: &Path) -> Result<(), PidFileError> {
    let began = Instant::now();
    loop {
        match pid_file::probe(pid_file) {
            Err(PidFileError::AlreadyRunning { pid, .. })
                if began.elapsed() < PATIENCE && !answers(socket, pid.and_then(Pid::from_raw)) =>
            {
                sleep(PAUSE);
            }
            probed => return probed,
        }
    }
}

/// Whether a request is answered at the socket while that process lives. Where it has just died, its keeper has the socket
/// still, and nobody would answer.
fn answers(socket: &Path, process: Option<Pid>) -> bool {
    let Ok(stream) = say(socket, Op::GetDomainPath, b"0\0") else { return false };
    if let Some(process) = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        let mut waiting = [PollFd::new(&stream, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
        let polled = poll(&mut waiting, Timespec::try_from(ANSWER).ok().as_ref());
        if polled.is_ok() && waiting[0].revents().is_empty() {
            return false;
        }
    }
    hear(stream).is_ok()
}

/// Asks something; returns the reply and its payload.
fn ask(socket: &Path, op: Op, payload: &[u8]) -> io::Result<(Header, Vec<u8>)> {
    hear(say(socket, op, payload)?)
}

fn say(socket: &Path, op: Op, payload: &[u8]) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut request = Vec::new();
    put_message(&mut request, op.number(), 0, 0, payload);
    stream.write_all(&request)?;
    Ok(stream)
}

fn hear(mut stream: UnixStream) -> io::Result<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header)?;
    let header = Header::decode(&header);
    let mut payload = vec![0; usize::try_from(header.len).unwrap_or(usize::MAX).min(PAYLOAD_MAX)];
    stream.read_exact(&mut payload)?;
    Ok((header, payload))
}

/// Why another daemon keeps its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// It is no daemon of this kind.
    #[error(
        "another xenstored serves {socket}, which is taken over with: xenstore-control live-update {program}",
        program = std::env::current_exe().unwrap_or_default().display()
    )]
    Foreign {
        /// Its socket.
        socket: String,
    },
    /// It says why.
    #[error("the daemon that runs does not leave its place: {0}")]
    Refused(String),
    /// It said that it ends, and does not.
    #[error("the daemon that runs does not end")]
    Lingers(#[source] io::Error),
}

/// Has a daemon of this kind that serves at `socket` leave its place, with all that it holds in its keeper's hands, and
/// waits for its end. Tells whether there was one.
///
/// # Errors
/// If it does not, or is of another kind; it goes on then.
pub(crate) fn replace(socket: &Path) -> Result<bool, ReplaceError> {
    let until = (clock::now() + ANSWER).as_millis().to_string();
    let words = [b"live-update\0", HAND_OVER, b"\0", until.as_bytes(), b"\0"].concat();
    // Nobody, or one that is about to end.
    let Ok((header, payload)) = ask(socket, Op::Control, &words) else { return Ok(false) };
    if header.op != Op::Control.number() {
        return Err(ReplaceError::Foreign { socket: socket.display().to_string() });
    }
    let said = String::from_utf8_lossy(&payload).trim_end_matches('\0').to_owned();
    let Some(pid) = said.parse().ok().and_then(Pid::from_raw) else { return Err(ReplaceError::Refused(said)) };
    await_death(pid).map_err(ReplaceError::Lingers)?;
    Ok(true)
}

fn await_death(pid: Pid) -> io::Result<()> {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Timespec::try_from(PATIENCE).ok().as_ref())? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
