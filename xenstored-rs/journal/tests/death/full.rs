//! A process that gets no more blocks. What goes wrong here is a signal, so it is a process of its own.

use std::{
    env, fs,
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    process::{Command, ExitCode},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::resource::{Resource, setrlimit},
    unistd::{getegid, geteuid},
};
use xenstore_journal::{Directory, Error, Full, ImageWriter, Log, POSITIONS, Received, TransferError};

use crate::kills::waiting;

/// Bytes that there are: room for a log's header and a few steps of records.
const ROOM: u64 = 7 << 19;

/// The status of a process that may not mount anything.
const CANNOT_MOUNT: u8 = 77;

pub(crate) fn test_file_system() {
    match run("file system") {
        Some(0) => {}
        // Some containers; the other test of this file has no such needs.
        Some(code) if code == i32::from(CANNOT_MOUNT) => println!("not tested: no file system can be mounted here"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn test_limit() {
    assert_eq!(run("limit"), Some(0));
}

/// Returns the status; `None` for the death of a signal.
fn run(what: &str) -> Option<i32> {
    let dir = tempfile::tempdir().unwrap();
    let program = env::current_exe().unwrap();
    Command::new(program).args(["role:full", what]).arg(dir.path()).status().unwrap().code()
}

/// The process. Arguments: what limits it, where its files are to be.
pub(crate) fn play(arguments: &[String]) -> ExitCode {
    let [what, path] = arguments else { panic!("{arguments:?}") };
    let path = Path::new(path);
    let errno = if what == "limit" {
        setrlimit(Resource::RLIMIT_FSIZE, ROOM, ROOM).unwrap();
        Errno::EFBIG
    } else {
        if let Err(error) = mount_small(path) {
            println!("{error}");
            return ExitCode::from(CANNOT_MOUNT);
        }
        Errno::ENOSPC
    };
    fill(&path.join("journal"), errno);
    ExitCode::SUCCESS
}

/// Mounts a small file system in memory, for this process alone.
fn mount_small(path: &Path) -> nix::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if !user.is_root() {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        let maps =
            [("setgroups", "deny".into()), ("gid_map", format!("0 {group} 1")), ("uid_map", format!("0 {user} 1"))];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text).map_err(|_| Errno::EPERM)?;
        }
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("small"), path, Some("tmpfs"), MsFlags::empty(), Some(format!("size={ROOM}").as_str()))
}

fn fill(path: &Path, errno: Errno) {
    let names = || {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let directory = Directory::open(path).unwrap();
    let mut log = Log::first(&directory, "test").unwrap();
    let payload = [5; 10_000];
    let mut appended = 0;
    let full = loop {
        match log.append(1, 2, 3, &[&payload]) {
            Ok(_) => appended += 1,
            Err(full) => break full,
        }
    };
    assert_eq!((full, log.append(1, 2, 3, &[&payload])), (Full::NoSpace(errno), Err(full)));
    assert!(appended > 100, "{appended}");
    assert!(log.records().all(|record| record.unwrap().payload == payload) && log.records().count() == appended);

    // A socket is not touched without room for what comes of it.
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"question").unwrap();
    let received = log.receive(far.as_fd(), 1, 2, 3, b"", 20_000);
    assert!(matches!(received, Err(TransferError::Full(again)) if again == full), "{received:?}");
    assert_eq!(waiting(&far), 8);
    while log.append(0, 0, 0, &[]).is_ok() {}
    let sent = log.send(far.as_fd(), 1, 2, 3, b"answer");
    assert!(matches!(sent, Err(TransferError::Full(again)) if again == full), "{sent:?}");
    assert_eq!(waiting(&near), 0);

    // Images and further logs fail whole. A limit on the size of a file leaves room for a log of its own.
    let image = ImageWriter::create(&directory, log.heading()).and_then(|mut image| {
        let written = image.write_all(&vec![1; 4 << 20]);
        written.map_err(|source| Error::Io { what: "write", path: path.into(), source }).and_then(|()| image.finish())
    });
    let Err(Error::Io { source, .. }) = image else { panic!("{image:?}") };
    assert_eq!(source.raw_os_error(), Some(errno as i32));
    if errno == Errno::ENOSPC {
        assert_eq!(log.set_position(POSITIONS - 1, 7, log.start()), Err(full));
        assert_eq!(log.position(POSITIONS - 1), None);
        let next = log.next(&directory, "test");
        assert!(matches!(next, Err(Error::Io { what: "allocate", .. })), "{next:?}");
    }
    assert_eq!(names(), ["log.1"]);

    // What it has is still of use, and to who comes after it.
    let start = log.start();
    log.rewind(start);
    assert!(matches!(log.receive(far.as_fd(), 1, 2, 3, b"", 20_000), Ok(Received::Bytes { count: 8, .. })));
    assert_eq!(log.send(far.as_fd(), 1, 2, 3, b"answer").unwrap(), 6);
    drop(log);
    let log = Log::open(&directory, 1).unwrap();
    assert_eq!(log.records().count(), 2);
    drop(log);
    directory.remove_before(2).unwrap();
    Log::first(&directory, "test").unwrap();
}
