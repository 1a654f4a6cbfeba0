//! What can be wrong with the files.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::heading::NUMBER_AT;

/// A file or directory of the journal that cannot be used. Each text names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the system failed.
    #[error("cannot {what} {path}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A symbolic link, a device or whatever else is where a directory or a plain file must be.
    #[error("{path} is not a {expected}", path = path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// The file is another user's, who could change it.
    #[error("{path} belongs to user {owner}", path = path.display())]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A directory that others may look into has files in it that are no journal's.
    #[error("{path} is not empty, and its mode is {mode:o}: a journal's own directory has mode 700", path = path.display())]
    Used {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It does not begin as a log or an image does.
    #[error("{path} is not a {expected} of a journal", path = path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// It was written by a newer version, whose format is not known here.
    #[error("{path} has format {found}, written by {writer:?}; known is up to {known}",
        path = path.display(), known = crate::FORMAT)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The program that wrote it.
        writer: String,
    },
    /// It was written before the host was started the last time.
    #[error("{path} is of another boot", path = path.display())]
    OtherBoot {
        /// The file.
        path: PathBuf,
    },
    /// What is in it cannot be true.
    #[error("{path} is damaged at byte {offset}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in bytes from its start.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A file of the chain is not there.
    #[error("{path} is missing, and what comes after it is there", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn errno(what: &'static str, path: &Path) -> impl FnOnce(nix::errno::Errno) -> Self {
        let path = path.to_path_buf();
        move |errno| Self::Io { what, path, source: errno.into() }
    }

    pub(crate) fn damaged(path: &Path, offset: usize, what: &'static str) -> Self {
        Self::Damaged { path: path.into(), offset: offset as u64, what }
    }

    /// The number in the heading is another than that of the name.
    pub(crate) fn misnamed(path: &Path) -> Self {
        Self::damaged(path, NUMBER_AT, "the number is not that of the file's name")
    }
}
