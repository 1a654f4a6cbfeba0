//! A running host.

use crate::broker;
use crate::domains::{Books, Domain, DomainOptions, ShutdownReason};
use crate::guest::Guest;
use crate::toolstack;
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use xen_sim_switchboard::{HANDLES, Memory, Owner, Switchboard};

/// What the broker's threads, guests and bridges share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) memory: Memory,
    /// The ends of the open event files through which ports reach the daemons.
    files: Vec<RwLock<Option<PipeWriter>>>,
    pub(crate) books: Mutex<Books>,
    callers: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) registry: mio::Registry,
    pub(crate) lines: crate::bridge::Lines,
    closing: AtomicBool,
}

impl Inner {
    pub(crate) fn switchboard(&self) -> &Switchboard {
        self.memory.switchboard()
    }

    /// The threads that answer callers, as far as they were not joined.
    pub(crate) fn callers(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker's books; a test that panics elsewhere does not make them wrong.
    pub(crate) fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("run/socket")
    }

    /// Whether the host is about to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Takes a free number for an event file and keeps its writing end.
    pub(crate) fn add_file(&self, writer: PipeWriter) -> io::Result<Owner> {
        for (owner, file) in (0..).zip(&self.files) {
            let mut file = file.write().unwrap_or_else(PoisonError::into_inner);
            if file.is_none() {
                *file = Some(writer);
                return Ok(owner);
            }
        }
        Err(io::Error::other("all event files are in use"))
    }

    /// Runs `use_file` with the writing end of an event file, if it is open.
    pub(crate) fn with_file<T>(&self, owner: Owner, use_file: impl FnOnce(&PipeWriter) -> T) -> Option<T> {
        let file = self.files[usize::from(owner)].read().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(use_file)
    }

    /// Forgets an event file that nobody holds any more, with all that was bound through it.
    pub(crate) fn drop_file(&self, owner: Owner) {
        let writer = self.files[usize::from(owner)].write().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some() {
            self.switchboard().release(owner);
        }
    }

    /// Writes a port to an event file. The pipe has room for every port there can be; a daemon that died meanwhile
    /// misses it.
    pub(crate) fn deliver(&self, delivery: Option<(Owner, u32)>) {
        if let Some((owner, port)) = delivery {
            self.with_file(owner, |mut file| {
                let _ = file.write_all(&port.to_ne_bytes());
            });
        }
    }
}

/// A simulated Xen host, in a directory of its own. Dropping it ends the broker; daemons and guests keep the memory.
///
/// In the directory are `host.sock`, through which daemons and `xen-sim ctl` reach the broker, `run`, the run
/// directory of the daemon, and `guest-<domid>.sock` for each guest that is offered.
#[derive(Debug)]
pub struct Host {
    inner: Arc<Inner>,
    waker: mio::Waker,
    service: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts a host with domain 0 only; makes the directory when it is missing.
    ///
    /// # Errors
    /// When the directory, the memory or the socket cannot be made; a broker that is still at work there is left
    /// alone (`AddrInUse`).
    pub fn start(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("run"))?;
        let dir = dir.canonicalize()?;
        let memory = Memory::create()?;
        let poll = mio::Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = mio::Waker::new(poll.registry(), broker::WAKER)?;
        let listener = broker::listen(&dir.join("host.sock"))?;
        let inner = Arc::new(Inner {
            dir,
            memory,
            files: std::iter::repeat_with(RwLock::default).take(HANDLES).collect(),
            books: Mutex::default(),
            callers: Mutex::default(),
            registry,
            lines: crate::bridge::Lines::default(),
            closing: AtomicBool::new(false),
        });
        inner.create(0, &DomainOptions::default())?;
        let service = broker::spawn(Arc::clone(&inner), poll, listener)?;
        Ok(Self { inner, waker, service: Some(service) })
    }

    /// The host's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The socket at which the daemon is to listen.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.inner.socket()
    }

    /// A command that runs `program`, one of the three daemons, on this host; its arguments are the caller's to add.
    ///
    /// oxenstored, whose socket has a fixed name, runs in a mount namespace of its own, where that name leads to the
    /// run directory.
    ///
    /// # Errors
    /// When the library to preload is missing, or the host's directory is below `/run`, which oxenstored would not
    /// see.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        crate::launch::command(&self.inner.dir, program)
    }

    // ---- domains ----

    /// Creates a domain; nobody is told of it but a daemon that can ask for changes.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one of that id, `InvalidInput` for a reserved id.
    pub fn create(&self, domid: u16) -> io::Result<Domain> {
        self.inner.create(domid, &DomainOptions::default())
    }

    /// Creates a domain that is unlike others.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_with(&self, domid: u16, options: &DomainOptions) -> io::Result<Domain> {
        self.inner.create(domid, options)
    }

    /// Lets a domain shut down by itself. The daemon gets the interrupt, as for each of the changes below.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain.
    pub fn shutdown(&self, domid: u16, reason: ShutdownReason) -> io::Result<()> {
        self.inner.shutdown(domid, reason)
    }

    /// Lets a domain that has shut down run again. The daemon gets no interrupt; a toolstack tells it by RESUME.
    ///
    /// # Errors
    /// As [`Self::shutdown`].
    pub fn resume(&self, domid: u16) -> io::Result<()> {
        self.inner.resume(domid)
    }

    /// Destroys a domain, but leaves it there as Xen does while others hold its memory: "dead" to Xen, "dying" to
    /// libxenctrl. Its ring can be mapped no more. [`Self::destroy`] ends it.
    ///
    /// # Errors
    /// As [`Self::shutdown`].
    pub fn begin_destroy(&self, domid: u16) -> io::Result<()> {
        self.inner.begin_destroy(domid)
    }

    /// Destroys a domain: its id is free at once. Pages that are mapped stay mapped.
    ///
    /// # Errors
    /// As [`Self::shutdown`].
    pub fn destroy(&self, domid: u16) -> io::Result<()> {
        self.inner.destroy(domid)
    }

    /// Replaces a domain's store port by another one, as a guest does that starts another kernel.
    ///
    /// # Errors
    /// As [`Self::shutdown`].
    pub fn renew_port(&self, domid: u16) -> io::Result<u32> {
        self.inner.renew_port(domid)
    }

    /// A domain as it is now, if there is such.
    #[must_use]
    pub fn domain(&self, domid: u16) -> Option<Domain> {
        self.inner.domain(domid)
    }

    /// All domains, in the order of their ids.
    #[must_use]
    pub fn domains(&self) -> Vec<Domain> {
        self.inner.domains()
    }

    /// Waits until the threads have ended that answer whoever asked the host for something: a daemon that opens or binds,
    /// or `xen-sim ctl`. What is measured of this process from then on has no thread of the host's in it but the broker.
    pub fn wait_for_callers(&self) {
        broker::join_callers(&self.inner);
    }

    // ---- guests ----

    /// The kernel of a domain; of domain 0, the one that has the ring of `/proc/xen/xsd_kva`. Several may be taken,
    /// but only one at a time may write requests, and one read replies.
    ///
    /// # Errors
    /// As [`Self::shutdown`].
    pub fn guest(&self, domid: u16) -> io::Result<Guest> {
        Guest::new(&self.inner, domid)
    }

    /// Offers a domain's ring as the unix socket `guest-<domid>.sock` in the host's directory.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain; those of making a socket.
    pub fn offer(&self, domid: u16) -> io::Result<()> {
        crate::bridge::offer(&self.inner, domid)
    }

    // ---- the toolstack's part ----

    /// Asks the daemon for something that it always knows: once this succeeds, the daemon has set itself up.
    ///
    /// # Errors
    /// When nobody listens, or a daemon that listens gives no answer within a minute.
    pub fn ask_for_sign_of_life(&self) -> io::Result<()> {
        toolstack::ask_for_sign_of_life(&self.inner)
    }

    /// Introduces a domain to the daemon, over its socket.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain, and what the daemon answers.
    pub fn introduce(&self, domid: u16) -> io::Result<()> {
        toolstack::introduce(&self.inner, &[domid])
    }

    /// Introduces many domains, over one connection.
    ///
    /// # Errors
    /// As [`Self::introduce`].
    pub fn introduce_all(&self, domids: &[u16]) -> io::Result<()> {
        toolstack::introduce(&self.inner, domids)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.inner.closing.store(true, SeqCst);
        // Without the waker the thread ends at its next event, at the latest with the process.
        if self.waker.wake().is_ok()
            && let Some(service) = self.service.take()
        {
            let _ = service.join();
        }
        crate::bridge::withdraw_all(&self.inner);
        let _ = fs::remove_file(self.inner.dir.join("host.sock"));
    }
}
