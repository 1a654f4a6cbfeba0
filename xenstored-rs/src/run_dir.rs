//! Where the daemon's files are, and making the directories that are missing.
//!
//! | what | default | moved by |
//! |---|---|---|
//! | run directory | `/var/run/xenstored` | `XENSTORED_RUNDIR` |
//! | socket | `socket` in the run directory | `XENSTORED_PATH` |
//! | pid file | `/var/run/xen/xenstored.pid`; `xenstored.pid` in the run directory if `XENSTORED_RUNDIR` is set | `--pid-file` |
//! | library directory | `/var/lib/xen/xenstore` | `XENSTORED_LIBDIR` |
//!
//! So a private instance needs `XENSTORED_RUNDIR` and nothing else. An empty variable counts as unset.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The run directory if nothing else is said.
pub const DEFAULT_RUN_DIR: &str = "/var/run/xenstored";

/// The pid file if nothing else is said.
pub const DEFAULT_PID_FILE: &str = "/var/run/xen/xenstored.pid";

/// The library directory if nothing else is said.
pub const DEFAULT_LIB_DIR: &str = "/var/lib/xen/xenstore";

/// Directories of the system that are never made here: a host without them has another problem, and a wrong
/// `/var/run` (a directory in place of the link to `/run`) keeps it from booting.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/var/run", "/var/lib"];

/// Most bytes of a socket's path (`sun_path` without its NUL).
const SOCKET_PATH_MAX: usize = 107;

/// The daemon's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    /// Holds the socket and what else lives as long as the host.
    pub run_dir: PathBuf,
    /// The socket that clients connect to.
    pub socket: PathBuf,
    /// The pid file.
    pub pid_file: PathBuf,
    /// Base of relative names of trace files.
    pub lib_dir: PathBuf,
}

/// Why the files cannot be where they should be.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// A path from the environment or the command line is not absolute.
    #[error("{what} {path} is not an absolute path", path = path.display())]
    NotAbsolute {
        /// The option or variable.
        what: &'static str,
        /// The refused path.
        path: PathBuf,
    },
    /// The socket's path does not fit in an address.
    #[error("socket path {path} is longer than {SOCKET_PATH_MAX} bytes", path = path.display())]
    SocketPathTooLong {
        /// The refused path.
        path: PathBuf,
    },
    /// Something that is no directory is in the way.
    #[error("{path} is not a directory", path = path.display())]
    NotADirectory {
        /// What is in the way.
        path: PathBuf,
    },
    /// The directory cannot be made.
    #[error("cannot make directory {path}", path = path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl RunDir {
    /// Works out the paths. `environment` looks up a variable (pass `std::env::var_os`), `pid_file` is the command
    /// line's. Relative paths from the command line are taken as below the current directory, because the daemon
    /// leaves it later.
    ///
    /// # Errors
    /// If a path of the environment is relative or the socket's path is too long.
    pub fn locate(
        environment: impl Fn(&'static str) -> Option<OsString>,
        pid_file: Option<&Path>,
    ) -> Result<Self, RunDirError> {
        let variable = |name: &'static str| -> Result<Option<PathBuf>, RunDirError> {
            match environment(name).filter(|value| !value.is_empty()).map(PathBuf::from) {
                Some(path) if !path.is_absolute() => Err(RunDirError::NotAbsolute { what: name, path }),
                path => Ok(path),
            }
        };
        let private = variable("XENSTORED_RUNDIR")?;
        let default_pid_file =
            private.as_ref().map_or_else(|| DEFAULT_PID_FILE.into(), |dir| dir.join("xenstored.pid"));
        let run_dir = private.unwrap_or_else(|| DEFAULT_RUN_DIR.into());
        let socket = variable("XENSTORED_PATH")?.unwrap_or_else(|| run_dir.join("socket"));
        let lib_dir = variable("XENSTORED_LIBDIR")?.unwrap_or_else(|| DEFAULT_LIB_DIR.into());
        let pid_file = match pid_file {
            Some(path) => std::path::absolute(path)
                .map_err(|_| RunDirError::NotAbsolute { what: "--pid-file", path: path.into() })?,
            None => default_pid_file,
        };
        if socket.as_os_str().as_bytes().len() > SOCKET_PATH_MAX {
            return Err(RunDirError::SocketPathTooLong { path: socket });
        }
        Ok(Self { run_dir, socket, pid_file, lib_dir })
    }

    /// Makes what is missing of the run directory and the directories of the socket and the pid file, with mode 0700.
    ///
    /// A directory that exists is left as it is, mode included, and so is a symbolic link to one. Only one level is
    /// made, except below `/var/run` and `/var/lib`, where all missing levels are.
    ///
    /// # Errors
    /// If something else is in the way or the directory cannot be made.
    pub fn create_missing(&self) -> Result<(), RunDirError> {
        make_directory(&self.run_dir)?;
        for file in [&self.socket, &self.pid_file] {
            if let Some(parent) = file.parent() {
                make_directory(parent)?;
            }
        }
        Ok(())
    }

    /// The place of a file named by the command line or a control command: relative names are below the library
    /// directory, which is made if it is missing.
    ///
    /// # Errors
    /// As [`RunDir::create_missing`].
    pub fn resolve(&self, name: &Path) -> Result<PathBuf, RunDirError> {
        if name.is_absolute() {
            return Ok(name.into());
        }
        make_directory(&self.lib_dir)?;
        Ok(self.lib_dir.join(name))
    }
}

/// Makes one directory with mode 0700 if it is missing.
fn make_directory(path: &Path) -> Result<(), RunDirError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        // Also a link: only where it leads counts. One that leads nowhere is in the way, and is not replaced.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(()),
            _ => Err(RunDirError::NotADirectory { path: path.into() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => match parent_to_make(path) {
            Some(parent) => {
                make_directory(parent)?;
                make_directory(path)
            }
            None => Err(RunDirError::Create { path: path.into(), source: error }),
        },
        Err(source) => Err(RunDirError::Create { path: path.into(), source }),
    }
}

/// The missing parent of a path below one of the [`SYSTEM_DIRECTORIES`], if it may be made here.
fn parent_to_make(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    let below = SYSTEM_DIRECTORIES.iter().any(|system| parent.starts_with(system) && parent != Path::new(system));
    (below && fs::symlink_metadata(parent).is_err()).then_some(parent)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn locate(variables: &[(&str, &str)], pid_file: Option<&str>) -> Result<RunDir, RunDirError> {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        RunDir::locate(lookup, pid_file.map(Path::new))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn private(dir: &Path) -> RunDir {
        locate(&[("XENSTORED_RUNDIR", dir.to_str().unwrap())], None).unwrap()
    }

    #[test]
    fn an_empty_environment_gives_the_usual_places() {
        for variables in [&[][..], &[("XENSTORED_RUNDIR", ""), ("XENSTORED_PATH", "")]] {
            let paths = locate(variables, None).unwrap();
            assert_eq!(paths.socket, Path::new("/var/run/xenstored/socket"));
            assert_eq!(paths.pid_file, Path::new("/var/run/xen/xenstored.pid"));
            assert_eq!(paths.lib_dir, Path::new("/var/lib/xen/xenstore"));
        }
    }

    #[test]
    fn a_private_run_directory_holds_everything() {
        let paths = private(Path::new("/tmp/own"));
        assert_eq!(paths.run_dir, Path::new("/tmp/own"));
        assert_eq!(paths.socket, Path::new("/tmp/own/socket"));
        assert_eq!(paths.pid_file, Path::new("/tmp/own/xenstored.pid"));
    }

    #[test]
    fn socket_pid_file_and_library_can_be_moved_alone() {
        let variables = [("XENSTORED_PATH", "/s/sock"), ("XENSTORED_RUNDIR", "/r"), ("XENSTORED_LIBDIR", "/l")];
        let paths = locate(&variables, Some("/p/pid")).unwrap();
        assert_eq!(paths.socket, Path::new("/s/sock"));
        assert_eq!(paths.pid_file, Path::new("/p/pid"));
        assert_eq!(paths.lib_dir, Path::new("/l"));
    }

    #[test]
    fn a_relative_pid_file_is_below_the_current_directory() {
        let paths = locate(&[], Some("pid")).unwrap();
        assert_eq!(paths.pid_file, std::env::current_dir().unwrap().join("pid"));
    }

    #[test]
    fn relative_variables_and_long_sockets_are_refused() {
        let error = locate(&[("XENSTORED_RUNDIR", "run")], None).unwrap_err();
        assert_eq!(error.to_string(), "XENSTORED_RUNDIR run is not an absolute path");
        let fits = format!("/{}", "s".repeat(106));
        assert!(locate(&[("XENSTORED_PATH", &fits)], None).is_ok());
        let error = locate(&[("XENSTORED_PATH", &(fits + "s"))], None).unwrap_err();
        assert!(error.to_string().ends_with("is longer than 107 bytes"), "{error}");
    }

    #[test]
    fn missing_directories_are_made_private() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let paths = RunDir { pid_file: dir.path().join("pids/pid"), ..private(&run) };
        paths.create_missing().unwrap();
        assert_eq!((mode(&run), mode(&dir.path().join("pids"))), (0o700, 0o700));
        paths.create_missing().unwrap();
    }

    #[test]
    fn an_existing_directory_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        private(dir.path()).create_missing().unwrap();
        assert_eq!(mode(dir.path()), 0o755);
    }

    #[test]
    fn a_link_to_a_directory_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("run"), dir.path().join("var-run"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &link).unwrap();
        private(&link.join("xenstored")).create_missing().unwrap();
        private(&link).create_missing().unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), target);
        assert_eq!(mode(&target.join("xenstored")), 0o700);
    }

    #[test]
    fn what_is_no_directory_is_left_alone_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let (file, dangling) = (dir.path().join("file"), dir.path().join("dangling"));
        fs::write(&file, "kept").unwrap();
        symlink("nowhere", &dangling).unwrap();
        for path in [&file, &dangling] {
            let error = private(path).create_missing().unwrap_err();
            assert_eq!(error.to_string(), format!("{} is not a directory", path.display()));
        }
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert_eq!(fs::read_link(&dangling).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn only_one_level_is_made_outside_of_the_system_directories() {
        let dir = tempfile::tempdir().unwrap();
        let error = private(&dir.path().join("a/b")).create_missing().unwrap_err();
        assert!(matches!(error, RunDirError::Create { .. }), "{error}");
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn the_system_directories_themselves_are_never_made() {
        for system in SYSTEM_DIRECTORIES {
            assert_eq!(parent_to_make(&Path::new(system).join("xenstored")), None);
        }
        let deep = Path::new("/var/lib/no-such-directory-of-xen/xenstore");
        assert_eq!(parent_to_make(deep), deep.parent());
        assert_eq!(parent_to_make(Path::new("/var/library/no-such/x")), None);
    }

    #[test]
    fn relative_file_names_are_below_the_library_directory() {
        let dir = tempfile::tempdir().unwrap();
        let paths = RunDir { lib_dir: dir.path().join("lib"), ..private(dir.path()) };
        assert_eq!(paths.resolve(Path::new("/var/log/t")).unwrap(), Path::new("/var/log/t"));
        assert!(!paths.lib_dir.exists());
        assert_eq!(paths.resolve(Path::new("t")).unwrap(), paths.lib_dir.join("t"));
        assert_eq!(mode(&paths.lib_dir), 0o700);
    }
}
