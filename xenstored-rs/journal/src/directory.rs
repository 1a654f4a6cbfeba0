//! The directory of the files: which are there, and which are to be used.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use nix::unistd::geteuid;

use crate::{
    error::Error,
    heading::{BootId, FileHeading, Form, Heading},
    image::Image,
    layout::{DEFAULT_CAPACITY, HEADING, MAX_CAPACITY},
};

/// Last part of the names of files that are not whole yet.
const UNFINISHED: &str = ".new";

/// A directory of logs and images, of one user alone.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    boot: BootId,
    capacity: usize,
}

/// What there is to recover from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The newest history of this boot.
    pub plan: Option<Plan>,
    /// Files of other boots.
    pub other_boot: Vec<PathBuf>,
    /// Images that were passed over for an older one, because they are damaged.
    pub damaged: Vec<PathBuf>,
}

/// How to recover: read the image, if there is one, then the logs in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of the image; without one the first log begins the history.
    pub image: Option<u64>,
    /// Numbers of the logs, each one more than the one before; never empty.
    pub logs: Vec<u64>,
}

impl Plan {
    /// The log that goes on.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.logs.last().copied().unwrap_or_default()
    }

    /// The lowest number that is still of use.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.logs.first().copied().unwrap_or_default()
    }
}

impl Directory {
    /// Opens a directory, making it if it is missing (its parent must be there). Its mode becomes 0700.
    ///
    /// # Errors
    /// If it is a symbolic link or no directory, is another user's, is open to others and has other files than a journal's,
    /// or cannot be made.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let boot = BootId::current().map_err(Error::io("learn of the boot for", path))?;
        Self::open_in_boot(path, boot)
    }

    /// The same in a boot that is given, for tests.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn open_in_boot(path: &Path, boot: BootId) -> Result<Self, Error> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make", path)(error));
            }
            _ => {}
        }
        // Through a descriptor, so that what is checked and what is changed are the same.
        let (directory, mode) = open_own(path)?;
        let found = Self { path: path.into(), boot, capacity: DEFAULT_CAPACITY };
        if mode & 0o7777 != 0o700 {
            // Whoever names `/etc` by mistake does not want it closed to everybody else.
            let names = found.names()?;
            if !names.is_empty() && !names.iter().any(|name| parse(name).is_some()) {
                return Err(Error::Used { path: path.into(), mode: mode & 0o7777 });
            }
            directory.set_permissions(Permissions::from_mode(0o700)).map_err(Error::io("set the mode of", path))?;
        }
        Ok(found)
    }

    /// Opens a directory that is there, and changes nothing of it.
    ///
    /// # Errors
    /// If it is a symbolic link or no directory, or is another user's.
    pub fn open_as_it_is(path: &Path) -> Result<Self, Error> {
        let boot = BootId::current().map_err(Error::io("learn of the boot for", path))?;
        open_own(path)?;
        Ok(Self { path: path.into(), boot, capacity: DEFAULT_CAPACITY })
    }

    /// The same directory, whose new logs take at most so many bytes of records (64 MiB if nothing is said, 1 GiB at
    /// most).
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { capacity: capacity.min(MAX_CAPACITY) / 8 * 8, ..self }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The boot whose files are used.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.boot
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// What there is to recover from: the newest log, the newest whole image of its history that is not newer, and all
    /// logs from that image on. Nothing is changed.
    ///
    /// # Errors
    /// If one of these files cannot be read, is of a newer format, a link or another user's; if a log is missing or
    /// damaged, or the image is damaged and nothing older can take its place.
    pub fn newest(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        let mut logs = self.headings(Form::Log, &mut found.other_boot)?;
        let mut images = self.headings(Form::Image, &mut found.other_boot)?;
        let Some((last, newest)) = logs.pop_last() else { return Ok(found) };
        let newest = newest?;
        images.split_off(&last.saturating_add(1));
        let mut refused = None;
        while let Some((number, heading)) = images.pop_last() {
            let checked = heading.and_then(|heading| {
                // An image of another history is only what somebody left lying about.
                (heading.history == newest.history).then(|| Image::check(self, number)).transpose()
            });
            match checked {
                Ok(None) => {}
                Ok(Some(())) => {
                    let logs = self.chain(logs, last, &newest, |log, _| log == number)?;
                    found.plan = Some(Plan { image: Some(number), logs });
                    return Ok(found);
                }
                Err(error @ (Error::Damaged { .. } | Error::NotAJournal { .. })) => {
                    found.damaged.push(self.file(Form::Image, number));
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let logs = self.chain(logs, last, &newest, |_, log| log.begins);
        // It is the image that should have been the beginning.
        let logs = logs.map_err(|error| refused.unwrap_or(error))?;
        found.plan = Some(Plan { image: None, logs });
        Ok(found)
    }

    /// The numbers of the logs that lead to the last one, `newest`, from one that is the `first` on.
    fn chain(
        &self,
        mut others: BTreeMap<u64, Result<Heading, Error>>,
        last: u64,
        newest: &Heading,
        is_first: impl Fn(u64, &Heading) -> bool,
    ) -> Result<Vec<u64>, Error> {
        let mut numbers = vec![last];
        let (mut number, mut heading) = (last, newest.clone());
        while !is_first(number, &heading) {
            number = number.saturating_sub(1);
            heading = match others.remove(&number).transpose()? {
                Some(heading) if heading.history == newest.history => heading,
                _ => return Err(Error::Missing { path: self.file(Form::Log, number) }),
            };
            numbers.push(number);
        }
        numbers.reverse();
        Ok(numbers)
    }

    /// Removes all logs and images of a number below `number`, of whatever history and boot.
    ///
    /// # Errors
    /// If one of them cannot be removed; the others are removed nevertheless.
    pub fn remove_before(&self, number: u64) -> Result<(), Error> {
        self.remove(|name| parse(name).is_some_and(|(_, found)| found < number))
    }

    /// Removes what is left of files that did not become whole: for the start of a process that is the only writer. An
    /// image that a child of a predecessor is still writing is lost to that child.
    ///
    /// # Errors
    /// As [`Directory::remove_before`].
    pub fn remove_unfinished(&self) -> Result<(), Error> {
        self.remove(is_unfinished)
    }

    fn remove(&self, which: impl Fn(&str) -> bool) -> Result<(), Error> {
        let mut failed = None;
        for name in self.names()?.iter().filter(|name| which(name)) {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    failed.get_or_insert_with(|| Error::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// A number that is above those of all logs and images there are, whatever they are.
    pub(crate) fn next_number(&self) -> Result<u64, Error> {
        let highest = self.names()?.iter().filter_map(|name| parse(name)).map(|(_, number)| number).max();
        let next = highest.unwrap_or(0).checked_add(1);
        next.ok_or_else(|| Error::damaged(&self.path, 0, "a file has the highest number there is"))
    }

    /// Where the image of a number is, or would be.
    #[must_use]
    pub fn image(&self, number: u64) -> PathBuf {
        self.file(Form::Image, number)
    }

    pub(crate) fn file(&self, form: Form, number: u64) -> PathBuf {
        self.path.join(format!("{}.{number}", form.name()))
    }

    /// Opens a file of the directory.
    pub(crate) fn open_file(&self, path: &Path, write: bool) -> Result<File, Error> {
        open_plain(path, write)
    }

    /// Makes a file that has no name of its own yet.
    pub(crate) fn create_temporary(&self, form: Form, number: u64) -> Result<Temporary, Error> {
        let path = self.path.join(format!("{}.{number}.{}{UNFINISHED}", form.name(), process::id()));
        let create = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = create().or_else(|error| match error.kind() {
            // Left by a process that had this one's number.
            io::ErrorKind::AlreadyExists => fs::remove_file(&path).and_then(|()| create()),
            _ => Err(error),
        });
        let file = file.map_err(Error::io("make", &path))?;
        Ok(Temporary { name: TemporaryName(path), file })
    }

    /// The headings of the files of one form, by number; those of other boots apart.
    fn headings(
        &self,
        form: Form,
        other_boot: &mut Vec<PathBuf>,
    ) -> Result<BTreeMap<u64, Result<Heading, Error>>, Error> {
        let mut headings = BTreeMap::new();
        for (_, number) in self.names()?.iter().filter_map(|name| parse(name)).filter(|(of, _)| *of == form) {
            match self.heading(form, number) {
                Err(Error::OtherBoot { path }) => other_boot.push(path),
                heading => drop(headings.insert(number, heading)),
            }
        }
        other_boot.sort();
        Ok(headings)
    }

    fn heading(&self, form: Form, number: u64) -> Result<Heading, Error> {
        let path = self.file(form, number);
        let mut beginning = Vec::with_capacity(HEADING);
        let file = open_plain(&path, false)?;
        file.take(HEADING as u64).read_to_end(&mut beginning).map_err(Error::io("read", &path))?;
        let heading = FileHeading::decode(&path, &beginning, form, Some(self.boot))?.heading;
        if heading.number == number { Ok(heading) } else { Err(Error::misnamed(&path)) }
    }

    /// Names that are text, in no order; ours are.
    fn names(&self) -> Result<Vec<String>, Error> {
        let list = || Error::io("list", &self.path);
        let entries = fs::read_dir(&self.path).map_err(list())?;
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(list())?.file_name().into_string());
        }
        Ok(names)
    }
}

/// What a name stands for, if it is one of ours: no sign, no leading zero.
fn parse(name: &str) -> Option<(Form, u64)> {
    let (form, digits) = name.split_once('.')?;
    let form = [Form::Log, Form::Image].into_iter().find(|known| known.name() == form)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some((form, number))
}

/// The name is one that [`Directory::create_temporary`] makes.
fn is_unfinished(name: &str) -> bool {
    let numbers = name.strip_suffix(UNFINISHED).and_then(|name| name.rsplit_once('.'));
    numbers.is_some_and(|(name, process)| parse(name).is_some() && process.parse::<u32>().is_ok())
}

/// Opens a plain file of this user.
pub(crate) fn open_plain(path: &Path, write: bool) -> Result<File, Error> {
    // Not waiting for whoever opens the other end, should it be a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    let wrong_type = || Error::WrongType { path: path.into(), expected: "plain file" };
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR) => wrong_type(),
        _ => Error::io("open", path)(error),
    })?;
    let metadata = file.metadata().map_err(Error::io("look at", path))?;
    if !metadata.is_file() {
        return Err(wrong_type());
    }
    check_owner(path, metadata.uid())?;
    Ok(file)
}

/// A directory of this user, open, and its mode.
fn open_own(path: &Path) -> Result<(File, u32), Error> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let directory = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => Error::WrongType { path: path.into(), expected: "directory" },
        _ => Error::io("open", path)(error),
    })?;
    let metadata = directory.metadata().map_err(Error::io("look at", path))?;
    check_owner(path, metadata.uid())?;
    Ok((directory, metadata.mode()))
}

fn check_owner(path: &Path, owner: u32) -> Result<(), Error> {
    if owner == geteuid().as_raw() { Ok(()) } else { Err(Error::ForeignOwner { path: path.into(), owner }) }
}

/// A file under a name that nobody looks for. The name goes away unless the file is kept under another.
#[derive(Debug)]
pub(crate) struct Temporary {
    name: TemporaryName,
    file: File,
}

#[derive(Debug)]
struct TemporaryName(PathBuf);

impl Temporary {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.name.0
    }

    /// Gives the file its name, which must not be there yet.
    pub(crate) fn keep_new(self, path: &Path) -> Result<File, Error> {
        fs::hard_link(&self.name.0, path).map_err(Error::io("make", path))?;
        Ok(self.file)
    }

    /// Gives the file its name, in place of whatever has it.
    pub(crate) fn keep_over(self, path: &Path) -> Result<File, Error> {
        fs::rename(&self.name.0, path).map_err(Error::io("make", path))?;
        Ok(self.file)
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // It may be gone: kept under its new name, or removed by a successor of this process.
        let _ = fs::remove_file(&self.0);
    }
}
