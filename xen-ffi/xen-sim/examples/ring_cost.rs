//! What a daemon spends on a request that comes over a ring: one guest asks for a path again and again, spinning for its
//! answers, beside any number of guests that are silent.
//!
//!     cargo run --release -p xen-sim --example ring_cost -- DOMAINS REQUESTS DAEMON [ARGS…]

use std::error::Error;
use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use std::{env, process, thread};
use xen_sim::{GuestClient, Host};
use xenstore_wire::Op;

/// Kills the daemon at the end.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time on a processor so far.
fn cpu(pid: u32) -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(Duration::from_nanos(text.split_whitespace().next().ok_or("no schedstat")?.parse()?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [domains, requests, program, rest @ ..] = args.as_slice() else {
        return Err("usage: ring_cost DOMAINS REQUESTS DAEMON [ARGS…]".into());
    };
    let (domains, requests): (u16, u32) = (domains.parse()?, requests.parse()?);
    let dir = env::temp_dir().join(format!("ring-cost.{}", process::id()));
    let host = Host::start(&dir)?;
    for domid in 1..=domains {
        host.create(domid)?;
    }
    let mut command = host.command(Path::new(program))?;
    let daemon = Daemon(command.args(rest).spawn()?);
    while host.ask_for_sign_of_life().is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    let start = Instant::now();
    host.introduce_all(&(1..=domains).collect::<Vec<_>>())?;
    let introduced = start.elapsed();

    let mut guest = GuestClient::new(host.guest(1)?);
    guest.guest().set_spin(Duration::from_millis(100));
    let mut times = Vec::new();
    let before = cpu(daemon.0.id())?;
    for _ in 0..requests {
        let start = Instant::now();
        guest.request(Op::GetDomainPath, 0, b"1\0")?;
        times.push(start.elapsed());
    }
    let spent = cpu(daemon.0.id())? - before;
    times.sort();
    writeln!(
        stdout(),
        "{domains} domains introduced in {introduced:?}; {:.2} µs of the daemon's a request; median {:?}, p99 {:?}",
        spent.as_secs_f64() * 1e6 / f64::from(requests),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
    )?;
    drop(daemon);
    drop(host);
    fs::remove_dir_all(dir)?;
    Ok(())
}
