//! Creates many domains that talk, as a toolstack does, and says how long that took: `crowd COUNT DAEMON [ARGS…]`.
//!
//! It runs in domain 0 of a machine that `make xen ARGS=crowd` starts. One line for each count and daemon:
//! milliseconds a domain for the hypervisor's part and the store's part, and until every guest has said hello.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use xen_rig::Host;
use xenstore_wire::Op;
use xenstored_tests::{Client, process, wait};

/// How long all guests may take to say hello.
const PATIENCE: Duration = Duration::from_secs(300);

/// Ends the daemon with the program.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The nodes that a guest finds, with their owners' rights: as a toolstack makes them, in a transaction.
fn furnish(client: &mut Client, domid: u16) -> Result<(), Box<dyn Error>> {
    let tx = client.start_transaction();
    let home = format!("/local/domain/{domid}");
    let nodes = [
        ("", String::new(), false),
        ("/name", format!("guest-{domid}"), false),
        ("/domid", domid.to_string(), false),
        ("/data", String::new(), true),
        ("/control", String::new(), false),
        ("/control/shutdown", String::new(), true),
    ];
    for (node, value, own) in nodes {
        client.request_in(tx, Op::Write, format!("{home}{node}\0{value}").as_bytes())?;
        let permissions = if own { format!("n{domid}\0") } else { format!("n0\0r{domid}\0") };
        client.request_in(tx, Op::SetPerms, format!("{home}{node}\0{permissions}").as_bytes())?;
    }
    client.commit(tx)?;
    Ok(())
}

/// Creates a guest as a toolstack does; gives how long the hypervisor's part and the store's part took.
fn bear(host: &Host, client: &mut Client, domid: u16) -> Result<(Duration, Duration), Box<dyn Error>> {
    let started = Instant::now();
    let domain = host.create_talking(domid)?;
    let built = Instant::now();
    furnish(client, domid)?;
    let payload = format!("{domid}\0{}\0{}\0", domain.gfn, domain.port);
    client.request(Op::Introduce, payload.as_bytes())?;
    host.let_run(domid)?;
    Ok((built - started, built.elapsed()))
}

/// Waits until so many guests have said hello.
fn await_hellos(watcher: &mut Client, mut silent: u16) -> Result<(), Box<dyn Error>> {
    while silent > 0 {
        if is_hello(&watcher.event()?.path) {
            silent -= 1;
        }
    }
    Ok(())
}

/// Whether an event is of a guest's hello.
fn is_hello(path: &str) -> bool {
    path.ends_with("/data/hello")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u16 = arguments.next().ok_or("how many?")?.parse()?;
    let program = arguments.next().ok_or("which daemon?")?;
    let dir = tempfile::tempdir()?;
    let host = Host::start(dir.path())?;
    let mut command = host.command(Path::new(&program))?;
    command.args(["-N", "--pid-file"]).arg(dir.path().join("pid")).args(arguments);
    let daemon = Daemon(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let pid = daemon.0.id();
    wait::until("the daemon listens", || Client::connect(&host.socket()).is_ok());
    let (mut client, mut watcher) = (Client::connect(&host.socket())?, Client::connect(&host.socket())?);
    watcher.watch("/local/domain", "crowd");
    watcher.set_patience(PATIENCE);

    let cpu_at_start = process::cpu_ns(pid);

    // The first page that is mapped at all costs the kernel of domain 0 as much as a hundred guests.
    bear(&host, &mut client, 1)?;
    await_hellos(&mut watcher, 1)?;
    host.destroy(1)?;
    let gone = |client: &mut Client, domid: u16| {
        client.request(Op::IsDomainIntroduced, format!("{domid}\0").as_bytes()) == Ok(b"F\0".to_vec())
    };
    wait::until("the first is gone", || gone(&mut client, 1));

    let cpu_before = process::cpu_ns(pid);
    let begun = Instant::now();
    let (mut building, mut telling) = (Duration::ZERO, Duration::ZERO);
    for domid in 1..=count {
        let (built, told) = bear(&host, &mut client, domid)?;
        building += built;
        telling += told;
    }
    let created = begun.elapsed();
    await_hellos(&mut watcher, count)?;
    let talking = begun.elapsed();
    let cpu = Duration::from_nanos(process::cpu_ns(pid) - cpu_before);
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(count);
    writeln!(
        std::io::stdout(),
        "{count} guests on {program}: created in {:.1} s ({:.1} ms each to build, {:.1} ms in the store), all talk after \
         {:.1} s; {:.0} ms of the daemon's time beside {:.0} ms of its start, {} KiB of its memory",
        created.as_secs_f64(),
        each(building),
        each(telling),
        talking.as_secs_f64(),
        cpu.as_secs_f64() * 1e3,
        Duration::from_nanos(cpu_at_start).as_secs_f64() * 1e3,
        process::anonymous_kib(pid),
    )?;
    let cpu_before = process::cpu_ns(pid);
    let begun = Instant::now();
    for domid in 1..=count {
        host.destroy(domid)?;
    }
    wait::until("the daemon knows that all are gone", || gone(&mut client, count));
    let cpu = Duration::from_nanos(process::cpu_ns(pid) - cpu_before);
    writeln!(
        std::io::stdout(),
        "{count} guests on {program}: destroyed in {:.1} s, {:.0} ms of the daemon's time",
        begun.elapsed().as_secs_f64(),
        cpu.as_secs_f64() * 1e3,
    )?;
    Ok(())
}
