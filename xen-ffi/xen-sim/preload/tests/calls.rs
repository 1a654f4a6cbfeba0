//! The calls that the peers do not make. This program links the library, so its own calls are answered by it.

// Links the library.
use xen_sim_preload as _;

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::{env, fs};
use xen_sim::{Host, ShutdownReason};

unsafe extern "C" {
    fn xenevtchn_open(logger: *mut c_void, flags: c_uint) -> *mut c_void;
    fn xenevtchn_close(xce: *mut c_void) -> c_int;
    fn xenevtchn_bind_virq(xce: *mut c_void, virq: c_uint) -> c_int;
    fn xenevtchn_pending(xce: *mut c_void) -> c_int;
    fn xenevtchn_unmask(xce: *mut c_void, port: c_uint) -> c_int;
    fn xenmanage_open(logger: *mut c_void, flags: c_uint) -> *mut c_void;
    fn xenmanage_get_domain_info(
        hdl: *mut c_void,
        domid: c_uint,
        state: *mut c_uint,
        caps: *mut c_uint,
        unique_id: *mut u64,
    ) -> c_int;
    fn xenmanage_poll_changed_domain(
        hdl: *mut c_void,
        domid: *mut c_uint,
        state: *mut c_uint,
        caps: *mut c_uint,
        unique_id: *mut u64,
    ) -> c_int;
    fn xenforeignmemory_map(
        fmem: *mut c_void,
        domid: u32,
        prot: c_int,
        pages: usize,
        frames: *const u64,
        errors: *mut c_int,
    ) -> *mut c_void;
    fn xenforeignmemory_unmap(fmem: *mut c_void, start: *mut c_void, pages: usize) -> c_int;
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a number of the system")
}

/// The next changed domain, with state, capabilities and unique id; or the errno.
fn changed(manage: *mut c_void) -> Result<(u32, u32, u32, u64), i32> {
    let (mut domid, mut state, mut caps, mut unique_id) = (0, 0, 0, 0);
    // SAFETY: all four may be written to.
    let result = unsafe {
        xenmanage_poll_changed_domain(manage, &raw mut domid, &raw mut state, &raw mut caps, &raw mut unique_id)
    };
    if result == 0 { Ok((domid, state, caps, unique_id)) } else { Err(errno()) }
}

fn info(manage: *mut c_void, domid: u32) -> Result<u32, i32> {
    let mut state = 0;
    // SAFETY: the state may be written to, the others are left out.
    let result = unsafe { xenmanage_get_domain_info(manage, domid, &raw mut state, null_mut(), null_mut()) };
    if result == 0 { Ok(state) } else { Err(errno()) }
}

/// One test, because the host is found by an environment variable.
#[test]
fn a_host_answers_the_calls_of_this_process() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).unwrap();
    let first = host.create(1).unwrap();
    // SAFETY: this is the only test of this program, and the broker's threads read no environment.
    unsafe { env::set_var("XEN_SIM_SOCKET", dir.path().join("host.sock")) };

    the_files_of_a_host_are_there();
    changes_of_domains_are_told_once(&host, first.unique_id);
    a_ring_is_mapped_by_its_frame(&host);
}

fn the_files_of_a_host_are_there() {
    assert_eq!(fs::read("/proc/xen/xsd_port").unwrap(), b"1", "without a newline");
    assert_eq!(fs::read_to_string("/proc/xen/capabilities").unwrap(), "control_d\n");
    assert!(fs::File::options().read(true).write(true).open("/proc/xen/xsd_kva").unwrap().as_raw_fd() > 2);
    assert!(fs::metadata(file!()).is_ok() || fs::read("/proc/self/stat").is_ok(), "other files are as they were");
}

fn changes_of_domains_are_told_once(host: &Host, unique_id: u64) {
    // SAFETY: no logger is wanted.
    let manage = unsafe { xenmanage_open(null_mut(), 0) };
    assert_eq!(changed(manage), Err(libc::EACCES), "only he who has the interrupt may ask");
    // SAFETY: no logger is wanted.
    let events = unsafe { xenevtchn_open(null_mut(), 0) };
    assert!(!events.is_null());
    // SAFETY: the handle is open.
    let virq = unsafe { xenevtchn_bind_virq(events, 3) };
    assert!(virq > 0);
    // SAFETY: as above.
    assert_eq!(unsafe { xenevtchn_bind_virq(events, 3) }, -1);
    assert_eq!(errno(), libc::EEXIST);
    let next_event = || {
        // SAFETY: as above.
        let port = unsafe { xenevtchn_pending(events) };
        assert_eq!(port, virq);
        // SAFETY: as above.
        assert_eq!(unsafe { xenevtchn_unmask(events, port.cast_unsigned()) }, 0);
    };

    next_event();
    assert_eq!(changed(manage), Ok((0, 1, 3, 1)), "whoever binds it is told of all domains first");
    assert_eq!(changed(manage), Ok((1, 1, 0, unique_id)));
    assert_eq!(changed(manage), Err(libc::ENOENT));

    let second = host.create(9).unwrap();
    next_event();
    assert_eq!(changed(manage), Ok((9, 1, 0, second.unique_id)), "new domains are told of on such a host");
    host.shutdown(9, ShutdownReason::Crash).unwrap();
    host.begin_destroy(9).unwrap();
    next_event();
    assert_eq!(changed(manage), Ok((9, 11, 0, second.unique_id)), "two changes of a domain are one");
    assert_eq!(info(manage, 9), Ok(11));
    host.destroy(9).unwrap();
    next_event();
    assert_eq!(changed(manage), Ok((9, 0, 0, 0)), "of a domain that is gone nothing is left");
    assert_eq!(changed(manage), Err(libc::ENOENT));
    assert_eq!(info(manage, 9), Err(libc::ESRCH));
    assert_eq!(info(manage, 0x7ff0), Err(libc::EINVAL));
    // SAFETY: the handle is open and not used again.
    assert_eq!(unsafe { xenevtchn_close(events) }, 0);
}

fn a_ring_is_mapped_by_its_frame(host: &Host) {
    let gfn = host.domain(1).unwrap().gfn;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    for wrong in [0, gfn + 1] {
        let mut error = 0;
        // SAFETY: there is one frame number and room for one error.
        let map = unsafe { xenforeignmemory_map(null_mut(), 1, protection, 1, &raw const wrong, &raw mut error) };
        assert!(map.is_null());
        assert_eq!(error, -libc::EINVAL);
    }
    // SAFETY: there is one frame number, and errors are left out.
    let map = unsafe { xenforeignmemory_map(null_mut(), 1, protection, 1, &raw const gfn, null_mut()) };
    assert!(!map.is_null(), "errno {}", errno());
    // SAFETY: a whole page is mapped for writing.
    unsafe { map.cast::<u32>().write_volatile(0x5eed) };
    assert_eq!(host.guest(1).unwrap().page().word(0), 0x5eed, "it is the guest's own page");
    // SAFETY: nothing refers to the page any more.
    assert_eq!(unsafe { xenforeignmemory_unmap(null_mut(), map, 1) }, 0);
}
