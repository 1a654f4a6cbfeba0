//! What the journal costs: nanoseconds of each thing a server does with it, beside the plain system call.
//!
//!     cargo run --release -p xenstore-journal --example cost
//!
//! Each figure is the least of many batches, since what disturbs a measurement only ever adds to it. With a name and a
//! count, that thing alone is done so often, for a tool that counts instructions:
//!
//!     valgrind --tool=callgrind --toggle-collect='*append_batch*' target/release/examples/cost append 1000

use std::{
    env,
    error::Error,
    hint::black_box,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    time::Instant,
};

use xenstore_journal::{Directory, Log, Received};

/// Operations of a batch: few enough that a socket holds as many messages.
const BATCH: u32 = 100;
/// Batches, of which the fastest counts.
const BATCHES: u32 = 2000;
/// Bytes of a message.
const LEN: usize = 64;

type Failure = Box<dyn Error>;

struct Bench {
    log: Log,
    near: UnixStream,
    far: UnixStream,
}

/// What is measured: what makes it ready, and a batch of it.
type Case = (&'static str, fn(&mut Bench) -> Result<(), Failure>, fn(&mut Bench, u32) -> Result<(), Failure>);

const CASES: [Case; 8] = [
    ("append", nothing, append_batch),
    ("append of 4096", nothing, append_long_batch),
    ("read", fill, read_batch),
    ("read and append", fill, read_append_batch),
    ("receive", fill, receive_batch),
    ("write", drain, write_batch),
    ("send", drain, send_batch),
    ("position and rewind", nothing, rewind_batch),
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let place = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm").into() } else { env::temp_dir() };
    let dir = tempfile::tempdir_in(place)?;
    let directory = Directory::open(&dir.path().join("journal"))?;
    let (near, far) = UnixStream::pair()?;
    let mut bench = Bench { log: Log::first(&directory, "cost")?, near, far };
    let mut out = io::stdout();
    if let [name, count] = arguments.as_slice() {
        let (_, ready, batch) = CASES.iter().find(|(case, ..)| case == name).ok_or("no such case")?;
        ready(&mut bench)?;
        return batch(&mut bench, count.parse()?);
    }
    for (name, ready, batch) in CASES {
        let mut least = f64::MAX;
        for _ in 0..BATCHES {
            ready(&mut bench)?;
            let start = bench.log.start();
            bench.log.rewind(start);
            let start = Instant::now();
            batch(&mut bench, BATCH)?;
            least = least.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
        }
        drain(&mut bench)?;
        writeln!(out, "{name:<20} {least:8.1} ns")?;
    }
    Ok(())
}

fn nothing(_: &mut Bench) -> Result<(), Failure> {
    Ok(())
}

/// Messages for a batch.
fn fill(bench: &mut Bench) -> Result<(), Failure> {
    for _ in 0..BATCH {
        bench.near.write_all(&[1; LEN])?;
    }
    Ok(())
}

/// Empties both ends.
fn drain(bench: &mut Bench) -> Result<(), Failure> {
    let mut bytes = [0; 1 << 16];
    for end in [&mut bench.near, &mut bench.far] {
        end.set_nonblocking(true)?;
        while end.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
    Ok(())
}

#[inline(never)]
fn append_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    for time in 0..count {
        bench.log.append(1, 2, time.into(), &[black_box(&[3; LEN])])?;
    }
    Ok(())
}

#[inline(never)]
fn append_long_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    let payload = [3; 4096];
    for time in 0..count {
        bench.log.append(1, 2, time.into(), &[black_box(&payload)])?;
    }
    Ok(())
}

#[inline(never)]
fn read_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    let mut bytes = [0; LEN];
    for _ in 0..count {
        bench.far.read_exact(&mut bytes)?;
        black_box(&bytes);
    }
    Ok(())
}

#[inline(never)]
fn read_append_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    let mut bytes = [0; LEN];
    for time in 0..count {
        bench.far.read_exact(&mut bytes)?;
        bench.log.append(1, 2, time.into(), &[&bytes])?;
    }
    Ok(())
}

#[inline(never)]
fn receive_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    for time in 0..count {
        let Received::Bytes { span, .. } = bench.log.receive(bench.far.as_fd(), 1, 2, time.into(), &[], LEN)? else {
            return Err("the end".into());
        };
        black_box(bench.log.bytes(span));
    }
    Ok(())
}

#[inline(never)]
fn write_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        bench.far.write_all(black_box(&[3; LEN]))?;
    }
    Ok(())
}

#[inline(never)]
fn send_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    for time in 0..count {
        bench.log.send(bench.far.as_fd(), 1, 2, time.into(), black_box(&[3; LEN]))?;
    }
    Ok(())
}

/// What a turn of reads ends with.
#[inline(never)]
fn rewind_batch(bench: &mut Bench, count: u32) -> Result<(), Failure> {
    for value in 0..count {
        let mark = bench.log.mark();
        bench.log.append(1, 2, 3, &[])?;
        bench.log.set_position(7, value.into(), mark)?;
        bench.log.rewind(mark);
    }
    Ok(())
}
