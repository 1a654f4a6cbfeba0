//! Unix sockets that carry guests' rings, so that any client can speak as a guest. One client for each life of a guest.

use crate::guest::Guest;
use crate::hypervisor::Access;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a bridge waits for bytes before it looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(500);

/// How long the daemon may leave a ring full.
const PATIENCE: Duration = Duration::from_secs(600);

/// Listens at `path` for a client of domain `domid`.
pub(crate) fn offer(access: &Arc<Access>, domid: u16, path: &Path) -> io::Result<()> {
    let guest = Guest::new(access, domid)?;
    let writer = Guest::new(access, domid)?;
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    thread::Builder::new().name(format!("guest {domid}")).spawn(move || {
        if let Ok((stream, _)) = listener.accept()
            && let Ok(second) = stream.try_clone()
        {
            let requests = thread::spawn(move || carry_requests(&second, writer));
            carry_replies(&stream, guest, || !requests.is_finished());
            let _ = requests.join();
        }
    })?;
    Ok(())
}

fn carry_requests(mut stream: &UnixStream, mut guest: Guest) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if guest.send(&bytes[..count], PATIENCE).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn carry_replies(mut stream: &UnixStream, mut guest: Guest, is_used: impl Fn() -> bool) {
    let mut bytes = [0; 1024];
    loop {
        match guest.receive(&mut bytes, LOOK) {
            Ok(count) if stream.write_all(&bytes[..count]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut && is_used() => {}
            _ => break,
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}
