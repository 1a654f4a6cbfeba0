//! Another daemon that holds the pid file: does it serve, or is it about to end?

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use xenstore_wire::{HEADER_SIZE, Op, put_message};

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
            Err(PidFileError::AlreadyRunning { .. }) if began.elapsed() < PATIENCE && !answers(socket) => sleep(PAUSE),
            probed => return probed,
        }
    }
}

/// Whether a request is answered at the socket.
fn answers(socket: &Path) -> bool {
    ask(socket).is_ok()
}

fn ask(socket: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut request = Vec::new();
    put_message(&mut request, Op::GetDomainPath.number(), 0, 0, b"0\0");
    stream.write_all(&request)?;
    stream.read_exact(&mut [0; HEADER_SIZE])
}
