//! libxenctrl: which domains there are.

use crate::{broker, fail};
use core::ffi::{c_int, c_uint, c_void};
use xen_sim_switchboard::{DomainView, Switchboard};

/// Why a domain shut down, when it crashed (`SHUTDOWN_crash`).
const SHUTDOWN_CRASH: u32 = 3;

/// `xc_dominfo_t` of libxenctrl 4.17.
#[derive(Debug, Default)]
#[repr(C)]
pub struct DomInfo {
    domid: u32,
    ssidref: u32,
    flags: u32,
    shutdown_reason: u32,
    nr_pages: u64,
    nr_outstanding_pages: u64,
    nr_shared_pages: u64,
    nr_paged_pages: u64,
    shared_info_frame: u64,
    cpu_time: u64,
    max_memkb: u64,
    nr_online_vcpus: u32,
    max_vcpu_id: u32,
    handle: [u8; 16],
    cpupool: u32,
    gpaddr_bits: u8,
    arch: [u32; 2],
}

/// `xc_domaininfo_t` (`struct xen_domctl_getdomaininfo`) of Xen 4.17.
#[derive(Debug, Default)]
#[repr(C)]
pub struct DomainInfo {
    domid: u16,
    pad1: u16,
    flags: u32,
    pages: [u64; 6],
    cpu_time: u64,
    nr_online_vcpus: u32,
    max_vcpu_id: u32,
    ssidref: u32,
    handle: [u8; 16],
    cpupool: u32,
    gpaddr_bits: u8,
    pad2: [u8; 7],
    arch: [u32; 2],
}

const _: () = assert!(size_of::<DomInfo>() == 112 && size_of::<DomainInfo>() == 112, "the layouts of 4.17");
const _: () = assert!(core::mem::offset_of!(DomInfo, handle) == 80);
const _: () = assert!(core::mem::offset_of!(DomainInfo, handle) == 76);

impl DomInfo {
    fn new(domid: u16, view: &DomainView) -> Self {
        let crashed = view.flags.shutdown && view.reason == SHUTDOWN_CRASH;
        let shutdown = view.flags.shutdown && !crashed;
        let running = !view.flags.shutdown && !view.flags.dying;
        Self {
            domid: domid.into(),
            flags: u32::from(view.flags.dying)
                | u32::from(crashed) << 1
                | u32::from(shutdown) << 2
                | u32::from(running) << 5,
            shutdown_reason: view.reason,
            nr_pages: 1,
            max_memkb: 4,
            nr_online_vcpus: 1,
            handle: view.handle,
            ..Self::default()
        }
    }
}

impl DomainInfo {
    fn new(domid: u16, view: &DomainView) -> Self {
        let running = !view.flags.shutdown && !view.flags.dying;
        Self {
            domid,
            flags: u32::from(view.flags.dying)
                | u32::from(view.flags.shutdown) << 2
                | u32::from(running) << 5
                | (view.reason & 0xff) << 16,
            pages: [1, 1, 0, 0, 0, 0],
            nr_online_vcpus: 1,
            handle: view.handle,
            ..Self::default()
        }
    }
}

/// Fills up to `room` entries with the domains that exist from `first` on; gives how many.
///
/// # Safety
/// `out` has room for `room` entries.
unsafe fn fill<T>(
    switchboard: &Switchboard,
    first: u32,
    room: c_uint,
    out: *mut T,
    entry: impl Fn(u16, &DomainView) -> T,
) -> c_int {
    let mut count = 0;
    let mut next = u16::try_from(first).ok();
    while let Some((domid, view)) = next.filter(|_| count < room as usize).and_then(|at| switchboard.next_existing(at))
    {
        let place = out.wrapping_add(count);
        // SAFETY: `count` is below `room`, and by the caller's word there is room for that many.
        unsafe { place.write(entry(domid, &view)) };
        count += 1;
        next = domid.checked_add(1);
    }
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Opens the control interface.
#[unsafe(no_mangle)]
pub extern "C" fn xc_interface_open(
    _logger: *mut c_void,
    _dombuild_logger: *mut c_void,
    _flags: c_uint,
) -> *mut c_void {
    crate::open_handle()
}

/// Closes the control interface.
#[unsafe(no_mangle)]
pub extern "C" fn xc_interface_close(_xch: *mut c_void) -> c_int {
    0
}

/// Describes the domains from `first` on as libxenctrl does up to 4.17; -1 and `ESRCH` when there is none.
///
/// # Safety
/// `info` has room for `max` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xc_domain_getinfo(_xch: *mut c_void, first: u32, max: c_uint, info: *mut DomInfo) -> c_int {
    let memory = match broker::memory() {
        Ok(memory) => memory,
        Err(errno) => return fail(errno),
    };
    // SAFETY: by the caller's word.
    match unsafe { fill(memory.switchboard(), first, max, info, DomInfo::new) } {
        0 => fail(libc::ESRCH),
        count => count,
    }
}

/// Describes the domains from `first` on as the hypervisor does; 0 when there is none.
///
/// # Safety
/// `info` has room for `max` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xc_domain_getinfolist(
    _xch: *mut c_void,
    first: u32,
    max: c_uint,
    info: *mut DomainInfo,
) -> c_int {
    match broker::memory() {
        // SAFETY: by the caller's word.
        Ok(memory) => unsafe { fill(memory.switchboard(), first, max, info, DomainInfo::new) },
        Err(errno) => fail(errno),
    }
}

/// Describes one domain as libxenctrl does from 4.18 on; -1 and `ESRCH` when there is no such.
///
/// # Safety
/// `info` is null or has room for one entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xc_domain_getinfo_single(_xch: *mut c_void, domid: u32, info: *mut DomainInfo) -> c_int {
    let memory = match broker::memory() {
        Ok(memory) => memory,
        Err(errno) => return fail(errno),
    };
    let Some((domid, view)) = u16::try_from(domid).ok().and_then(|id| Some((id, memory.switchboard().existing(id)?)))
    else {
        return fail(libc::ESRCH);
    };
    if !info.is_null() {
        // SAFETY: by the caller's word.
        unsafe { info.write(DomainInfo::new(domid, &view)) };
    }
    0
}

/// `xc_evtchn_status_t` of libxenctrl.
#[derive(Debug)]
#[repr(C)]
pub struct ChannelStatus {
    domid: u16,
    port: u32,
    status: u32,
    vcpu: u32,
    remote_domid: u16,
    remote_port: u32,
}

/// `DOMID_SELF`.
const SELF: u16 = 0x7ff0;

/// `EVTCHNSTAT_interdomain`.
const INTERDOMAIN: u32 = 2;

/// Tells who is at the other end of a local port of domain 0, as the hypervisor does; -1 and `EINVAL` for a port that
/// cannot be, `ESRCH` for any other domain's.
///
/// # Safety
/// `status` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xc_evtchn_status(_xch: *mut c_void, status: *mut ChannelStatus) -> c_int {
    let memory = match broker::memory() {
        Ok(memory) => memory,
        Err(errno) => return fail(errno),
    };
    // SAFETY: by the caller's word.
    let status = unsafe { &mut *status };
    if ![0, SELF].contains(&status.domid) {
        return fail(libc::ESRCH);
    }
    let board = memory.switchboard();
    let Some(local) = board.local(status.port) else { return fail(libc::EINVAL) };
    let remote = local.channel().and_then(|channel| board.end_of(channel));
    (status.status, status.vcpu) = (0, 0);
    if let Some((domid, port)) = remote {
        (status.status, status.remote_domid, status.remote_port) = (INTERDOMAIN, domid, port);
    }
    0
}
