//! A journal that was left to another daemon, which goes on with the store from a file that was written for it.
//!
//! That daemon removes its file once it has read it, and from then on the journal tells of an old store. As long as the file
//! is there, nobody has gone on, and the journal is as good as ever: this daemon may have died before it executed the other
//! one, or the other one at its beginning.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xenstore_journal::Directory;

/// Name of the file in the journal's directory that tells which file that is.
const MARK: &str = "left";

/// What tells one file from another of that name: device, inode, and since when, for a number is soon given again.
fn identity(file: &Path) -> io::Result<String> {
    let there = fs::symlink_metadata(file)?;
    Ok(format!("{} {} {} {}", there.dev(), there.ino(), there.ctime(), there.ctime_nsec()))
}

/// Notes that the store was left in this file.
///
/// # Errors
/// If the note cannot be written.
pub(super) fn note(directory: &Directory, file: &Path) -> io::Result<()> {
    let mark = directory.path().join(MARK);
    let text = [identity(file)?.as_bytes(), b"\n", file.as_os_str().as_bytes()].concat();
    let unfinished = mark.with_extension("new");
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, mark)
}

/// Takes the note back: nobody else goes on.
///
/// # Errors
/// If it is there, and cannot be removed.
pub(super) fn forget(directory: &Directory) -> io::Result<()> {
    match fs::remove_file(directory.path().join(MARK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The file in which the store was left, where it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The store was left to nobody.
    Nowhere,
    /// It is there still.
    In(PathBuf),
    /// Somebody took it, or the note says nothing that can be.
    Taken,
}

/// Looks where a store was left.
pub(super) fn look(directory: &Directory) -> Left {
    let text = match fs::read(directory.path().join(MARK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Left::Nowhere,
        read => read.unwrap_or_default(),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'\n');
    let (Some(noted), Some(file)) = (parts.next(), parts.next()) else { return Left::Taken };
    let file = PathBuf::from(std::ffi::OsString::from_vec(file.to_vec()));
    if identity(&file).is_ok_and(|now| now.as_bytes() == noted) { Left::In(file) } else { Left::Taken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_left_until_its_file_is_gone_or_another() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(&dir.path().join("journal")).unwrap();
        let file = dir.path().join("state");
        assert_eq!(look(&directory), Left::Nowhere);
        assert!(note(&directory, &file).is_err(), "there is no such file");
        fs::write(&file, "store").unwrap();
        note(&directory, &file).unwrap();
        assert_eq!(look(&directory), Left::In(file.clone()));
        fs::rename(&file, dir.path().join("other")).unwrap();
        assert_eq!(look(&directory), Left::Taken);
        fs::write(&file, "store").unwrap();
        assert_eq!(look(&directory), Left::Taken, "it is another of that name");
        forget(&directory).unwrap();
        forget(&directory).unwrap();
        assert_eq!(look(&directory), Left::Nowhere);
        fs::write(directory.path().join(MARK), "nothing of that kind").unwrap();
        assert_eq!(look(&directory), Left::Taken);
    }
}
