//! What a toolstack says to the store daemon, over its socket.

use crate::domains::no_domain;
use crate::host::Inner;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use xenstore_wire::{HEADER_SIZE, Header, Op, put_message};

/// How long the daemon may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Introduces domains, one after the other.
pub(crate) fn introduce(inner: &Inner, domids: &[u16]) -> io::Result<()> {
    let mut stream = connect(inner)?;
    for &domid in domids {
        let domain = inner.domain(domid).ok_or_else(|| no_domain(domid))?;
        let payload = format!("{domid}\0{}\0{}\0", domain.gfn, domain.port);
        request(&mut stream, Op::Introduce, domid, payload.as_bytes())?;
    }
    Ok(())
}

/// Asks the daemon for something that it always knows.
pub(crate) fn ask_for_sign_of_life(inner: &Inner) -> io::Result<()> {
    request(&mut connect(inner)?, Op::GetDomainPath, 0, b"0\0")
}

/// Tells the daemon to let go of a domain.
pub(crate) fn release(inner: &Inner, domid: u16) -> io::Result<()> {
    request(&mut connect(inner)?, Op::Release, domid, format!("{domid}\0").as_bytes())
}

/// Tells the daemon that a domain runs again.
pub(crate) fn resume(inner: &Inner, domid: u16) -> io::Result<()> {
    request(&mut connect(inner)?, Op::Resume, domid, format!("{domid}\0").as_bytes())
}

fn connect(inner: &Inner) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(inner.socket())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn request(stream: &mut UnixStream, op: Op, domid: u16, payload: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::new();
    put_message(&mut bytes, op.number(), domid.into(), 0, payload);
    stream.write_all(&bytes)?;
    let mut head = [0; HEADER_SIZE];
    stream.read_exact(&mut head)?;
    let header = Header::decode(&head);
    let mut answer = vec![0; header.len as usize];
    stream.read_exact(&mut answer)?;
    if header.op == op.number() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&answer);
    Err(io::Error::other(format!("{} {domid}: the daemon says {}", op.name(), text.trim_end_matches('\0'))))
}
