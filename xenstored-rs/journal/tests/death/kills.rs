//! Servers that are killed at random moments.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, Command},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xenstore_journal::{Directory, Note};

use crate::{
    client::{Client, Random},
    server::CHUNK,
    streams::{CLIENTS, look},
};

/// Servers that are killed at least.
const KILLS: usize = 500;
/// How many of them must have died with a call to settle, of each sort.
const SETTLED: usize = 10;
/// Servers that are killed at most to get there.
const MOST_KILLS: usize = 10 * KILLS;

/// How a server is loaded.
#[derive(Clone, Copy)]
enum Load {
    /// Few bytes under way: turns are answered at once, and taken back.
    Calm,
    /// As many as the sockets hold.
    Flood,
}

pub(crate) fn test() {
    let seed = RandomState::new().hash_one(0) | 1;
    println!("randomness starts at {seed}");
    let mut random = Random(seed);
    let dir = tempfile::tempdir_in(in_memory()).unwrap();
    let journal = dir.path().join("journal");
    let mut clients = [0, 1].map(Client::new);
    let (mut kills, mut received, mut sent) = (0, 0, 0);
    while kills < KILLS || received < SETTLED || sent < SETTLED {
        assert!(kills < MOST_KILLS, "of {kills} deaths, {received} met a receiving and {sent} a sending to settle");
        kills += 1;
        let load = if random.up_to(2) == 1 { Load::Calm } else { Load::Flood };
        // Some die before they have served, some with several logs behind them, some with one of several steps.
        let life = random.up_to(60_000) - 1;
        let capacity = if random.up_to(3) == 1 { 3 << 20 } else { 10 * CHUNK + random.up_to(100_000) };
        let mut server = start(&journal, &clients, capacity, random.up_to(usize::MAX));
        drive(&mut clients, load, life, &mut random);
        server.kill().unwrap();
        let status = server.wait().unwrap();
        assert_eq!(status.code(), None, "the server ended by itself: {status}");

        // What the next server must come to, by the sockets' own account.
        let directory = Directory::open(&journal).unwrap();
        let Some((streams, note)) = look(&directory) else { continue };
        for (stream, client) in streams.iter().zip(&clients) {
            assert_eq!(stream.taken, client.written - waiting(&client.far), "taken");
            assert_eq!(stream.sent(), client.answered + waiting(&client.near), "sent");
        }
        match note {
            Some(Note::Received { .. }) => received += 1,
            Some(Note::Sent { .. }) => sent += 1,
            None => {}
        }
    }
    println!("{kills} deaths, of which {received} met a receiving and {sent} a sending to settle");

    // One that lives answers all that is left.
    let mut server = start(&journal, &clients, 1 << 20, 1);
    while clients.iter().any(|client| client.answered < client.written) {
        wait(&clients, PollFlags::POLLIN);
        for client in &mut clients {
            client.read(1 << 16);
        }
    }
    let totals = clients.each_ref().map(|client| client.written);
    println!("bytes through the two streams: {totals:?}");
    for client in clients {
        drop(client.near);
    }
    assert!(server.wait().unwrap().success());
    let (streams, note) = look(&Directory::open(&journal).unwrap()).unwrap();
    assert_eq!(streams.map(|stream| (stream.taken, stream.sent())), totals.map(|total| (total, total)));
    assert_eq!(note, None);
}

/// Where files are in memory, if there is such a place: as in life, and it is faster.
pub(crate) fn in_memory() -> std::path::PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.into() } else { env::temp_dir() }
}

fn start(journal: &Path, clients: &[Client; CLIENTS], capacity: usize, seed: usize) -> Child {
    let [input, output] = clients.each_ref().map(|client| OwnedFd::from(client.far.try_clone().unwrap()));
    Command::new(env::current_exe().unwrap())
        .arg("role:server")
        .arg(journal)
        .args([capacity.to_string(), seed.to_string()])
        .stdin(input)
        .stdout(output)
        .spawn()
        .unwrap()
}

/// Loads a server until that many bytes have been answered.
fn drive(clients: &mut [Client; CLIENTS], load: Load, life: usize, random: &mut Random) {
    let life = match load {
        Load::Calm => life / 20,
        Load::Flood => life,
    };
    let mut answered = 0;
    while answered < life {
        let mut moved = false;
        for client in clients.iter_mut() {
            let most = match load {
                Load::Calm if client.answered < client.written => 0,
                Load::Calm => random.up_to(500),
                Load::Flood => random.up_to(4000),
            };
            let before = client.written;
            if most > 0 {
                client.write(most);
            }
            let count = client.read(random.up_to(20_000));
            moved |= count > 0 || client.written > before;
            answered += count;
        }
        if !moved {
            wait(clients, PollFlags::POLLIN);
        }
    }
}

fn wait(clients: &[Client; CLIENTS], flags: PollFlags) {
    let mut polled = clients.each_ref().map(|client| PollFd::new(client.near.as_fd(), flags));
    let ready = poll(&mut polled, PollTimeout::from(20_000_u16)).unwrap();
    assert!(ready > 0, "no answer within 20 seconds");
}

/// Bytes that are there to be read.
pub(crate) fn waiting(socket: &UnixStream) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap()
}
