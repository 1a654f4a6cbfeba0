//! Thousands of connections, and the end of descriptors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::sync::OnceLock;
use std::time::Duration;
use xenstore_wire::{Op, put_message};
use xenstored_tests::{Backend, Client, ClientError, Daemon, Event, Starter, process, wait};

/// How many connections a test may open: 4000, or as many as the limits of this process leave to tests that run side by
/// side.
fn thousands() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the soft limit can reach the hard one");
        usize::try_from(hard / 3).unwrap_or(usize::MAX).min(4000)
    })
}

fn reads(path: &str, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for req_id in 0..count {
        put_message(&mut bytes, Op::Read.number(), req_id, 0, format!("{path}\0").as_bytes());
    }
    bytes
}

/// Processor time that the daemon spends on one READ, nanoseconds.
fn cost_of_a_read(daemon: &Daemon, client: &mut Client) -> u64 {
    const READS: u64 = 3000;
    let before = process::cpu_ns(daemon.pid());
    for _ in 0..READS {
        assert_eq!(client.read("/t"), Ok(b"v".to_vec()));
    }
    (process::cpu_ns(daemon.pid()) - before) / READS
}

#[test]
fn a_busy_client_costs_no_more_beside_thousands_of_idle_ones() {
    let daemon = Daemon::start(Backend::Ours);
    let mut busy = daemon.connect();
    busy.write("/t", b"v");
    cost_of_a_read(&daemon, &mut busy);
    let alone = cost_of_a_read(&daemon, &mut busy);
    let mut idle: Vec<Client> = (0..thousands()).map(|_| daemon.connect()).collect();
    let last = idle.last_mut().expect("there are idle ones");
    assert_eq!(last.read("/t"), Ok(b"v".to_vec()), "all are accepted");
    let beside = cost_of_a_read(&daemon, &mut busy);
    // A daemon that looks at every descriptor pays a hundred times; the rest is the machine's noise.
    assert!(beside < 4 * alone, "{alone} ns alone, {beside} ns beside {} idle clients", idle.len());
}

#[test]
fn an_idle_connection_holds_next_to_no_memory() {
    let daemon = Daemon::start(Backend::Ours);
    let mut first = daemon.connect();
    first.write("/t", b"v");
    let before = daemon.anonymous_kib();
    let count = thousands();
    let mut clients: Vec<Client> = (0..count).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.read("/t"), Ok(b"v".to_vec()));
    }
    let grown = daemon.anonymous_kib().saturating_sub(before);
    assert!(grown < u64::try_from(count).expect("a count"), "{grown} KiB for {count} connections, over 1 KiB each");
}

#[test]
fn among_a_thousand_watchers_each_hears_of_its_own_node_only() {
    let mut daemon = Daemon::start(Backend::Ours);
    let count = thousands().min(1000);
    let mut writer = daemon.connect();
    let mut watchers: Vec<Client> = (0..count)
        .map(|at| {
            let mut client = daemon.connect();
            client.watch(&format!("/t/{at}"), "own");
            client
        })
        .collect();
    for at in (0..count).rev() {
        writer.write(&format!("/t/{at}/below"), b"v");
    }
    for (at, watcher) in watchers.iter_mut().enumerate() {
        assert_eq!(watcher.settled_events(), [Event::new(&format!("/t/{at}/below"), "own")], "watcher {at}");
        watcher.watch("/t", "all");
    }
    writer.write("/t", b"v");
    for (at, watcher) in watchers.iter_mut().enumerate() {
        let told = watcher.settled_events();
        assert_eq!(told, [Event::new("/t", "all")], "watcher {at}");
    }
    daemon.assert_alive();
}

#[test]
fn thousands_of_unfinished_requests_cost_what_they_hold_and_go_with_their_senders() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut busy = daemon.connect();
    busy.write("/t", b"v");
    let (before, descriptors) = (daemon.anonymous_kib(), daemon.descriptors());
    let count = thousands();
    let mut unfinished = reads(&format!("/{}", "p".repeat(4094)), 1);
    unfinished.pop();
    let clients: Vec<Client> = (0..count)
        .map(|_| {
            let mut client = daemon.connect();
            client.send_raw(&unfinished).expect("half a request fits the socket");
            client
        })
        .collect();
    assert_eq!(busy.read("/t"), Ok(b"v".to_vec()));
    daemon.assert_alive();
    let held = daemon.anonymous_kib().saturating_sub(before);
    let sent = u64::try_from(count * unfinished.len() / 1024).expect("a size");
    assert!(held < 3 * sent, "{held} KiB for {sent} KiB of unfinished requests");
    drop(clients);
    wait::until("the daemon has closed their connections", || daemon.descriptors() <= descriptors);
    assert_eq!(busy.read("/t"), Ok(b"v".to_vec()));
}

/// How many connections have replies that the kernel does not take, as the daemon reports it.
fn with_unsent_output(client: &mut Client) -> usize {
    let report = client.request(Op::Control, b"memreport\0").expect("a report");
    let report = String::from_utf8_lossy(&report).into_owned();
    let line = report.lines().find(|line| line.starts_with("connections "));
    let number = line.and_then(|line| line.split(", ").nth(1)?.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no connections with unsent output in\n{report}"))
}

/// One wave: everybody sends, some far more than can be answered without their reading, nobody reads, all go away.
/// Returns the anonymous memory while all are there and after they are gone, KiB.
fn wave(daemon: &Daemon, count: usize) -> (u64, u64) {
    let descriptors = daemon.descriptors();
    let (few, many) = (reads("/t/short", 20), reads("/t/long", 110));
    let mut clients: Vec<Client> = (0..count)
        .map(|at| {
            let mut client = daemon.connect();
            let pipeline = if at % 16 == 0 { &many } else { &few };
            client.send_raw(pipeline).expect("a pipeline fits the socket");
            client
        })
        .collect();
    // Connections are served in turn, so an answer to the last one means that all had theirs.
    let last = clients.last_mut().expect("a wave has clients");
    assert_eq!(last.reply().expect("a reply").header.req_id, 0);
    let mut newcomer = daemon.connect();
    assert_eq!(newcomer.read("/t/short"), Ok(vec![b's'; 100]), "a newcomer is served");
    wait::until("replies wait for all who asked for too much", || with_unsent_output(&mut newcomer) >= count / 16);
    drop(newcomer);
    let full = daemon.anonymous_kib();
    drop(clients);
    wait::until("the daemon has closed the connections of a wave", || daemon.descriptors() <= descriptors);
    (full, daemon.anonymous_kib())
}

#[test]
fn memory_after_ten_waves_of_clients_that_do_not_read_is_that_after_the_first() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut writer = daemon.connect();
    writer.write("/t/short", &[b's'; 100]);
    writer.write("/t/long", &[b'l'; 4000]);
    let count = thousands();
    let waves: Vec<(u64, u64)> = (0..10).map(|_| wave(&daemon, count)).collect();
    let (first_full, first) = waves[0];
    for (full, after) in &waves {
        assert!(*after <= first + first / 5, "KiB after each wave: {waves:?}");
        assert!(*full <= first_full + first_full / 5, "KiB at the top of each wave: {waves:?}");
    }
    daemon.assert_alive();
}

#[test]
fn the_memory_report_names_the_pool_its_cap_and_where_the_cap_comes_from() {
    let daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    let report = client.request(Op::Control, b"memreport\0").expect("a report");
    let report = String::from_utf8_lossy(&report).into_owned();
    assert!(report.ends_with('\0'), "{report:?}");
    let line = |name: &str| {
        report
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in\n{report}"))
            .to_owned()
    };
    line("pool ");
    let cap = line("pool cap");
    let (bytes, source) = cap.split_once(':').and_then(|(_, rest)| rest.split_once(" bytes, from ")).expect("a cap");
    assert!(bytes.trim().parse::<u64>().is_ok_and(|bytes| bytes > 1 << 20), "{cap}");
    assert!(!source.trim().is_empty() && !source.contains("built-in"), "the host's limits give the cap: {cap}");
    let file = daemon.dir().join("report");
    let payload = format!("memreport\0{}\0", file.display());
    assert_eq!(client.request(Op::Control, payload.as_bytes()), Ok(b"OK\0".to_vec()));
    assert!(std::fs::read_to_string(&file).expect("a file").contains("pool cap"));
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let mut daemon = Starter::new(Backend::Ours).descriptors(64, 600).start();
    let mut clients: Vec<Client> = (0..400).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.read("/"), Ok(Vec::new()));
    }
    daemon.assert_alive();
}

#[test]
fn without_descriptors_new_clients_wait_with_one_log_line_and_old_ones_are_served() {
    let mut daemon = Starter::new(Backend::Ours).descriptors(64, 64).start();
    let mut first = daemon.connect();
    first.write("/t", b"v");
    let lines = daemon.log().lines().count();
    let mut others: Vec<Client> = (0..100).map(|_| daemon.connect()).collect();
    for other in &mut others {
        other.send_raw(&reads("/t", 1)).expect("a request fits the socket");
    }
    wait::until("the daemon says that it is out of descriptors", || daemon.log().lines().count() > lines);
    assert_eq!(first.read("/t"), Ok(b"v".to_vec()));
    let before = first.turns().expect("it counts its turns");
    first.set_patience(Duration::from_millis(700));
    assert_eq!(first.arrival(), Err(ClientError::Timeout));
    let turns = first.turns().expect("it counts its turns") - before;
    assert!(turns < 30, "{turns} turns for clients that wait");
    assert_eq!(daemon.log().lines().count(), lines + 1, "{}", daemon.log());
    let mut served = 0;
    // Each one that is served and leaves makes room for one that waits.
    for mut other in others {
        assert_eq!(other.reply().map(|reply| reply.payload), Ok(b"v".to_vec()), "client {served}");
        served += 1;
    }
    assert_eq!(served, 100);
    first.set_patience(wait::PATIENCE);
    assert_eq!(first.read("/t"), Ok(b"v".to_vec()));
    daemon.assert_alive();
}

#[test]
fn a_burst_of_connections_is_accepted_whole() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    use std::os::fd::AsRawFd;
    let mut daemon = Daemon::start(Backend::Ours);
    let address = UnixAddr::new(&daemon.socket()).expect("a path that fits");
    // Stopped, the daemon accepts nothing: all must fit into what waits to be accepted.
    daemon.signal(Signal::SIGSTOP);
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let sockets: Vec<_> = (0..128)
        .map(|at| {
            let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket");
            let connected = connect(fd.as_raw_fd(), &address);
            (at, fd, connected)
        })
        .collect();
    daemon.signal(Signal::SIGCONT);
    for (at, _, connected) in &sockets {
        assert_eq!(*connected, Ok(()), "connection {at}");
    }
    daemon.assert_alive();
}
