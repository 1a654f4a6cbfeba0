//! The socket that clients connect to.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use mio::net::UnixListener;
use nix::sys::stat::{Mode, umask};

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

/// Listens at `path`, for this user only. A socket that nobody listens at any more is replaced.
///
/// # Errors
/// [`ListenError`]; a socket that is in use stays as it is.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Io { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(there) if !there.file_type().is_socket() => return Err(ListenError::NotASocket { path: path.into() }),
        Ok(_) => match StdStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A full backlog or a connection: either way somebody is there.
            _ => return Err(ListenError::InUse { path: path.into() }),
        },
    }
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        fs::write(&path, b"precious").unwrap();
        assert!(matches!(listen(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
