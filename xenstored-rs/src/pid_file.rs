//! The pid file, and through its lock the promise that there is one daemon.
//!
//! The lock is a POSIX record lock over the whole file, the kind that the C daemon and Debian's start script know. It
//! is what counts: a file without a living holder is a leftover and is taken over, whatever pid it names.
//!
//! Such locks belong to the process. They do not pass to a forked child, and they are lost when the process closes
//! *any* descriptor of the file. Hence two calls: [`probe`] before forking, so that the refusal reaches the terminal,
//! and [`PidFile::acquire`] in the final process. After that, nothing in the process may open this file again.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// How often a file that vanishes while it is being locked is opened again.
const ATTEMPTS: usize = 16;

/// Why there is no pid file for us.
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// A living process holds the lock. Nothing was changed.
    #[error("already running{} (pid file {})", pid.map(|pid| format!(" with pid {pid}")).unwrap_or_default(), path.display())]
    AlreadyRunning {
        /// The holder, if the kernel or the file tell it.
        pid: Option<i32>,
        /// The pid file.
        path: PathBuf,
    },
    /// The file cannot be opened, locked or written.
    #[error("pid file {path}: cannot {action}", path = path.display())]
    Io {
        /// The pid file.
        path: PathBuf,
        /// What could not be done.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Asks whether another process holds the lock of this pid file. Creates and changes nothing.
///
/// # Errors
/// [`PidFileError::AlreadyRunning`] if one does, [`PidFileError::Io`] if the file cannot be looked at.
pub fn probe(path: &Path) -> Result<(), PidFileError> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error(path, "open", source)),
    };
    match holder(&file).map_err(|source| io_error(path, "test the lock", source))? {
        None => Ok(()),
        Some(pid) => Err(already_running(path, &file, pid)),
    }
}

/// The locked pid file of this process. The lock lasts until the process ends or this value is dropped; dropping it
/// removes the file, so a start that fails halfway leaves none behind. A killed process leaves it, unlocked.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
    removed_on_drop: bool,
}

impl PidFile {
    /// Creates (mode 0600) or takes over the file, locks it and writes this process's pid and a line break.
    ///
    /// The directory must exist. Call it in the process that stays.
    ///
    /// # Errors
    /// [`PidFileError::AlreadyRunning`], with the file untouched, if another process holds the lock.
    pub fn acquire(path: &Path) -> Result<Self, PidFileError> {
        for _ in 0..ATTEMPTS {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path)
                .map_err(|source| io_error(path, "open", source))?;
            match fcntl(&file, FcntlArg::F_SETLK(&whole_file_lock())) {
                Ok(_) => {}
                Err(Errno::EACCES | Errno::EAGAIN) => {
                    let pid = holder(&file).ok().flatten().unwrap_or_default();
                    return Err(already_running(path, &file, pid));
                }
                Err(errno) => return Err(io_error(path, "lock", errno.into())),
            }
            // Its last owner may have removed the file between our open and our lock.
            if names(path, &file) {
                let pid_file = Self { path: path.into(), file, removed_on_drop: true };
                pid_file.write().map_err(|source| io_error(path, "write", source))?;
                return Ok(pid_file);
            }
        }
        Err(io_error(path, "lock", io::Error::other("the file keeps being replaced")))
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether dropping removes the file, as it does if nothing is said.
    pub fn set_removed_on_drop(&mut self, removed: bool) {
        self.removed_on_drop = removed;
    }

    /// Removes the file at an orderly end, unless the path names another file by now. Dropping does the same, without
    /// saying how it went.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(self) -> Result<(), PidFileError> {
        self.unlink().map_err(|source| io_error(&self.path, "remove", source))
    }

    fn unlink(&self) -> io::Result<()> {
        // Still locked here: nobody can have taken this file over.
        if names(&self.path, &self.file) { fs::remove_file(&self.path) } else { Ok(()) }
    }

    /// Puts our pid into the file. At no moment is it empty, so that a reader finds the old pid or the new one.
    fn write(&self) -> io::Result<()> {
        let text = format!("{}\n", std::process::id());
        self.file.set_permissions(Permissions::from_mode(0o600))?;
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // After `remove` the path does not name this file any more, and there is nothing left to do.
        if self.removed_on_drop {
            let _ = self.unlink();
        }
    }
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> PidFileError {
    PidFileError::Io { path: path.into(), action, source }
}

/// The refusal; `pid` is what the kernel said, 0 or less if the holder is beyond our pid namespace.
fn already_running(path: &Path, mut file: &File, pid: i32) -> PidFileError {
    let in_file = || {
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    };
    let pid = Some(pid).filter(|&pid| pid > 0).or_else(in_file);
    PidFileError::AlreadyRunning { pid, path: path.into() }
}

/// Who holds a lock that would keep us from ours.
fn holder(file: impl AsFd) -> io::Result<Option<i32>> {
    let mut lock = whole_file_lock();
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid))
}

/// An exclusive lock from the first byte to the end, however far that is.
fn whole_file_lock() -> libc::flock {
    libc::flock {
        // These constants are tiny; the field's width differs between architectures.
        l_type: libc::F_WRLCK.try_into().unwrap_or_default(),
        l_whence: libc::SEEK_SET.try_into().unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Whether the path still leads to this open file. Only looks: opening it again would end the lock.
fn names(path: &Path, file: &File) -> bool {
    match (fs::symlink_metadata(path), file.metadata()) {
        (Ok(there), Ok(here)) => there.dev() == here.dev() && there.ino() == here.ino(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> String {
        format!("{}\n", std::process::id())
    }

    #[test]
    fn a_new_file_is_private_and_holds_the_pid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        probe(&path).unwrap();
        assert!(!path.exists(), "probing creates nothing");
        let pid_file = PidFile::acquire(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        pid_file.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_file_is_taken_over_whatever_it_says() {
        for stale in ["", "1\n", "99999999999999\n", "junk"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("pid");
            fs::write(&path, stale).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            probe(&path).unwrap();
            let pid_file = PidFile::acquire(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            // Reading ends the lock, which nobody else wants here.
            assert_eq!(fs::read_to_string(&path).unwrap(), own_pid(), "after {stale:?}");
            drop(pid_file);
            assert!(!path.exists(), "dropping removes the file");
        }
    }

    #[test]
    fn removing_leaves_another_ones_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid_file = PidFile::acquire(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "7\n").unwrap();
        pid_file.remove().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n");
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("pid"), dir.path().join("target"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(probe(&path).is_err());
        let error = PidFile::acquire(&path).unwrap_err();
        assert!(error.to_string().ends_with("pid: cannot open"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_missing_directory_is_an_error_with_the_path() {
        let error = PidFile::acquire(Path::new("/nonexistent/dir/pid")).unwrap_err();
        assert_eq!(error.to_string(), "pid file /nonexistent/dir/pid: cannot open");
    }
}
