//! Stand-ins of libxenctrl's functions over a host that belongs to the calling thread, so to one test.

use core::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

use super::super::control::{Channel, DomInfo, DomainInfo, Functions, Interface, Query, Room};

/// How the library is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// As up to Xen 4.17.
    Info,
    /// As since.
    SingleAndList,
}

/// The host, as the tests change it.
pub(super) mod host {
    use std::{
        cell::{Cell, RefCell},
        collections::BTreeMap,
    };

    use super::{DomInfo, c_int};

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Domain {
        pub(super) bits: u32,
        pub(super) handle: [u8; 16],
    }

    thread_local! {
        static DOMAINS: RefCell<BTreeMap<u16, Domain>> = const { RefCell::new(BTreeMap::new()) };
        static FAILURE: Cell<(u32, c_int)> = const { Cell::new((u32::MAX, 0)) };
        static REFUSAL: Cell<c_int> = const { Cell::new(0) };
        static CLOSED: Cell<u32> = const { Cell::new(0) };
    }

    pub(in super::super) fn create(domid: u16) {
        create_with_handle(domid, [u8::try_from(domid).unwrap(); 16]);
    }

    pub(in super::super) fn create_with_handle(domid: u16, handle: [u8; 16]) {
        DOMAINS.with_borrow_mut(|domains| domains.insert(domid, Domain { bits: 0, handle }));
    }

    fn mark(domid: u16, bit: u32) {
        DOMAINS.with_borrow_mut(|domains| domains.get_mut(&domid).unwrap().bits |= bit);
    }

    pub(in super::super) fn shut_down(domid: u16) {
        mark(domid, DomInfo::SHUTDOWN);
    }

    pub(in super::super) fn crash(domid: u16) {
        mark(domid, DomInfo::CRASHED);
    }

    pub(in super::super) fn kill(domid: u16) {
        mark(domid, DomInfo::DYING);
    }

    pub(in super::super) fn remove(domid: u16) {
        DOMAINS.with_borrow_mut(|domains| domains.remove(&domid));
    }

    /// Lets every question about this number and those above it fail.
    pub(in super::super) fn fail_from(domid: u32, errno: c_int) {
        FAILURE.set((domid, errno));
    }

    pub(in super::super) fn refuse_to_open(errno: c_int) {
        REFUSAL.set(errno);
    }

    pub(in super::super) fn closed() -> u32 {
        CLOSED.get()
    }

    pub(super) fn refusal() -> c_int {
        REFUSAL.get()
    }

    pub(super) fn close() {
        CLOSED.set(CLOSED.get() + 1);
    }

    pub(super) fn failure(domid: u32) -> Option<c_int> {
        let (from, errno) = FAILURE.get();
        (domid >= from).then_some(errno)
    }

    pub(super) fn at_or_after(first: u32) -> Option<(u16, Domain)> {
        let first = u16::try_from(first).ok()?;
        DOMAINS.with_borrow(|domains| domains.range(first..).next().map(|(&domid, &domain)| (domid, domain)))
    }
}

pub(super) fn functions(kind: Kind) -> Functions {
    let query = match kind {
        Kind::Info => Query::Info(get_info),
        Kind::SingleAndList => Query::SingleAndList(get_info_single, get_info_list),
    };
    Functions { open, close, query, channel_status }
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the address of this thread's errno is valid for as long as the thread lives.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(errno) };
    -1
}

extern "C" fn open(_: *mut c_void, _: *mut c_void, flags: c_uint) -> *mut Interface {
    assert_eq!(flags, 0);
    match host::refusal() {
        0 => ptr::without_provenance_mut(0x1000),
        errno => {
            fail(errno);
            ptr::null_mut()
        }
    }
}

/// Port 9 is bound to port 3 of domain 5, port 8 to nothing, and there are no others.
extern "C" fn channel_status(_: *mut Interface, channel: *mut Channel) -> c_int {
    // SAFETY: the caller's own structure.
    let channel = unsafe { &mut *channel };
    assert_eq!(channel.domid, Channel::SELF);
    match channel.port {
        8 => channel.status = 0,
        9 => (channel.status, channel.remote_domid, channel.remote_port) = (Channel::INTERDOMAIN, 5, 3),
        _ => return fail(libc::EINVAL),
    }
    0
}

extern "C" fn close(_: *mut Interface) -> c_int {
    host::close();
    0
}

extern "C" fn get_info(_: *mut Interface, first: u32, count: c_uint, room: *mut Room) -> c_int {
    assert_eq!(count, 1);
    if let Some(errno) = host::failure(first) {
        return fail(errno);
    }
    // Without any the library of 4.17 fails as the hypervisor does.
    let Some((domid, domain)) = host::at_or_after(first) else { return fail(libc::ESRCH) };
    let info = DomInfo {
        domid: domid.into(),
        ssidref: !0,
        bits: domain.bits | 0xfff8,
        shutdown_reason: !0,
        pages: [!0; 5],
        cpu_time: !0,
        max_memory: !0,
        online_vcpus: !0,
        max_vcpu_id: !0,
        handle: domain.handle,
    };
    // SAFETY: the caller gives room for the library's whole structure.
    unsafe { room.cast::<DomInfo>().write(info) };
    1
}

extern "C" fn get_info_single(handle: *mut Interface, domid: u32, room: *mut Room) -> c_int {
    match host::at_or_after(domid) {
        Some((found, _)) if u32::from(found) == domid => get_info_list(handle, domid, 1, room).min(0),
        _ => fail(libc::ESRCH),
    }
}

extern "C" fn get_info_list(_: *mut Interface, first: u32, count: c_uint, room: *mut Room) -> c_int {
    assert_eq!(count, 1);
    if let Some(errno) = host::failure(first) {
        return fail(errno);
    }
    let Some((domid, domain)) = host::at_or_after(first) else { return 0 };
    let info = DomainInfo {
        domid,
        padding: !0,
        flags: domain.bits & (DomInfo::DYING | DomInfo::SHUTDOWN) | 0x00ff_00fa,
        pages: [!0; 6],
        cpu_time: !0,
        online_vcpus: !0,
        max_vcpu_id: !0,
        ssidref: !0,
        handle: domain.handle,
    };
    // SAFETY: the caller gives room for the library's whole structure.
    unsafe { room.cast::<DomainInfo>().write(info) };
    1
}
