//! Domains, event channels and open event files, and what ties them together.

use crate::{
    CHANNELS, Channel, DOMID_FIRST_RESERVED, DomainRecord, DomainView, FIRST_LOCAL, LOCALS, LocalPort, Owner,
    VIRQ_DOM_EXC,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// How many event files can be open at once.
pub const HANDLES: usize = 256;

/// Words of the bitmap of changed domains.
const CHANGED_WORDS: usize = (DOMID_FIRST_RESERVED as usize).div_ceil(64);

/// A number of `errno.h`, as the hypervisor or the kernel would give it.
pub type Errno = i32;

/// All of the host but its pages. All zero is a host without a domain.
#[derive(Debug)]
#[repr(C)]
pub struct Switchboard {
    /// Inode of each open event file, 0 for none: how a program that was handed a descriptor finds out which it is.
    files: [AtomicU64; HANDLES],
    /// Local port that the interrupt of changed domains is bound to, 0 for none.
    virq: AtomicU32,
    /// 1 once somebody has asked which domains changed, as only hosts from Xen 4.21 on let one ask.
    reports_changes: AtomicU32,
    /// One more than the highest domain id ever used.
    domid_end: AtomicU32,
    _reserved: AtomicU32,
    changed: [AtomicU64; CHANGED_WORDS],
    locals: [LocalPort; LOCALS],
    channels: [Channel; CHANNELS],
    domains: [DomainRecord; DOMID_FIRST_RESERVED as usize],
}

impl Switchboard {
    /// The record of a domain; `None` for reserved ids.
    #[must_use]
    pub fn domain(&self, domid: u16) -> Option<&DomainRecord> {
        self.domains.get(usize::from(domid))
    }

    /// The domain as it is now; `None` when there is none.
    #[must_use]
    pub fn existing(&self, domid: u16) -> Option<DomainView> {
        self.domain(domid).map(DomainRecord::read).filter(|view| view.flags.exists)
    }

    /// The first domain that exists from `first` on.
    #[must_use]
    pub fn next_existing(&self, first: u16) -> Option<(u16, DomainView)> {
        let end = u16::try_from(self.domid_end.load(SeqCst)).unwrap_or(DOMID_FIRST_RESERVED);
        (first..end).find_map(|domid| Some((domid, self.existing(domid)?)))
    }

    /// Tells readers that domain ids up to `domid` may be in use.
    pub fn reach(&self, domid: u16) {
        self.domid_end.fetch_max(u32::from(domid) + 1, SeqCst);
    }

    /// A guest's end by its number.
    ///
    /// # Panics
    /// When there cannot be one of that number.
    #[must_use]
    pub fn channel(&self, number: u32) -> &Channel {
        &self.channels[number as usize]
    }

    /// The domain and the port of it that a channel is the other end of.
    #[must_use]
    pub fn end_of(&self, channel: u32) -> Option<(u16, u32)> {
        let mut first = 0;
        while let Some((domid, view)) = self.next_existing(first) {
            if let Some(&(port, _)) = view.ports.iter().find(|&&(port, number)| port != 0 && number == channel) {
                return Some((domid, port));
            }
            first = domid + 1;
        }
        None
    }

    /// A local port, if there can be one of that number.
    #[must_use]
    pub fn local(&self, port: u32) -> Option<&LocalPort> {
        self.locals.get(port as usize)
    }

    // ---- event files ----

    /// Notes that event file `owner` has this inode number.
    pub fn set_file(&self, owner: Owner, inode: u64) {
        self.files[usize::from(owner)].store(inode, SeqCst);
    }

    /// The open event file with this inode number.
    #[must_use]
    pub fn file(&self, inode: u64) -> Option<Owner> {
        let index = self.files.iter().position(|file| inode != 0 && file.load(SeqCst) == inode)?;
        Owner::try_from(index).ok()
    }

    /// Unbinds all that belongs to event file `owner`, which nobody holds any more.
    pub fn release(&self, owner: Owner) {
        self.set_file(owner, 0);
        for port in FIRST_LOCAL.. {
            match self.local(port) {
                Some(local) if local.belongs_to(owner) => self.drop_local(port, local),
                Some(_) => {}
                None => break,
            }
        }
    }

    // ---- domain 0's side of the channels ----

    /// Binds a free local port to `port` of domain `domid`; gives the local port, which the caller must write to the
    /// event file at once.
    ///
    /// # Errors
    /// `ESRCH` for an unknown domain, `EINVAL` for a port that it does not offer or that is bound, `ENOSPC` when no
    /// local port is free.
    pub fn bind_interdomain(&self, owner: Owner, domid: u32, port: u32) -> Result<u32, Errno> {
        let domid = u16::try_from(domid).map_err(|_| libc::ESRCH)?;
        let view = self.existing(domid).ok_or(libc::ESRCH)?;
        let channel = view.channel(port).ok_or(libc::EINVAL)?;
        let (port, local) = self.take_local(owner)?;
        local.aim(channel);
        if !self.channel(channel).attach(port) {
            local.free();
            return Err(libc::EINVAL);
        }
        local.bind();
        Ok(port)
    }

    /// Binds a free local port to a virtual interrupt; as [`Self::bind_interdomain`] otherwise.
    ///
    /// # Errors
    /// `EINVAL` for any interrupt but `VIRQ_DOM_EXC`, `EEXIST` when it is bound, `ENOSPC` when no local port is free.
    pub fn bind_virq(&self, owner: Owner, virq: u32) -> Result<u32, Errno> {
        if virq != VIRQ_DOM_EXC {
            return Err(libc::EINVAL);
        }
        let (port, local) = self.take_local(owner)?;
        if self.virq.compare_exchange(0, port, SeqCst, SeqCst).is_err() {
            local.free();
            return Err(libc::EEXIST);
        }
        let mut first = 0;
        while let Some((domid, _)) = self.next_existing(first) {
            self.mark_changed(domid);
            first = domid + 1;
        }
        local.bind();
        Ok(port)
    }

    /// Gives a local port back.
    ///
    /// # Errors
    /// `EINVAL` for a port that cannot be, `ENOTCONN` for one that is not `owner`'s.
    pub fn unbind(&self, owner: Owner, port: u32) -> Result<(), Errno> {
        let local = self.owned(owner, port)?;
        self.drop_local(port, local);
        Ok(())
    }

    /// Sends an event to the guest at the other end, if there still is one.
    ///
    /// # Errors
    /// As [`Self::unbind`].
    pub fn notify(&self, owner: Owner, port: u32) -> Result<(), Errno> {
        if let Some(channel) = self.owned(owner, port)?.channel() {
            self.channel(channel).arrive();
        }
        Ok(())
    }

    /// Lets the next event of a local port through; says whether one has come already, which the caller must then
    /// write to the event file.
    ///
    /// # Errors
    /// As [`Self::unbind`].
    pub fn unmask(&self, owner: Owner, port: u32) -> Result<bool, Errno> {
        Ok(self.owned(owner, port)?.unmask())
    }

    fn owned(&self, owner: Owner, port: u32) -> Result<&LocalPort, Errno> {
        let local = self.local(port).ok_or(libc::EINVAL)?;
        if local.belongs_to(owner) { Ok(local) } else { Err(libc::ENOTCONN) }
    }

    fn take_local(&self, owner: Owner) -> Result<(u32, &LocalPort), Errno> {
        let mut ports = (FIRST_LOCAL..).zip(&self.locals[FIRST_LOCAL as usize..]);
        ports.find(|(_, local)| local.take(owner)).ok_or(libc::ENOSPC)
    }

    fn drop_local(&self, port: u32, local: &LocalPort) {
        if let Some(channel) = local.channel() {
            self.channel(channel).detach(port);
        }
        let _ = self.virq.compare_exchange(port, 0, SeqCst, SeqCst);
        local.free();
    }

    // ---- the guests' side ----

    /// A guest sends an event; gives event file and local port when the port must now be written there.
    #[must_use]
    pub fn send(&self, channel: u32) -> Option<(Owner, u32)> {
        let port = self.channel(channel).peer()?;
        Some((self.local(port)?.raise()?, port))
    }

    // ---- changes of domains ----

    /// A domain has changed its state; gives event file and local port when the interrupt must now be written there.
    #[must_use]
    pub fn change(&self, domid: u16) -> Option<(Owner, u32)> {
        self.mark_changed(domid);
        let port = self.virq.load(SeqCst);
        if port == 0 {
            return None;
        }
        Some((self.local(port)?.raise()?, port))
    }

    /// Takes the lowest domain that changed since it was last taken.
    ///
    /// # Errors
    /// `ENOENT` when there is none, `EACCES` when nobody is told of changes.
    pub fn take_changed(&self) -> Result<u16, Errno> {
        if self.virq.load(SeqCst) == 0 {
            return Err(libc::EACCES);
        }
        for (base, word) in (0..).step_by(64).zip(&self.changed) {
            let bits = word.load(SeqCst);
            if bits != 0 {
                let lowest = bits & bits.wrapping_neg();
                if word.fetch_and(!lowest, SeqCst) & lowest != 0 {
                    return Ok(base + u16::try_from(lowest.trailing_zeros()).expect("a bit of 64"));
                }
            }
        }
        Err(libc::ENOENT)
    }

    /// From now on a daemon is also told of new domains, as a hypervisor does that lets one ask for changes.
    pub fn report_changes(&self) {
        self.reports_changes.store(1, SeqCst);
    }

    /// Whether a daemon is told of new domains.
    #[must_use]
    pub fn reports_changes(&self) -> bool {
        self.reports_changes.load(SeqCst) != 0
    }

    fn mark_changed(&self, domid: u16) {
        if let Some(word) = self.changed.get(usize::from(domid) / 64) {
            word.fetch_or(1 << (domid % 64), SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainFlags, Memory};

    /// A host with one domain that offers port 1, behind channel 5.
    fn host() -> Memory {
        let memory = Memory::create().unwrap();
        let flags = DomainFlags { exists: true, granted: true, ..DomainFlags::default() };
        let mut view = DomainView { flags, unique_id: 1, ..DomainView::default() };
        view.ports[0] = (1, 5);
        memory.switchboard().domain(7).unwrap().write(&view);
        memory.switchboard().reach(7);
        memory
    }

    #[test]
    fn an_event_goes_both_ways_through_a_bound_port() {
        let memory = host();
        let board = memory.switchboard();
        assert_eq!(board.send(5), None, "nobody has bound it");
        let local = board.bind_interdomain(2, 7, 1).unwrap();
        assert_eq!(board.send(5), None, "the made-up first event has not been seen");
        assert_eq!(board.unmask(2, local), Ok(true));
        assert_eq!(board.unmask(2, local), Ok(false));
        assert_eq!(board.send(5), Some((2, local)));
        let before = board.channel(5).events();
        assert_eq!(board.notify(2, local), Ok(()));
        assert_eq!(board.channel(5).events(), before + 1);
    }

    #[test]
    fn a_port_is_bound_once_at_a_time_and_by_its_owner_only() {
        let memory = host();
        let board = memory.switchboard();
        let local = board.bind_interdomain(2, 7, 1).unwrap();
        assert_eq!(board.bind_interdomain(3, 7, 1), Err(libc::EINVAL));
        assert_eq!(board.bind_interdomain(3, 7, 2), Err(libc::EINVAL));
        assert_eq!(board.bind_interdomain(3, 8, 1), Err(libc::ESRCH));
        assert_eq!(board.unbind(3, local), Err(libc::ENOTCONN));
        assert_eq!(board.notify(2, 1_000_000), Err(libc::EINVAL));
        assert_eq!(board.unbind(2, local), Ok(()));
        assert_eq!(board.send(5), None);
        assert!(board.bind_interdomain(3, 7, 1).is_ok());
    }

    #[test]
    fn all_that_an_event_file_bound_goes_with_it() {
        let memory = host();
        let board = memory.switchboard();
        board.set_file(2, 1234);
        assert_eq!((board.file(1234), board.file(0)), (Some(2), None));
        board.bind_interdomain(2, 7, 1).unwrap();
        board.bind_virq(2, VIRQ_DOM_EXC).unwrap();
        assert_eq!(board.bind_virq(3, VIRQ_DOM_EXC), Err(libc::EEXIST));
        board.release(2);
        assert_eq!(board.file(1234), None);
        assert!(board.bind_interdomain(3, 7, 1).is_ok());
        assert!(board.bind_virq(3, VIRQ_DOM_EXC).is_ok());
    }

    #[test]
    fn a_record_is_never_read_half_written() {
        let memory = host();
        let record = memory.switchboard().domain(7).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    record.write(&DomainView { unique_id: round, gfn: round, ..DomainView::default() });
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while last < 19_999 {
                    let view = record.read();
                    // The very first record has an id and no frame.
                    assert!(view.unique_id == view.gfn || view.flags.exists);
                    last = last.max(view.gfn);
                }
            });
        });
    }
}
