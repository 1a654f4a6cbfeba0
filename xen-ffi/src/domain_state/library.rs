//! Finds and loads the libxenctrl that fits the hypervisor.

use core::{
    ffi::{CStr, c_void},
    fmt,
    ptr::NonNull,
};
use std::{
    ffi::CString,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::error::Error;

const LOADING: &str = "loading libxenctrl";

/// Where the kernel tells the version of the hypervisor.
const VERSION_DIR: &str = "/sys/hypervisor/version";

/// A version of Xen, as far as it decides about the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct XenVersion {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for XenVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl XenVersion {
    /// The version of the hypervisor that runs, by the files in `dir`; `None` where they are missing or say nothing.
    pub(super) fn running(dir: &Path) -> Option<Self> {
        let number = |name| fs::read_to_string(dir.join(name)).ok()?.trim_ascii().parse().ok();
        Some(Self { major: number("major")?, minor: number("minor")? })
    }

    /// The version in a name such as `libxenctrl.so.4.17`; with a third number, as in the file behind it, too.
    pub(super) fn of_file_name(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("libxenctrl.so.")?.split('.').map(|part| part.parse().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        numbers.all(|rest| rest.is_some()).then_some(Self { major, minor })
    }
}

/// libxenctrl, loaded for good: its functions may be used until the program ends.
#[derive(Debug)]
pub(super) struct Library(());

impl Library {
    /// Loads the version of the hypervisor that runs, or the newest that is installed where that is not known.
    ///
    /// Nothing is loaded where the program has such functions already, because a library was preloaded that has them.
    pub(super) fn load() -> Result<Self, Error> {
        let library = Self(());
        if library.symbol(c"xc_interface_open").is_some() {
            return Ok(library);
        }
        let mut reason = None;
        for candidate in candidates(XenVersion::running(Path::new(VERSION_DIR)), &library_dirs(Path::new("/usr"))) {
            match load_globally(&candidate) {
                Ok(()) => return Ok(library),
                // The first failure is about the likeliest file.
                Err(failure) => reason = reason.or(Some(failure)),
            }
        }
        let reason = reason.unwrap_or_else(|| "no libxenctrl is installed".to_owned());
        Err(Error::new(LOADING, io::Error::other(reason)))
    }

    /// A function of the library. Names are looked up as the linker would: what the program or a preloaded library has
    /// goes before what was loaded here.
    #[expect(clippy::unused_self, reason = "only a loaded library has symbols")]
    pub(super) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the name ends with a NUL; looking up changes nothing.
        NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
    }
}

/// Loads a library and lets everybody see its symbols. The message of the loader is the error.
fn load_globally(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the libraries of Xen do nothing when they are loaded that another thread could be hurt by.
    let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !loaded.is_null() {
        return Ok(());
    }
    // SAFETY: the message stays valid until the next call of the loader by this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return Err(format!("{} cannot be loaded", path.display()));
    }
    // SAFETY: not null, so it is a string of the loader's.
    Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

/// What to load, best first. The version that runs is asked for by its name, wherever the loader looks, and then by
/// its path; no other version will do, since its structures are others. Where no version is known, the newest there is.
pub(super) fn candidates(running: Option<XenVersion>, dirs: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(version) = running {
        let name = PathBuf::from(format!("libxenctrl.so.{version}"));
        let paths = dirs.iter().map(|dir| dir.join(&name)).filter(|path| path.exists());
        return [name.clone()].into_iter().chain(paths).collect();
    }
    let mut found: Vec<(XenVersion, PathBuf)> = dirs
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
        .filter_map(|entry| Some((XenVersion::of_file_name(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    found.sort_by(|(one, one_path), (other, other_path)| other.cmp(one).then_with(|| one_path.cmp(other_path)));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Directories where libxenctrl is found, on Debian and elsewhere: `lib` and `lib64`, those of each architecture, and
/// those that belong to one version of Xen.
pub(super) fn library_dirs(prefix: &Path) -> Vec<PathBuf> {
    let lib = prefix.join("lib");
    let here = std::env::consts::ARCH;
    let mut dirs = vec![prefix.join("lib64"), lib.clone()];
    let mut below: Vec<PathBuf> =
        fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    below.sort();
    for dir in below {
        let Some(name) = dir.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with(here) && name.contains("-linux-") {
            dirs.push(dir);
        } else if name.starts_with("xen-") {
            dirs.push(dir.join("lib"));
            dirs.push(dir.join("lib").join(format!("{here}-linux-gnu")));
        }
    }
    dirs.push(prefix.join("local/lib"));
    dirs
}
