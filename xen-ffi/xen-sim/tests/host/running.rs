//! A host with a daemon on it, and what tests say to that daemon.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use xen_sim::{GuestClient, Host};
use xenstore_wire::{HEADER_SIZE, Header, Op, put_message};

/// How long anything that must come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const XEN_BIN: &str = "/usr/lib/xen-4.17/bin";

/// The daemons that are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Debian's C xenstored 4.17.
    C,
    /// Debian's oxenstored 4.17.
    O,
}

impl Peer {
    pub(crate) fn program(self) -> PathBuf {
        Path::new(XEN_BIN).join(match self {
            Self::C => "xenstored",
            Self::O => "oxenstored",
        })
    }

    /// Its arguments on a host in `dir`; writes the files that they name.
    pub(crate) fn args(self, dir: &Path) -> Vec<String> {
        match self {
            Self::C => vec!["-N".into(), "--pid-file".into(), dir.join("pid").display().to_string()],
            Self::O => {
                let config = dir.join("oxenstored.conf");
                let text = "pid-file = /run/xenstored/pid\n\
                            xenstored-kva = /proc/xen/xsd_kva\nxenstored-port = /proc/xen/xsd_port\n";
                fs::write(&config, text).expect("a file in the host's directory");
                ["--no-fork", "--no-access-log", "--config-file"]
                    .map(String::from)
                    .into_iter()
                    .chain([config.display().to_string()])
                    .collect()
            }
        }
    }
}

/// Looks again and again until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A host and a daemon on it; both end when this is dropped.
pub(crate) struct Running {
    pub(crate) host: Host,
    pub(crate) daemon: Child,
    pub(crate) dir: TempDir,
}

impl Running {
    /// Starts `peer` on a host with domains 1 to `domains`, introduced.
    pub(crate) fn start(peer: Peer, domains: u16) -> Self {
        let dir = tempfile::Builder::new().prefix("xen-sim-").tempdir().expect("a temporary directory");
        let host = Host::start(dir.path()).expect("a host");
        let domids: Vec<u16> = (1..=domains).collect();
        for &domid in &domids {
            host.create(domid).expect("a new domain");
        }
        let daemon = spawn(&host, &peer.program(), &peer.args(dir.path()));
        let running = Self { host, daemon, dir };
        running.host.introduce_all(&domids).expect("the daemon takes the domains");
        running
    }

    /// Kills the daemon and starts `peer` in its place.
    pub(crate) fn replace(&mut self, peer: Peer) {
        self.daemon.kill().expect("the daemon runs");
        self.daemon.wait().expect("it can be waited for");
        fs::remove_file(self.host.socket()).expect("it had a socket");
        self.daemon = spawn(&self.host, &peer.program(), &peer.args(self.dir.path()));
    }

    pub(crate) fn guest(&self, domid: u16) -> GuestClient {
        GuestClient::new(self.host.guest(domid).expect("a domain"))
    }

    /// Has a guest ask for something that every guest may know.
    pub(crate) fn assert_served(&self, domid: u16) {
        let reply = self.guest(domid).request(Op::GetDomainPath, 0, b"5\0");
        assert_eq!(reply.expect("a reply").payload, b"/local/domain/5\0", "domain {domid}");
    }

    /// Whether the daemon knows the domain.
    pub(crate) fn is_introduced(&self, domid: u16) -> bool {
        let payload = format!("{domid}\0");
        self.client().request(Op::IsDomainIntroduced, payload.as_bytes()).1 == b"T\0"
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.host.socket())
    }

    pub(crate) fn tool(&self, name: &str, args: &[&str]) -> String {
        let output = Command::new(name)
            .args(args)
            .env("PATH", format!("{XEN_BIN}:/usr/bin:/bin"))
            .env("XENSTORED_PATH", self.host.socket())
            .output()
            .expect("the tool starts");
        assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts a daemon and waits until it answers.
pub(crate) fn spawn(host: &Host, program: &Path, args: &[String]) -> Child {
    let mut command = host.command(program).expect("the library to preload is there");
    let mut daemon = command.args(args).stdin(Stdio::null()).spawn().expect("the daemon starts");
    until("the daemon answers", || {
        let ended = daemon.try_wait().expect("it can be waited for");
        assert_eq!(ended, None, "the daemon ended");
        host.ask_for_sign_of_life().is_ok()
    });
    daemon
}

/// A connection over a unix socket: the daemon's own, or a guest's.
pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
        Self(stream)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the other side reads");
    }

    /// The next message, of any kind.
    pub(crate) fn message(&mut self) -> (Header, Vec<u8>) {
        let mut head = [0; HEADER_SIZE];
        self.0.read_exact(&mut head).expect("a message in time");
        let header = Header::decode(&head);
        let mut payload = vec![0; header.len as usize];
        self.0.read_exact(&mut payload).expect("the rest of it");
        (header, payload)
    }

    /// Sends a request and gives what comes next.
    pub(crate) fn request(&mut self, op: Op, payload: &[u8]) -> (Op, Vec<u8>) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op.number(), 1, 0, payload);
        self.write(&bytes);
        let (header, payload) = self.message();
        (Op::from_number(header.op).expect("a known type"), payload)
    }

    /// Asks for something that every guest may know.
    pub(crate) fn assert_served(&mut self) {
        let answer = self.request(Op::GetDomainPath, b"5\0");
        assert_eq!(answer, (Op::GetDomainPath, b"/local/domain/5\0".to_vec()));
    }

    /// The path of the next watch event.
    pub(crate) fn event(&mut self) -> String {
        let (header, payload) = self.message();
        assert_eq!(header.op, Op::WatchEvent.number(), "{:?}", String::from_utf8_lossy(&payload));
        let path = payload.split(|&byte| byte == 0).next().expect("there is a first part");
        String::from_utf8_lossy(path).into_owned()
    }
}
