//! libxenctrl, opened at run time.
//!
//! What is called is declared here by hand. Of the structures only the start is declared, which has been the same in
//! every version; the library fills all of its own version's structure, so it is given more room than any has.

use core::{
    ffi::{c_int, c_uint, c_void},
    mem::{MaybeUninit, offset_of},
    ptr,
    ptr::NonNull,
};
use std::{collections::BTreeMap, io};

use super::{DomainState, Life, UniqueId, differences, gone, library::Library};
use crate::{
    error::{Error, check, check_pointer},
    id::{DomId, Port},
};

/// `xc_interface`, never looked into.
#[repr(C)]
pub(super) struct Interface {
    _opaque: [u8; 0],
}

type Open = unsafe extern "C" fn(logger: *mut c_void, build_logger: *mut c_void, flags: c_uint) -> *mut Interface;
type Close = unsafe extern "C" fn(*mut Interface) -> c_int;
type GetInfo = unsafe extern "C" fn(*mut Interface, first: u32, count: c_uint, *mut Room) -> c_int;
type ChannelStatus = unsafe extern "C" fn(*mut Interface, *mut Channel) -> c_int;
type GetInfoSingle = unsafe extern "C" fn(*mut Interface, domid: u32, *mut Room) -> c_int;

/// `xc_evtchn_status_t`, the hypervisor's own `evtchn_status`, which is the same in every version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Channel {
    pub(super) domid: u16,
    pub(super) port: u32,
    pub(super) status: u32,
    pub(super) vcpu: u32,
    /// Who is at the other end, where the status is [`Channel::INTERDOMAIN`].
    pub(super) remote_domid: u16,
    pub(super) remote_port: u32,
}

impl Channel {
    /// `DOMID_SELF`.
    pub(super) const SELF: u16 = 0x7ff0;
    pub(super) const INTERDOMAIN: u32 = 2;
}

/// Start of `xc_dominfo_t`, which `xc_domain_getinfo` fills (up to Xen 4.17).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DomInfo {
    pub(super) domid: u32,
    pub(super) ssidref: u32,
    /// Bits, from the lowest: dying, crashed, shutdown, and others.
    pub(super) bits: u32,
    pub(super) shutdown_reason: c_uint,
    pub(super) pages: [libc::c_ulong; 5],
    pub(super) cpu_time: u64,
    pub(super) max_memory: libc::c_ulong,
    pub(super) online_vcpus: c_uint,
    pub(super) max_vcpu_id: c_uint,
    pub(super) handle: [u8; 16],
}

impl DomInfo {
    pub(super) const DYING: u32 = 1 << 0;
    pub(super) const CRASHED: u32 = 1 << 1;
    pub(super) const SHUTDOWN: u32 = 1 << 2;
}

/// Start of `xc_domaininfo_t`, which `xc_domain_getinfo_single` and `xc_domain_getinfolist` fill.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainInfo {
    pub(super) domid: u16,
    pub(super) padding: u16,
    pub(super) flags: u32,
    pub(super) pages: [u64; 6],
    pub(super) cpu_time: u64,
    pub(super) online_vcpus: u32,
    pub(super) max_vcpu_id: u32,
    pub(super) ssidref: u32,
    pub(super) handle: [u8; 16],
}

impl DomainInfo {
    pub(super) const DYING: u32 = 1 << 0;
    pub(super) const SHUTDOWN: u32 = 1 << 2;
}

/// Room for either structure of any version. They have between 100 and 200 bytes. It starts as zeroes; what the library
/// leaves in the gaps between fields is nobody's concern.
#[repr(C, align(16))]
pub(super) struct Room(MaybeUninit<[u8; 1024]>);

// The starts are read out of the room.
const _: () = assert!(size_of::<DomInfo>() <= size_of::<Room>() && size_of::<DomainInfo>() <= size_of::<Room>());
const _: () = assert!(align_of::<DomInfo>() <= align_of::<Room>() && align_of::<DomainInfo>() <= align_of::<Room>());
const _: () = assert!(offset_of!(DomainInfo, handle) == 76);
const _: () = assert!(offset_of!(Channel, remote_domid) == 16 && offset_of!(Channel, remote_port) == 20);

impl Room {
    fn new() -> Self {
        Self(MaybeUninit::zeroed())
    }

    pub(super) fn dom_info(&self) -> DomInfo {
        // SAFETY: the room is large and aligned enough, and every field is initialised, by zeroes or the library; any bits will do.
        unsafe { self.0.as_ptr().cast::<DomInfo>().read() }
    }

    pub(super) fn domain_info(&self) -> DomainInfo {
        // SAFETY: the room is large and aligned enough, and every field is initialised, by zeroes or the library; any bits will do.
        unsafe { self.0.as_ptr().cast::<DomainInfo>().read() }
    }
}

/// How the library is asked for one domain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
    /// Up to Xen 4.17: one function, which answers with the next domain where the asked one is not.
    Info(GetInfo),
    /// Since: one for a domain, one for a list of those from a number on.
    SingleAndList(GetInfoSingle, GetInfo),
}

/// The functions of the library, which stay loaded while the program runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) open: Open,
    pub(super) close: Close,
    pub(super) query: Query,
    pub(super) channel_status: ChannelStatus,
}

impl Functions {
    pub(super) fn load(library: &Library) -> Result<Self, Error> {
        let symbol = |name| {
            library.symbol(name).ok_or_else(|| {
                let name = name.to_string_lossy();
                Error::new("loading libxenctrl", io::Error::other(format!("it has no function {name}")))
            })
        };
        // Only one of the two exists in a version, and it decides how the answer is laid out.
        let query = if let Some(single) = library.symbol(c"xc_domain_getinfo_single") {
            let list = symbol(c"xc_domain_getinfolist")?;
            // SAFETY: the library's function has this signature.
            let single = unsafe { core::mem::transmute::<NonNull<c_void>, GetInfoSingle>(single) };
            // SAFETY: the library's function has this signature.
            let list = unsafe { core::mem::transmute::<NonNull<c_void>, GetInfo>(list) };
            Query::SingleAndList(single, list)
        } else {
            let info = symbol(c"xc_domain_getinfo")?;
            // SAFETY: the library's function has this signature.
            Query::Info(unsafe { core::mem::transmute::<NonNull<c_void>, GetInfo>(info) })
        };
        let (open, close) = (symbol(c"xc_interface_open")?, symbol(c"xc_interface_close")?);
        // SAFETY: the library's function has this signature.
        let open = unsafe { core::mem::transmute::<NonNull<c_void>, Open>(open) };
        // SAFETY: the library's function has this signature.
        let close = unsafe { core::mem::transmute::<NonNull<c_void>, Close>(close) };
        let channel_status = symbol(c"xc_evtchn_status")?;
        // SAFETY: the library's function has this signature.
        let channel_status = unsafe { core::mem::transmute::<NonNull<c_void>, ChannelStatus>(channel_status) };
        Ok(Self { open, close, query, channel_status })
    }
}

/// libxenctrl's handle. It is closed once, when this is dropped.
#[derive(Debug)]
pub struct Control {
    functions: Functions,
    handle: NonNull<Interface>,
    /// What the last look at all domains saw.
    known: BTreeMap<DomId, DomainState>,
}

impl Control {
    /// Loads the libxenctrl of the hypervisor that runs and opens its interface.
    ///
    /// # Errors
    /// Without an errno if there is no fitting library; `ENOENT` or `ENODEV` where Xen is not running, `EACCES` without
    /// the right to it.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(Functions::load(&Library::load()?)?)
    }

    pub(super) fn open_with(functions: Functions) -> Result<Self, Error> {
        // SAFETY: without loggers the library makes its own; there are no flags.
        let handle = unsafe { (functions.open)(ptr::null_mut(), ptr::null_mut(), 0) };
        let handle = check_pointer("xc_interface_open", handle)?;
        Ok(Self { functions, handle, known: BTreeMap::new() })
    }

    /// Asks for one domain. A number that names none is [`Life::Gone`].
    ///
    /// # Errors
    /// `EPERM` or `EACCES` without the right to ask.
    pub fn get(&self, domid: DomId) -> Result<DomainState, Error> {
        let answer = match self.functions.query {
            Query::Info(info) => {
                self.next_info("xc_domain_getinfo", info, domid).map(|found| found.map(|room| of_dom_info(&room)))
            }
            Query::SingleAndList(single, _) => {
                let mut room = Room::new();
                // SAFETY: the handle is open and the room is enough for the answer.
                let result = unsafe { single(self.handle.as_ptr(), domid.into(), &raw mut room) };
                none_if_missing(check("xc_domain_getinfo_single", result))
                    .map(|found| found.map(|_| of_domain_info(&room)))
            }
        }?;
        Ok(answer.filter(|state| state.domid == domid).unwrap_or_else(|| gone(domid)))
    }

    /// Every domain whose state changed since this was last asked, as told at
    /// [`DomainStates::changes`](super::DomainStates::changes). Costs a call a domain that exists.
    ///
    /// # Errors
    /// `EPERM` or `EACCES` without the right to ask.
    pub fn changes(&mut self) -> Result<Vec<DomainState>, Error> {
        let mut now = BTreeMap::new();
        let mut from = Some(DomId(0));
        while let Some(first) = from.filter(|&first| first < DomId::FIRST_RESERVED) {
            let Some(state) = self.next_from(first)? else { break };
            // A lower number would send this round and round; the reserved ones are no domains.
            if !(first..DomId::FIRST_RESERVED).contains(&state.domid) {
                break;
            }
            now.insert(state.domid, state);
            from = state.domid.0.checked_add(1).map(DomId);
        }
        Ok(differences(&mut self.known, now))
    }

    /// What the last [`Control::changes`] saw of a domain, changed or not. Asks nobody.
    #[must_use]
    pub fn seen(&self, domid: DomId) -> DomainState {
        self.known.get(&domid).copied().unwrap_or_else(|| gone(domid))
    }

    /// Asks who is at the other end of an event channel of this domain: a domain, and its port. `None` where nobody is.
    ///
    /// # Errors
    /// `EINVAL` for a port that cannot be, `EPERM` or `EACCES` without the right to ask.
    pub fn other_end(&self, local: Port) -> Result<Option<(DomId, Port)>, Error> {
        let mut channel = Channel { domid: Channel::SELF, port: local.0, ..Channel::default() };
        // SAFETY: the handle is open and the structure is the whole of what is read and filled in.
        check("xc_evtchn_status", unsafe { (self.functions.channel_status)(self.handle.as_ptr(), &raw mut channel) })?;
        let bound = channel.status == Channel::INTERDOMAIN;
        Ok(bound.then_some((DomId(channel.remote_domid), Port(channel.remote_port))))
    }

    /// The domain with the lowest number that is not below `first`.
    fn next_from(&self, first: DomId) -> Result<Option<DomainState>, Error> {
        match self.functions.query {
            Query::Info(info) => Ok(self.next_info("xc_domain_getinfo", info, first)?.map(|room| of_dom_info(&room))),
            Query::SingleAndList(_, list) => {
                Ok(self.next_info("xc_domain_getinfolist", list, first)?.map(|room| of_domain_info(&room)))
            }
        }
    }

    /// Calls either function that answers with a number of domains, for one.
    fn next_info(&self, call: &'static str, function: GetInfo, first: DomId) -> Result<Option<Room>, Error> {
        let mut room = Room::new();
        // SAFETY: the handle is open and the room is enough for one answer.
        let result = unsafe { function(self.handle.as_ptr(), first.into(), 1, &raw mut room) };
        let found = none_if_missing(check(call, result))?;
        Ok(found.filter(|&count| count > 0).map(|_| room))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the handle came from this library and is closed here only.
        unsafe { (self.functions.close)(self.handle.as_ptr()) };
    }
}

/// No such domain is an answer, not a failure.
fn none_if_missing(result: Result<c_int, Error>) -> Result<Option<c_int>, Error> {
    match result {
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(None),
        other => other.map(Some),
    }
}

fn of_dom_info(room: &Room) -> DomainState {
    let info = room.dom_info();
    state(
        // The function fills in numbers of domains, which have 15 bits.
        u16::try_from(info.domid).unwrap_or(u16::MAX),
        info.bits & DomInfo::DYING != 0,
        info.bits & (DomInfo::SHUTDOWN | DomInfo::CRASHED) != 0,
        info.handle,
    )
}

fn of_domain_info(room: &Room) -> DomainState {
    let info = room.domain_info();
    state(info.domid, info.flags & DomainInfo::DYING != 0, info.flags & DomainInfo::SHUTDOWN != 0, info.handle)
}

/// The bit that these interfaces call "dying" is set only when the tearing down is over.
fn state(domid: u16, dying: bool, shutdown: bool, handle: [u8; 16]) -> DomainState {
    DomainState {
        domid: DomId(domid),
        life: if dying { Life::Dead } else { Life::Alive },
        shutdown,
        unique_id: Some(UniqueId::of_handle(handle)),
    }
}
