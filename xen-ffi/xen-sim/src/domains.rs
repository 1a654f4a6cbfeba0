//! Domains, and what happens to them.

use crate::host::Inner;
use crate::ring::Word;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use xen_sim_switchboard::{CHANNELS, DOMID_FIRST_RESERVED, DomainFlags, DomainView, SLOTS};

/// Port of the store in a domain that has just been created.
const STORE_PORT: u32 = 1;

/// Frame number of slot 0; the numbers of the others follow.
const FIRST_FRAME: u64 = 0x1_0000;

/// Why a domain shut down (`SHUTDOWN_*` of Xen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// It switched itself off.
    Poweroff,
    /// It wants to start anew.
    Reboot,
    /// It sleeps, to be saved or moved.
    Suspend,
    /// It failed.
    Crash,
}

impl ShutdownReason {
    /// The number that Xen has for it.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The reason of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "poweroff" => Some(Self::Poweroff),
            "reboot" => Some(Self::Reboot),
            "suspend" => Some(Self::Suspend),
            "crash" => Some(Self::Crash),
            _ => None,
        }
    }
}

/// What can be special about a new domain.
#[derive(Clone, Debug)]
pub struct DomainOptions {
    /// Whether its ring can be mapped by grant reference 1; if not, only by its frame number.
    pub granted: bool,
    /// Whether the hypervisor writes the store port into the ring page, as it does for a domain without a toolstack.
    pub port_in_page: bool,
}

impl Default for DomainOptions {
    fn default() -> Self {
        Self { granted: true, port_in_page: false }
    }
}

/// One moment of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its id, which a later domain may have again.
    pub domid: u16,
    /// Its store port.
    pub port: u32,
    /// Frame number of its ring page.
    pub gfn: u64,
    /// Differs from that of every other domain there was on this host.
    pub unique_id: u64,
    /// Its handle, a random uuid.
    pub handle: [u8; 16],
    /// Why it has shut down, as a number, if it has.
    pub shutdown: Option<u32>,
    /// Whether it was destroyed and is only not gone yet.
    pub dying: bool,
}

impl Domain {
    pub(crate) fn new(domid: u16, view: &DomainView) -> Self {
        Self {
            domid,
            port: view.ports[0].0,
            gfn: view.gfn,
            unique_id: view.unique_id,
            handle: view.handle,
            shutdown: view.flags.shutdown.then_some(view.reason),
            dying: view.flags.dying,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.dying, self.shutdown) {
            (true, _) => "dying".to_owned(),
            (false, Some(reason)) => format!("shutdown({reason})"),
            (false, None) => "running".to_owned(),
        };
        write!(
            f,
            "{} {state} port={} gfn={:#x} unique_id={} handle=",
            self.domid, self.port, self.gfn, self.unique_id
        )?;
        self.handle.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What of the host nobody else may see.
#[derive(Debug)]
pub(crate) struct Books {
    unique_ids: u64,
    slots: u32,
    channels: u32,
    free_channels: VecDeque<u32>,
}

impl Default for Books {
    /// Those of a host without a domain. There is room for every channel from the beginning: whoever measures memory in a
    /// host's process should not see how many domains the host has had.
    fn default() -> Self {
        Self { unique_ids: 0, slots: 0, channels: 0, free_channels: VecDeque::with_capacity(CHANNELS) }
    }
}

impl Books {
    fn take_slot(&mut self) -> io::Result<u32> {
        if self.slots == SLOTS {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "this host has had all the domains it can"));
        }
        self.slots += 1;
        Ok(self.slots - 1)
    }

    fn take_channel(&mut self) -> io::Result<u32> {
        if (self.channels as usize) < CHANNELS {
            self.channels += 1;
            return Ok(self.channels - 1);
        }
        // As late as can be: somebody may still hold the guest that had it before.
        let oldest = self.free_channels.pop_front();
        oldest.ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "all event channels are in use"))
    }
}

fn random_handle() -> io::Result<[u8; 16]> {
    let mut handle = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut handle)?;
    Ok(handle)
}

pub(crate) fn no_domain(domid: u16) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no domain {domid}"))
}

impl Inner {
    pub(crate) fn create(&self, domid: u16, options: &DomainOptions) -> io::Result<Domain> {
        let board = self.switchboard();
        let mut books = self.books();
        let Some(record) = board.domain(domid) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("domain ids end at {DOMID_FIRST_RESERVED}"),
            ));
        };
        if record.read().flags.exists {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a domain {domid}")));
        }
        let handle = if domid == 0 { [0; 16] } else { random_handle()? };
        let slot = books.take_slot()?;
        let channel = books.take_channel()?;
        books.unique_ids += 1;
        board.channel(channel).open();
        if options.port_in_page
            && let Some(page) = self.memory.page(slot)
        {
            page.set_word(Word::EvtchnPort.offset(), STORE_PORT);
        }
        let mut view = DomainView {
            flags: DomainFlags { exists: true, granted: options.granted, ..DomainFlags::default() },
            slot,
            gfn: FIRST_FRAME + u64::from(slot),
            unique_id: books.unique_ids,
            handle,
            ..DomainView::default()
        };
        view.ports[0] = (STORE_PORT, channel);
        record.write(&view);
        board.reach(domid);
        drop(books);
        if board.reports_changes() {
            self.deliver(board.change(domid));
        }
        Ok(Domain::new(domid, &view))
    }

    /// Changes a domain's record, if there is one.
    fn change(&self, domid: u16, change: impl FnOnce(&mut DomainView)) -> io::Result<DomainView> {
        let _books = self.books();
        let record = self.switchboard().domain(domid).ok_or_else(|| no_domain(domid))?;
        let mut view = record.read();
        if !view.flags.exists {
            return Err(no_domain(domid));
        }
        change(&mut view);
        record.write(&view);
        Ok(view)
    }

    pub(crate) fn shutdown(&self, domid: u16, reason: ShutdownReason) -> io::Result<()> {
        self.change(domid, |view| {
            view.flags.shutdown = true;
            view.reason = reason.number();
        })?;
        self.deliver(self.switchboard().change(domid));
        Ok(())
    }

    pub(crate) fn resume(&self, domid: u16) -> io::Result<()> {
        self.change(domid, |view| {
            view.flags.shutdown = false;
            view.reason = 0;
        })?;
        Ok(())
    }

    pub(crate) fn begin_destroy(&self, domid: u16) -> io::Result<()> {
        self.change(domid, |view| view.flags.dying = true)?;
        self.deliver(self.switchboard().change(domid));
        Ok(())
    }

    pub(crate) fn destroy(&self, domid: u16) -> io::Result<()> {
        let mut gone = DomainView::default();
        self.change(domid, |view| gone = std::mem::take(view))?;
        for (port, channel) in gone.ports {
            if port != 0 {
                self.close_channel(channel);
            }
        }
        crate::bridge::withdraw(self, domid);
        self.deliver(self.switchboard().change(domid));
        Ok(())
    }

    pub(crate) fn renew_port(&self, domid: u16) -> io::Result<u32> {
        let channel = self.books().take_channel()?;
        self.switchboard().channel(channel).open();
        let mut old = (0, 0);
        let renewed = self.change(domid, |view| {
            old = view.ports[0];
            view.ports[0] = (old.0 + 1, channel);
        });
        match renewed {
            Ok(view) => {
                self.close_channel(old.1);
                Ok(view.ports[0].0)
            }
            Err(error) => {
                self.books().free_channels.push_back(channel);
                Err(error)
            }
        }
    }

    /// Closes a guest's port; the daemon's end of it stays bound, to nobody.
    fn close_channel(&self, channel: u32) {
        let board = self.switchboard();
        if let Some(local) = board.channel(channel).close().and_then(|peer| board.local(peer)) {
            local.cut_off(channel);
        }
        self.books().free_channels.push_back(channel);
    }

    pub(crate) fn domain(&self, domid: u16) -> Option<Domain> {
        self.switchboard().existing(domid).map(|view| Domain::new(domid, &view))
    }

    pub(crate) fn domains(&self) -> Vec<Domain> {
        let mut domains = Vec::new();
        let mut next = Some(0);
        while let Some((domid, view)) = next.and_then(|first| self.switchboard().next_existing(first)) {
            domains.push(Domain::new(domid, &view));
            next = domid.checked_add(1);
        }
        domains
    }
}
