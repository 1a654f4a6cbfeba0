//! A host with a daemon and guests on it, one for each test.

use crate::host::{Guest, GuestClient, Host, Message};
use crate::{Client, Setting, Store, process, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use xen_sim::DomainOptions;
use xenstore_wire::Op;

/// A plain success.
pub const OK: &[u8] = b"OK\0";

/// A host, its daemon, and the directory of both; dropping it ends them.
#[derive(Debug)]
pub struct Scene {
    /// The host.
    pub host: Host,
    daemon: Child,
    dir: TempDir,
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Scene {
    /// The chosen daemon on a host with these domains, introduced, each with a home of its own.
    pub fn with(domids: &[u16]) -> Self {
        Self::with_settings(&[], domids)
    }

    /// [`Self::with`], with settings of the daemon.
    pub fn with_settings(settings: &[Setting], domids: &[u16]) -> Self {
        Self::start(Store::chosen(), settings, &[], domids).with_homes(domids)
    }

    /// Our daemon with these arguments, else as [`Self::with`].
    pub fn with_args(args: &[&str], domids: &[u16]) -> Self {
        Self::start(Store::Ours, &[], args, domids).with_homes(domids)
    }

    /// A daemon on a host with these domains, introduced; the store is as the daemon makes it.
    pub fn of(store: Store, domids: &[u16]) -> Self {
        Self::of_with(store, &[], domids)
    }

    /// [`Self::of`], with settings of the daemon.
    pub fn of_with(store: Store, settings: &[Setting], domids: &[u16]) -> Self {
        Self::start(store, settings, &[], domids)
    }

    /// Our daemon on a host where these domains run already, with their ports in their pages, as those have that no
    /// toolstack made.
    pub fn with_running(domids: &[u16]) -> Self {
        Self::start_after(Store::Ours, &[], &[], &[], |host| {
            for &domid in domids {
                let options = DomainOptions { port_in_page: true, ..DomainOptions::default() };
                host.create_with(domid, &options).expect("a new domain");
            }
        })
    }

    fn with_homes(self, domids: &[u16]) -> Self {
        let mut dom0 = self.dom0();
        domids.iter().for_each(|&domid| make_home(&mut dom0, domid));
        self
    }

    fn start(store: Store, settings: &[Setting], more: &[&str], domids: &[u16]) -> Self {
        Self::start_after(store, settings, more, domids, |_| ())
    }

    fn start_after(
        store: Store,
        settings: &[Setting],
        more: &[&str],
        domids: &[u16],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("xs-guests-").tempdir().expect("a temporary directory");
        let host = Host::start(dir.path()).expect("a host");
        for &domid in domids {
            host.create(domid).expect("a new domain");
        }
        prepare(&host);
        let program = store.program();
        let mut args = store.arguments(dir.path(), settings);
        args.extend(more.iter().map(|&arg| arg.into()));
        let environment = Store::environment(settings);
        let daemon = spawn(&host, dir.path(), &program, &args, &environment);
        let mut scene = Self { host, daemon, dir, program, args, environment };
        scene.await_daemon();
        scene.host.introduce_all(domids).expect("the daemon takes the domains");
        scene
    }

    fn await_daemon(&mut self) {
        wait::until("the daemon serves", || {
            if let Some(status) = self.daemon.try_wait().expect("a child can be waited for") {
                // A keeper that waited for too long has started one itself.
                assert!(!self.keepers().is_empty(), "the daemon ended ({status}) before it served:\n{}", self.log());
            }
            // Its keeper listens too, and does not answer; what is left of the one before breaks off.
            let served = |mut client: Client| client.try_request(Op::Read, 0, b"/\0").is_ok();
            Client::connect(&self.host.socket()).is_ok_and(served)
        });
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }

    /// Kills the daemon also where it is one that the keeper started.
    pub fn kill_whoever_serves(&mut self) {
        self.kill();
        for pid in process::daemons(self.dir.path()) {
            let _ = kill(Pid::from_raw(i32::try_from(pid).expect("a pid fits")), Signal::SIGKILL);
        }
    }

    /// Has the daemon end in order.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        self.daemon.wait().expect("a child can be waited for");
    }

    /// Starts a daemon in place of the one that was killed or stopped, and waits until it serves.
    pub fn start_again(&mut self) {
        self.start_unawaited();
        self.await_daemon();
    }

    /// Gives daemons that are started from now on these arguments too.
    pub fn add_args(&mut self, more: &[&str]) {
        self.args.extend(more.iter().map(|&arg| arg.to_owned()));
    }

    /// Has daemons that are started from now on be ours.
    pub fn become_ours(&mut self) {
        self.program = Store::Ours.program();
        self.args = Store::Ours.arguments(self.dir.path(), &[]);
    }

    /// The daemons of this scene that run, keepers apart.
    #[must_use]
    pub fn daemons(&self) -> Vec<u32> {
        process::daemons(self.dir.path())
    }

    /// Waits until the daemon that was started last has ended.
    ///
    /// # Panics
    /// When it does not.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        wait::until_some("the daemon ends", || self.daemon.try_wait().expect("a child can be waited for"))
    }

    /// Starts a daemon in place of the one that was killed.
    pub fn start_unawaited(&mut self) {
        self.daemon = spawn(&self.host, self.dir.path(), &self.program, &self.args, &self.environment);
    }

    /// The keepers of the daemon.
    #[must_use]
    pub fn keepers(&self) -> Vec<u32> {
        process::keepers(&self.host.dir().join("run"))
    }

    /// A privileged connection over the socket.
    pub fn dom0(&self) -> Client {
        Client::connect(&self.host.socket()).expect("the daemon listens")
    }

    /// A guest's connection, whose ring is carried by a socket. A test takes one of each guest's life.
    pub fn guest(&self, domid: u16) -> Client {
        self.host.offer(domid).expect("the domain exists");
        Client::connect(&self.dir.path().join(format!("guest-{domid}.sock"))).expect("its socket is there")
    }

    /// A guest's kernel, by the bytes and words of its page.
    pub fn ring(&self, domid: u16) -> Guest {
        self.host.guest(domid).expect("the domain exists")
    }

    /// A guest's requests and replies, straight through its ring.
    pub fn ring_client(&self, domid: u16) -> GuestClient {
        GuestClient::new(self.ring(domid))
    }

    /// Creates a domain and introduces it; its home is not made.
    pub fn add(&self, domid: u16) {
        self.host.create(domid).expect("a new domain");
        self.host.introduce(domid).expect("the daemon takes it");
    }

    /// Destroys a domain and waits until the daemon knows.
    pub fn destroy(&self, domid: u16) {
        self.host.destroy(domid).expect("the domain exists");
        let mut dom0 = self.dom0();
        wait::until("the daemon sees the death", || !is_introduced(&mut dom0, domid));
    }

    /// All that the daemon printed.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join("stderr")).map(|text| String::from_utf8_lossy(&text).into()).unwrap_or_default()
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Stops the daemon's process, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a pid fits");
        kill(Pid::from_raw(pid), signal).expect("the daemon runs");
    }

    /// Checks that a stranger is served at once by the process that was started.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.daemon.try_wait().expect("a child can be waited for") {
            panic!("the daemon ended ({status}):\n{}", self.log());
        }
        let mut client = self.dom0();
        client.set_patience(Duration::from_secs(1));
        assert!(client.read("/").is_ok(), "READ / on a fresh connection; the daemon says:\n{}", self.log());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.kill();
        process::end_all_of(self.dir.path());
    }
}

/// Starts a daemon on a host; what it prints is added to what is there.
fn spawn(host: &Host, dir: &Path, program: &Path, args: &[String], environment: &[(String, String)]) -> Child {
    let log = File::options().append(true).create(true).open(dir.join("stderr")).expect("a file in the directory");
    let out = log.try_clone().expect("a second handle of the log");
    let mut command = host.command(program).expect("the library to preload");
    command.envs(environment.iter().cloned());
    command.args(args).stdin(Stdio::null()).stdout(out).stderr(log);
    command.spawn().expect("the daemon starts")
}

/// Makes a domain's home, owned by it.
pub fn make_home(dom0: &mut Client, domid: u16) {
    let home = format!("/local/domain/{domid}");
    dom0.write(&home, b"");
    set_perms(dom0, &home, &[&format!("n{domid}")]);
}

/// Sets permissions that must be accepted.
pub fn set_perms(client: &mut Client, path: &str, entries: &[&str]) {
    assert_eq!(try_set_perms(client, path, entries), Ok(OK.to_vec()), "SET_PERMS {path} {entries:?}");
}

/// Sets permissions.
pub fn try_set_perms(client: &mut Client, path: &str, entries: &[&str]) -> Result<Vec<u8>, String> {
    let payload: String = std::iter::once(&path).chain(entries).map(|part| format!("{part}\0")).collect();
    client.request(Op::SetPerms, payload.as_bytes())
}

/// A node's permissions, as the wire writes them, joined by blanks.
pub fn perms(client: &mut Client, path: &str) -> Result<String, String> {
    let payload = client.request(Op::GetPerms, format!("{path}\0").as_bytes())?;
    Ok(String::from_utf8_lossy(&payload).trim_end_matches('\0').replace('\0', " "))
}

/// Writes a value.
pub fn write(client: &mut Client, path: &str, value: &[u8]) -> Result<Vec<u8>, String> {
    write_in(client, 0, path, value)
}

/// Writes a value in a transaction.
pub fn write_in(client: &mut Client, tx_id: u32, path: &str, value: &[u8]) -> Result<Vec<u8>, String> {
    client.request_in(tx_id, Op::Write, &[path.as_bytes(), b"\0", value].concat())
}

/// A request whose payload is strings.
pub fn ask(client: &mut Client, op: Op, strings: &[&str]) -> Result<Vec<u8>, String> {
    let payload: String = strings.iter().map(|string| format!("{string}\0")).collect();
    client.request(op, payload.as_bytes())
}

/// Sends many requests over a ring, some ahead of their replies, and shows each reply with the number of its request.
///
/// # Panics
/// When a reply does not come.
pub fn pipeline(
    guest: &mut GuestClient,
    requests: impl IntoIterator<Item = (Op, Vec<u8>)>,
    mut reply: impl FnMut(usize, Message),
) {
    /// No more than a daemon takes before the first is answered.
    const AHEAD: usize = 16;
    let mut requests = requests.into_iter();
    let (mut sent, mut answered) = (0, 0);
    loop {
        while sent - answered < AHEAD
            && let Some((op, payload)) = requests.next()
        {
            guest.send(op, 0, &payload).expect("the daemon takes requests");
            sent += 1;
        }
        if answered == sent {
            return;
        }
        reply(answered, guest.reply().expect("a reply to each request"));
        answered += 1;
    }
}

/// A refusal, as the client shows it.
pub fn refused<T>(name: &str) -> Result<T, String> {
    Err(name.into())
}

/// Whether the daemon has a domain introduced.
pub fn is_introduced(dom0: &mut Client, domid: u16) -> bool {
    ask(dom0, Op::IsDomainIntroduced, &[&domid.to_string()]) == Ok(b"T\0".to_vec())
}

/// Nodes that a domain owns, by the daemon's own account.
pub fn nodes_of(dom0: &mut Client, domid: u16) -> u64 {
    let domid = domid.to_string();
    let text = ask(dom0, Op::Control, &["quota", &domid]).expect("the daemon tells a domain's use");
    let text = String::from_utf8_lossy(&text).into_owned();
    // oxenstored says `dom1 quota: 2/1000`, or `not set` for none.
    if let Some((_, quota)) = text.split_once(" quota: ") {
        return quota.split_once('/').map_or(0, |(used, _)| used.parse().expect("a number of nodes"));
    }
    let line = text.lines().find(|line| line.trim_start().starts_with("nodes"));
    let number = line.and_then(|line| line.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number of nodes in {text:?}"))
}
