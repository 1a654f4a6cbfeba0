//! The broker's loop: who asks for memory and event files, and which of them nobody holds any more.

use crate::host::Inner;
use crate::{bridge, control};
use mio::net::UnixListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::stat::fstat;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use xen_sim_switchboard::{HANDLES, Owner};

pub(crate) const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// Tokens of event files begin here.
const FIRST_FILE: usize = 2;
/// Tokens of the guests' sockets begin here.
const FIRST_GUEST: usize = FIRST_FILE + HANDLES;

/// Room of an event file: each of the 16 384 local ports may stand in it, and some a second time after an unbind.
const EVENT_FILE_SIZE: i32 = 256 * 1024;

/// How long somebody who has connected may take to say what he wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest line that is taken.
const LINE_MAX: u64 = 16 * 1024;

/// The token of a guest's socket.
pub(crate) fn guest_token(domid: u16) -> Token {
    Token(FIRST_GUEST + usize::from(domid))
}

/// Listens at `path`, where a broker that has ended may have left its socket.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("somebody listens at {}", path.display())));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Starts the loop.
pub(crate) fn spawn(inner: Arc<Inner>, poll: Poll, mut listener: UnixListener) -> io::Result<JoinHandle<()>> {
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    thread::Builder::new().name("xen-sim broker".into()).spawn(move || serve(&inner, poll, &listener))
}

fn serve(inner: &Arc<Inner>, mut poll: Poll, listener: &UnixListener) {
    let mut events = Events::with_capacity(256);
    while !inner.is_closing() {
        if let Err(error) = poll.poll(&mut events, None) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "the broker cannot poll: {error}");
        }
        for event in &events {
            match event.token() {
                WAKER => {}
                LISTENER => accept_all(inner, listener),
                Token(token) if token < FIRST_GUEST => {
                    reap_one(inner, Owner::try_from(token - FIRST_FILE).expect("a token of an event file"));
                }
                Token(token) => bridge::accept(inner, u16::try_from(token - FIRST_GUEST).expect("a domain's token")),
            }
        }
    }
}

fn accept_all(inner: &Arc<Inner>, listener: &UnixListener) {
    while let Ok((stream, _)) = listener.accept() {
        let stream = UnixStream::from(std::os::fd::OwnedFd::from(stream));
        let its = Arc::clone(inner);
        // Known before it can have answered anybody.
        let mut callers = inner.callers();
        join(callers.extract_if(.., |caller| caller.is_finished()));
        let caller = thread::Builder::new().name("xen-sim caller".into()).spawn(move || {
            // A caller that goes away or talks nonsense concerns nobody else.
            let _ = answer(&its, &stream);
        });
        // A thread that cannot start drops the connection, and the caller sees that.
        callers.extend(caller);
    }
}

/// Waits for the threads of all callers that were heard so far.
pub(crate) fn join_callers(inner: &Inner) {
    let callers = std::mem::take(&mut *inner.callers());
    join(callers);
}

fn join(callers: impl IntoIterator<Item = JoinHandle<()>>) {
    for caller in callers {
        // One that failed concerned nobody else.
        let _ = caller.join();
    }
}

fn answer(inner: &Arc<Inner>, stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).take(LINE_MAX).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words.as_slice() {
        ["memory"] => send_descriptor(stream, inner.memory.as_fd()),
        ["events"] => open_event_file(inner, stream),
        ["reap"] => {
            reap_all(inner);
            (&*stream).write_all(b"+")
        }
        ["ctl", ref words @ ..] => {
            let answer = match control::act(inner, words) {
                Ok(text) => format!("ok\n{text}"),
                Err(error) => format!("error\n{error}\n"),
            };
            (&*stream).write_all(answer.as_bytes())
        }
        _ => Ok(()),
    }
}

fn send_descriptor(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd.as_raw_fd()];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(b"+")],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}

/// Makes an event file and hands it out.
///
/// It is a pipe of ports. The daemon's descriptor is both ends of it in one open file, as a device's would be: it
/// reads ports from it, and the library in it writes those that came while they were masked. The broker keeps a
/// writing end, by which it also learns that nobody reads any more.
fn open_event_file(inner: &Arc<Inner>, stream: &UnixStream) -> io::Result<()> {
    reap_all(inner);
    let (reader, writer) = io::pipe()?;
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(EVENT_FILE_SIZE))?;
    let both = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", reader.as_raw_fd()))?;
    drop(reader);
    let inode = fstat(&both)?.st_ino;
    let raw = writer.as_raw_fd();
    let owner = inner.add_file(writer)?;
    inner.switchboard().set_file(owner, inode);
    let token = Token(FIRST_FILE + usize::from(owner));
    inner.registry.register(&mut SourceFd(&raw), token, Interest::WRITABLE)?;
    send_descriptor(stream, both.as_fd())
}

/// Lets go of an event file if nobody holds its reading end any more.
fn reap_one(inner: &Inner, owner: Owner) {
    let unread = inner.with_file(owner, |file| {
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    });
    if unread == Some(true) {
        inner.drop_file(owner);
    }
}

fn reap_all(inner: &Inner) {
    for owner in 0..=Owner::MAX {
        reap_one(inner, owner);
    }
}
