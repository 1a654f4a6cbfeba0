//! A server that is stopped before every single instruction.
//!
//! A process that is killed has executed some number of instructions, and its system calls either wholly or not at all.
//! So what must hold after a death at any moment can be seen without one: at each step the files must tell exactly what
//! the sockets know.

use std::{
    env, fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    process::Command,
};

use nix::{
    sys::{
        ptrace,
        signal::{Signal, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};
use xenstore_journal::{Directory, Received};

use crate::{
    client::Client,
    kills::{in_memory, waiting},
    streams::{SENT, Streams, TAKEN, look, recover, rotate, take_back},
};

/// Bytes of a log's header and of the first entries of its table of positions.
const WATCHED: usize = 8192;

/// The server: a few turns of each sort, stepped through from the first stop to the second.
pub(crate) fn script(path: &str) {
    let directory = Directory::open(Path::new(path)).unwrap().with_capacity(1 << 20);
    let (mut streams, mut log) = recover(&directory);
    let (input, output) = (io::stdin(), io::stdout());
    let sockets = [input.as_fd(), output.as_fd()];
    ptrace::traceme().unwrap();
    raise(Signal::SIGSTOP).unwrap();
    for turn in 0..6 {
        let mark = log.mark();
        let was_idle = streams.iter().all(|stream| stream.waiting.is_empty());
        for (client, stream) in streams.iter_mut().enumerate() {
            let conn = u32::try_from(client).unwrap();
            let taken = log.receive(sockets[client], TAKEN, conn, 1, &stream.taken.to_le_bytes(), 20 + turn);
            let Ok(Received::Bytes { span, .. }) = taken else { panic!("{taken:?}") };
            log.bytes(span.skip(8)).iter().for_each(|byte| stream.take(*byte));
            // Whole turns, and turns that leave something to the next.
            let some = if turn % 3 == 2 { stream.waiting.len() / 2 } else { stream.waiting.len() };
            let sent = log.send(sockets[client], SENT, conn, 2, &stream.waiting[..some]).unwrap();
            stream.waiting.drain(..sent);
        }
        if was_idle && streams.iter().all(|stream| stream.waiting.is_empty()) {
            take_back(&mut log, &streams, mark);
        }
        if turn == 3 {
            log = rotate(&directory, &log, &streams);
        }
    }
    raise(Signal::SIGSTOP).unwrap();
}

pub(crate) fn test() {
    let dir = tempfile::tempdir_in(in_memory()).unwrap();
    let journal = dir.path().join("journal");
    let mut clients = [0, 1].map(Client::new);
    clients.iter_mut().for_each(|client| client.write(1000));
    let [input, output] = clients.each_ref().map(|client| OwnedFd::from(client.far.try_clone().unwrap()));
    let mut server = Command::new(env::current_exe().unwrap())
        .arg("role:steps")
        .arg(&journal)
        .stdin(input)
        .stdout(output)
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(server.id().try_into().unwrap());
    assert_eq!(waitpid(pid, None).unwrap(), WaitStatus::Stopped(pid, Signal::SIGSTOP));

    let directory = Directory::open(&journal).unwrap();
    let account = || clients.each_ref().map(|client| (client.written - waiting(&client.far), waiting(&client.near)));
    let (mut seen, mut steps, mut states, mut notes) = (None, 0_u64, 0, 0);
    loop {
        let now = (account(), changes(&journal));
        if seen.as_ref() != Some(&now) {
            let (streams, note) = look(&directory).unwrap();
            assert_eq!(told(&streams), now.0, "taken and sent, after {steps} instructions");
            states += 1;
            notes += usize::from(note.is_some());
            seen = Some(now);
        }
        ptrace::step(pid, None).unwrap();
        match waitpid(pid, None).unwrap() {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => steps += 1,
            WaitStatus::Stopped(_, Signal::SIGSTOP) => break,
            other => panic!("{other:?} after {steps} instructions"),
        }
    }
    println!("{steps} instructions, {states} states, {notes} of them with a call to settle");
    assert!(notes >= 20, "the calls were not met");
    server.kill().unwrap();
    server.wait().unwrap();
}

fn told(streams: &Streams) -> [(u64, u64); 2] {
    streams.each_ref().map(|stream| (stream.taken, stream.sent()))
}

/// All that decides about what is read from the files: their names, and the changing part of the newest log.
fn changes(journal: &Path) -> (Vec<String>, Vec<u8>) {
    let mut names: Vec<String> =
        fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut watched = vec![0; WATCHED];
    let newest = names.iter().rfind(|name| name.starts_with("log.") && !name.ends_with("new")).unwrap();
    fs::File::open(journal.join(newest)).unwrap().read_exact_at(&mut watched, 0).unwrap();
    (names, watched)
}
