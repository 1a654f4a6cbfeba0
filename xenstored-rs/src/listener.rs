//! The socket that clients connect to.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mio::net::UnixListener;

/// How long a process that was killed may keep what it had open.
const MOMENT: Duration = Duration::from_millis(500);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The name of a socket that this process made, to be removed at its end.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Removes the name, unless it is another socket's by now.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn remove(self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (self.device, self.inode) => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Why the socket cannot be offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Somebody answers there. Nothing was changed.
    #[error("another daemon answers at {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket has the name.
    #[error("{} is not a socket", path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error("cannot listen at {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Removes a socket at `path` that nobody listens at any more.
///
/// # Errors
/// [`ListenError`]; a socket that is in use stays as it is.
pub(crate) fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(there) if !there.file_type().is_socket() => Err(ListenError::NotASocket { path: path.into() }),
        Ok(_) if is_listened_at(path) => Err(ListenError::InUse { path: path.into() }),
        Ok(_) => match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        },
    }
}

/// Whether somebody listens at a socket, and goes on with it: what a process that was killed had open may be open for a
/// moment longer.
fn is_listened_at(path: &Path) -> bool {
    let began = Instant::now();
    loop {
        match StdStream::connect(path) {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => return false,
            // A full backlog or a connection: either way somebody is there.
            _ if began.elapsed() >= MOMENT => return true,
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Listens at `path`, for this user only. A socket that nobody listens at any more is replaced.
///
/// # Errors
/// As [`clear`].
pub(crate) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    clear(path)?;
    let failed = |source| ListenError::Io { path: path.into(), source };
    let listener = UnixListener::bind(path).map_err(failed)?;
    // The daemon's umask keeps everybody else out until here; it is the whole process's and no business of this function.
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    let made = fs::symlink_metadata(path).map_err(failed)?;
    Ok((listener, SocketFile { path: path.into(), device: made.dev(), inode: made.ino() }))
}

/// Listens on at a socket that another daemon listened at before; where its name is gone, anew.
///
/// # Errors
/// As [`listen`].
pub(crate) fn adopt(listener: OwnedFd, path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let failed = |source| ListenError::Io { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => {
            let listener = std::os::unix::net::UnixListener::from(listener);
            listener.set_nonblocking(true).map_err(failed)?;
            let file = SocketFile { path: path.into(), device: there.dev(), inode: there.ino() };
            Ok((UnixListener::from_std(listener), file))
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
        _ => listen(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(listen(&path).unwrap());
        assert!(path.exists());
        let _listener = listen(&path).unwrap();
        StdStream::connect(&path).unwrap();
    }

    #[test]
    fn a_socket_in_use_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(ListenError::InUse { .. })));
        StdStream::connect(&path).unwrap();
    }

    #[test]
    fn the_name_is_removed_only_while_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (_listener, file) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (_other, others) = listen(&path).unwrap();
        file.remove().unwrap();
        assert!(path.exists());
        others.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        fs::write(&path, b"precious").unwrap();
        assert!(matches!(listen(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
