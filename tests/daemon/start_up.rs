//! Command line, run directory, pid file and readiness.

use rstest::rstest;
use std::fs::{self, Permissions};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use xenstored_tests::{Backend, Client, Daemon, Starter, process, wait};

/// The command that starts our daemon in `dir`.
fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = args.iter().fold(Starter::new(Backend::Ours), |starter, arg| starter.arg(arg)).command(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs our daemon in `dir` until it ends by itself.
fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().expect("our daemon starts")
}

/// A daemon in the foreground, ended with the test.
struct Started(Child);

impl Started {
    fn new(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("our daemon starts"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon that left its launcher, ended by its pid.
struct Forked {
    pid: u32,
}

impl Drop for Forked {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid).expect("a pid fits"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

fn pid_in(file: &Path) -> u32 {
    let text = fs::read_to_string(file).expect("a pid file");
    text.strip_suffix('\n').and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{text:?} is no pid and newline"))
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).expect("a file").permissions().mode() & 0o777
}

fn temporary() -> TempDir {
    tempfile::Builder::new().prefix("xs-").tempdir().expect("a directory")
}

/// Runs our daemon the way an administrator does, without `-N`, until the launching process ends.
fn launcher(dir: &Path, args: &[&str]) -> Output {
    let own = command(dir, &[]);
    let mut launcher = Command::new(own.get_program());
    launcher
        .args(["-D", "--keep", "0", "--pid-file"])
        .arg(dir.join("pid"))
        .args(args)
        .env("XENSTORED_RUNDIR", dir)
        .env("XENSTORED_PATH", dir.join("socket"))
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null());
    launcher.output().expect("our daemon starts")
}

#[test]
fn the_files_of_a_running_daemon_are_its_own() {
    let daemon = Daemon::start(Backend::Ours);
    assert_eq!(pid_in(&daemon.dir().join("pid")), daemon.pid());
    assert_eq!(mode(&daemon.dir().join("pid")), 0o600);
    assert_eq!(mode(&daemon.socket()), 0o600);
}

#[test]
fn missing_directories_are_made_for_their_owner_only() {
    let outer = temporary();
    let dir = outer.path().join("run");
    let _daemon = Started::new(command(&dir, &[]));
    wait::until("the daemon listens", || Client::connect(&dir.join("socket")).is_ok());
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("socket")), 0o600);
}

#[test]
fn a_run_directory_behind_a_link_stays_behind_it_and_keeps_its_mode() {
    let outer = temporary();
    let (dir, link) = (outer.path().join("real"), outer.path().join("link"));
    fs::create_dir(&dir).expect("a directory");
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("a mode");
    symlink(&dir, &link).expect("a link");
    let _daemon = Started::new(command(&link, &[]));
    wait::until("the daemon listens", || Client::connect(&dir.join("socket")).is_ok());
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert_eq!(mode(&dir), 0o755);
}

#[test]
fn a_second_daemon_says_so_exits_with_0_and_touches_nothing() {
    let mut daemon = Daemon::start(Backend::Ours);
    let mut client = daemon.connect();
    client.write("/t", b"kept");
    let state = |dir: &Path| {
        let inode = |name: &str| fs::metadata(dir.join(name)).expect("a file").ino();
        (inode("socket"), inode("pid"), fs::read_to_string(dir.join("pid")).expect("a pid file"))
    };
    let before = state(daemon.dir());
    let second = run(daemon.dir(), &[]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned() + &String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{said}");
    assert!(said.contains(&daemon.pid().to_string()), "{said}");
    let forking = launcher(daemon.dir(), &[]);
    let said = String::from_utf8_lossy(&forking.stderr).into_owned() + &String::from_utf8_lossy(&forking.stdout);
    assert_eq!(forking.status.code(), Some(0), "{said}");
    assert!(said.contains(&daemon.pid().to_string()), "{said}");
    assert_eq!(state(daemon.dir()), before);
    assert_eq!(client.read("/t"), Ok(b"kept".to_vec()));
    daemon.assert_alive();
}

#[test]
fn a_socket_that_somebody_listens_at_is_not_taken_away() {
    let dir = temporary();
    let listener = UnixListener::bind(dir.path().join("socket")).expect("a listener");
    let output = run(dir.path(), &[]);
    assert_ne!(output.status.code(), Some(0));
    assert!(!output.stderr.is_empty());
    let accepted = std::thread::spawn(move || listener.accept().map(drop));
    Client::connect(&dir.path().join("socket")).expect("the old listener is still reached");
    accepted.join().expect("a thread").expect("a connection");
}

#[test]
fn a_stale_pid_file_and_socket_do_not_keep_it_from_starting() {
    let daemon = Daemon::start(Backend::Ours);
    let old = daemon.pid();
    let dir = daemon.kill();
    assert!(dir.path().join("socket").exists() && dir.path().join("pid").exists(), "a killed daemon leaves its files");
    let mut daemon = Starter::new(Backend::Ours).start_in(dir);
    assert_ne!(pid_in(&daemon.dir().join("pid")), old);
    assert_eq!(pid_in(&daemon.dir().join("pid")), daemon.pid());
    daemon.assert_alive();
}

#[test]
fn a_pid_file_that_names_a_stranger_is_taken_over() {
    let dir = temporary();
    fs::write(dir.path().join("pid"), format!("{}\nand a longer line than any pid\n", std::process::id()))
        .expect("a file");
    let mut daemon = Starter::new(Backend::Ours).start_in(dir);
    assert_eq!(pid_in(&daemon.dir().join("pid")), daemon.pid());
    daemon.assert_alive();
}

#[test]
fn without_a_pid_file_option_a_private_instance_keeps_it_in_its_run_directory() {
    let dir = temporary();
    let own = command(dir.path(), &[]);
    let mut command = Command::new(own.get_program());
    command.args(["-D", "-N", "--keep", "0"]).env("XENSTORED_RUNDIR", dir.path()).stdin(Stdio::null());
    command.env_remove("XENSTORED_PATH").env_remove("NOTIFY_SOCKET");
    let daemon = Started::new(command);
    wait::until("the daemon listens", || Client::connect(&dir.path().join("socket")).is_ok());
    assert_eq!(pid_in(&dir.path().join("xenstored.pid")), daemon.0.id());
}

/// Waits for readiness and checks that the daemon answers at that very moment.
fn assert_ready(manager: &UnixDatagram, socket: &Path) -> String {
    manager.set_read_timeout(Some(wait::PATIENCE)).expect("a timeout");
    let mut bytes = [0; 1024];
    let count = manager.recv(&mut bytes).expect("a message");
    let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
    assert!(message.lines().any(|line| line == "READY=1"), "{message:?}");
    let mut client = Client::connect(socket).expect("a daemon that is ready listens");
    assert_eq!(client.read("/"), Ok(Vec::new()));
    message
}

#[test]
fn readiness_is_told_through_a_socket_file_once_it_answers() {
    let dir = temporary();
    let name = dir.path().join("notify");
    let manager = UnixDatagram::bind(&name).expect("a socket");
    let mut command = command(dir.path(), &[]);
    command.env("NOTIFY_SOCKET", &name);
    let _daemon = Started::new(command);
    assert_ready(&manager, &dir.path().join("socket"));
}

#[test]
fn readiness_is_told_through_an_abstract_socket_once_it_answers() {
    let dir = temporary();
    let name = dir.path().join("notify").to_str().expect("a plain path").to_owned();
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let manager = UnixDatagram::bind_addr(&address).expect("a socket");
    let mut command = command(dir.path(), &[]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let _daemon = Started::new(command);
    assert_ready(&manager, &dir.path().join("socket"));
}

#[test]
fn started_by_hand_it_returns_when_it_answers_and_leaves_the_terminal() {
    let dir = temporary();
    // `output` comes back only when nobody holds the pipes any more.
    let output = launcher(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let daemon = Forked { pid: pid_in(&dir.path().join("pid")) };
    let mut client = Client::connect(&dir.path().join("socket")).expect("it listens");
    assert_eq!(client.read("/"), Ok(Vec::new()));
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", daemon.pid)).expect("a directory"), Path::new("/"));
    for fd in 0..3 {
        let target = fs::read_link(format!("/proc/{}/fd/{fd}", daemon.pid)).expect("a descriptor");
        assert_eq!(target, Path::new("/dev/null"), "descriptor {fd}");
    }
    let again = launcher(dir.path(), &[]);
    assert_eq!(again.status.code(), Some(0));
    assert_eq!(pid_in(&dir.path().join("pid")), daemon.pid);
    assert!(process::exists(daemon.pid));
}

#[test]
fn there_is_no_socket_before_domains_are_served() {
    let dir = temporary();
    let elsewhere = temporary();
    let run_dir = dir.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    let changed = |dir: &Path| fs::metadata(dir).map(|there| (there.mtime(), there.mtime_nsec())).unwrap();
    let before = changed(&run_dir);
    // No host to serve domains on, so the start fails where they would be taken in.
    let mut command = Command::new(xenstored_tests::our_binary());
    command.args(["-N", "--no-journal", "--pid-file"]).arg(elsewhere.path().join("pid"));
    command.env("XENSTORED_RUNDIR", &run_dir);
    let output = command.env_remove("NOTIFY_SOCKET").output().expect("our daemon starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no Xen"), "{output:?}");
    assert_eq!(changed(&run_dir), before, "nothing came and went there");
}

#[test]
fn a_start_that_fails_is_told_to_the_launcher() {
    let dir = temporary();
    fs::create_dir(dir.path().join("socket")).expect("a directory in the way");
    for output in [launcher(dir.path(), &[]), run(dir.path(), &[])] {
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("socket"), "{said:?}");
    }
    assert!(!dir.path().join("pid").exists(), "no pid file of a daemon that never ran");
}

#[rstest]
#[case::unknown_long(&["--frobnicate"])]
#[case::unknown_short(&["-Z"])]
#[case::an_argument(&["something"])]
#[case::no_value(&["--pid-file"])]
#[case::not_a_number(&["--entry-nb", "many"])]
#[case::an_unknown_quota(&["--quota", "bogus=1"])]
#[case::a_quota_without_value(&["--quota", "nodes"])]
#[case::an_unknown_timeout(&["--timeout", "lunch=1"])]
fn a_wrong_command_line_is_refused_with_one_line_and_status_2(#[case] args: &[&str]) {
    let dir = temporary();
    let output = run(dir.path(), args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "nothing was made");
}

#[rstest]
#[case::help("--help", "--no-domain-init")]
#[case::version("--version", "xenstored-rs ")]
fn it_tells_about_itself(#[case] arg: &str, #[case] want: &str) {
    let dir = temporary();
    let output = run(dir.path(), &[arg]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains(want));
}

#[test]
fn the_old_options_set_the_quotas_that_they_always_meant() {
    let args = [
        "-E",
        "11",
        "-S",
        "111",
        "-W",
        "12",
        "-t",
        "13",
        "-A",
        "4",
        "-M",
        "100",
        "-Q",
        "memory=5000",
        "-q",
        "memory=4000",
        "-w",
        "watch-event=5",
        "-K",
        "-R",
        "-V",
        "-I",
        "--trace-control=+wrl",
        "--quota",
        "nodes=14",
    ];
    let mut starter = Starter::new(Backend::Ours);
    for arg in args {
        starter = starter.arg(arg);
    }
    let daemon = starter.start();
    let mut client = daemon.connect();
    let quotas = [
        ("nodes", "14"),
        ("node-size", "111"),
        ("watches", "12"),
        ("transactions", "13"),
        ("node-permissions", "4"),
        ("path-max", "100"),
        ("memory", "5000"),
        ("soft-memory", "4000"),
    ];
    for (name, value) in quotas {
        let got = client.request(xenstore_wire::Op::GetQuota, format!("{name}\0").as_bytes());
        assert_eq!(got, Ok(format!("{value}\0").into_bytes()), "{name}");
    }
}
