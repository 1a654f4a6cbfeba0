//! The thread that has the handles of the Xen libraries, which are made for one thread, and all domains.
//!
//! Others hand it closures and wait for what they return. Between them it moves the bytes of consoles.

use crate::builder;
use crate::control::Control;
use crate::domain::Live;
use crate::line::Line;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use xen_ffi::domain_state::{DomainStates, Life};
use xen_ffi::event_channel::{AcrossExec, EventChannels};
use xen_ffi::foreign_memory::ForeignMemory;
use xen_ffi::{DomId, PAGE_SIZE, Port};

type Job = Box<dyn FnOnce(&mut Hypervisor) + Send>;

/// Everything that is open, and every domain.
pub(crate) struct Hypervisor {
    pub(crate) control: Control,
    channels: EventChannels,
    foreign: ForeignMemory,
    states: DomainStates,
    kernel: Vec<u8>,
    /// By a number that no other domain gets.
    domains: BTreeMap<u64, Live>,
    by_port: BTreeMap<Port, u64>,
    /// The ring pages of those that are gone, as they were left.
    left: BTreeMap<u64, Box<[u8; PAGE_SIZE]>>,
    next: u64,
}

impl Hypervisor {
    fn open(kernel: Vec<u8>) -> io::Result<Self> {
        let channels = EventChannels::open(AcrossExec::Close).map_err(io::Error::other)?;
        let flags = OFlag::from_bits_retain(fcntl(channels.as_fd(), FcntlArg::F_GETFL)?);
        fcntl(channels.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self {
            control: Control::open()?,
            channels,
            foreign: ForeignMemory::open().map_err(io::Error::other)?,
            states: DomainStates::open().map_err(io::Error::other)?,
            kernel,
            domains: BTreeMap::new(),
            by_port: BTreeMap::new(),
            left: BTreeMap::new(),
            next: 1,
        })
    }

    /// Builds a domain, paused; gives its number here.
    pub(crate) fn create(&mut self, domid: u16, words: &str, granted: bool) -> io::Result<u64> {
        let built = builder::build(&self.control, domid, &self.kernel, words, granted)?;
        let made = self.attach(domid, built);
        if made.is_err() {
            self.control.destroy(domid)?;
        }
        made
    }

    fn attach(&mut self, domid: u16, built: builder::Built) -> io::Result<u64> {
        let page = |frame| self.foreign.map(DomId(domid), frame).map_err(io::Error::other);
        let (ring, console) = (page(built.store_frame)?, page(built.console_frame)?);
        let port = self.channels.bind_interdomain(DomId(domid), Port(built.console_port)).map_err(io::Error::other)?;
        let live = Live::new(domid, built, ring, console, port);
        let serial = self.next;
        self.next += 1;
        self.by_port.insert(live.console_port().port(), serial);
        self.domains.insert(serial, live);
        Ok(serial)
    }

    /// A domain by its number here.
    pub(crate) fn domain(&mut self, serial: u64) -> Option<&mut Live> {
        self.domains.get_mut(&serial)
    }

    /// The number here of the domain that has this id now.
    pub(crate) fn serial_of(&self, domid: u16) -> Option<u64> {
        self.domains.iter().rev().find(|(_, live)| live.domid == domid).map(|(&serial, _)| serial)
    }

    /// Runs `look` on a domain's ring page: on the page itself, or where the domain is gone, on what it left.
    pub(crate) fn peek(&self, serial: u64, offset: usize, out: &mut [u8]) {
        if let Some(live) = self.domains.get(&serial) {
            live.ring.copy_out(offset, out);
        } else if let Some(left) = self.left.get(&serial) {
            out.copy_from_slice(&left[offset..offset + out.len()]);
        }
    }

    /// Takes a domain apart, keeping its ring page mapped: it is dying until [`Self::forget`].
    pub(crate) fn destroy(&mut self, serial: u64) -> io::Result<()> {
        let Some(live) = self.domains.get(&serial) else { return Ok(()) };
        live.line.close();
        let domid = live.domid;
        self.control.destroy(domid)
    }

    /// Lets go of what is mapped of a domain.
    pub(crate) fn forget(&mut self, serial: u64) {
        if let Some(live) = self.domains.remove(&serial) {
            self.by_port.remove(&live.console_port().port());
            self.left.insert(serial, live.copy_of_ring());
            live.line.close();
        }
    }

    /// All domains that were made here and not forgotten.
    pub(crate) fn serials(&self) -> Vec<u64> {
        self.domains.keys().copied().collect()
    }

    /// Whether the hypervisor knows such a domain, dying or not.
    pub(crate) fn exists(&self, domid: u16) -> bool {
        self.states.get(DomId(domid)).is_ok_and(|state| state.life != Life::Gone)
    }

    /// Whether a domain has shut down.
    pub(crate) fn has_shut_down(&self, domid: u16) -> bool {
        self.states.get(DomId(domid)).is_ok_and(|state| state.shutdown)
    }

    fn take_signals(&mut self) {
        while let Ok(Some(port)) = self.channels.pending() {
            if let Some(live) = self.by_port.get(&port).and_then(|serial| self.domains.get_mut(serial)) {
                live.pump();
            }
            let _ = self.channels.unmask(port);
        }
    }

    /// Serves until nobody hands in work any more.
    fn run(&mut self, jobs: &Receiver<Job>, mut wake: PipeReader) {
        loop {
            let mut fds =
                [PollFd::new(self.channels.as_fd(), PollFlags::POLLIN), PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
            let polled = poll(&mut fds, PollTimeout::NONE);
            let (signalled, woken) = (fds[0].any() == Some(true), fds[1].any() == Some(true));
            if polled.is_err() {
                continue;
            }
            if signalled {
                self.take_signals();
            }
            if woken {
                // How often is of no interest.
                let _ = wake.read(&mut [0; 64]);
                loop {
                    match jobs.try_recv() {
                        Ok(job) => job(self),
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return,
                    }
                }
            }
        }
    }
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Access {
    jobs: Mutex<Option<Sender<Job>>>,
    wake: PipeWriter,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Access {
    /// Starts the thread.
    pub(crate) fn start(kernel: Vec<u8>) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        let (jobs, work) = mpsc::channel::<Job>();
        let (tell, opened) = mpsc::channel();
        let thread =
            thread::Builder::new().name("hypervisor".into()).spawn(move || match Hypervisor::open(kernel) {
                Ok(mut hypervisor) => {
                    let _ = tell.send(Ok(()));
                    hypervisor.run(&work, woken);
                }
                Err(error) => drop(tell.send(Err(error))),
            })?;
        opened.recv().map_err(io::Error::other)??;
        Ok(Self { jobs: Mutex::new(Some(jobs)), wake, thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread run `job`, and waits for what it returns.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut Hypervisor) -> T + Send + 'static) -> T {
        let (tell, done) = mpsc::channel();
        let job: Job = Box::new(move |hypervisor| drop(tell.send(job(hypervisor))));
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().expect("only dropping ends the thread").send(job).expect("the thread runs");
        drop(jobs);
        (&self.wake).write_all(&[1]).expect("the thread runs");
        done.recv().expect("the thread runs")
    }

    /// A domain's console line.
    pub(crate) fn line(&self, serial: u64) -> Option<Arc<Line>> {
        self.run(move |hypervisor| hypervisor.domain(serial).map(|live| Arc::clone(&live.line)))
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = (&self.wake).write_all(&[1]);
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
