//! The files that a Xen host has and this one has not.
//!
//! `open` is variadic in C. It is defined here with three arguments, which all 64-bit ABIs of Linux pass alike; the
//! third is garbage when the caller gave two, and is then ignored by the real function too.

use crate::{broker, fail};
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use core::mem;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use xen_sim_switchboard::DomainView;

type Open = unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint) -> c_int;
type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The environment variable that says how many mappings a process may have on this host, where that differs from the
/// machine's own `vm.max_map_count`. It is a word only: the kernel's limit is not set by it.
const MOST_MAPPINGS: &str = "XEN_SIM_MAX_MAP_COUNT";

/// `_IOC(_IOC_NONE, 'B', 0, 0)`: asks the store's device for the port of domain 0's kernel.
const IOCTL_XENBUS_BACKEND_EVTCHN: c_ulong = 0x4200;

/// Opens the file of that name when it is one of the host's.
fn host_file(path: &CStr, flags: c_int) -> Option<c_int> {
    let text = match path.to_bytes() {
        b"/proc/xen/xsd_kva" | b"/dev/xen/xenbus_backend" => {
            return Some(broker::reopen_memory(flags).map_or_else(fail, IntoRawFd::into_raw_fd));
        }
        // No newline: oxenstored takes none.
        b"/proc/xen/xsd_port" => match kernel_port() {
            Ok(port) => port.to_string(),
            Err(errno) => return Some(fail(errno)),
        },
        b"/proc/xen/capabilities" => "control_d\n".into(),
        b"/sys/hypervisor/type" => "xen\n".into(),
        b"/sys/hypervisor/version/major" => "4\n".into(),
        b"/sys/hypervisor/version/minor" => "17\n".into(),
        b"/sys/hypervisor/version/extra" => ".0\n".into(),
        b"/proc/sys/vm/max_map_count" => format!("{}\n", std::env::var(MOST_MAPPINGS).ok()?),
        _ => return None,
    };
    // Without a broker this is an ordinary process, and an ordinary machine.
    Some(broker::memory().and_then(|_| text_file(&text)).unwrap_or_else(fail))
}

fn kernel_port() -> Result<u32, i32> {
    let kernel: DomainView = broker::memory()?.switchboard().existing(0).ok_or(libc::ENOENT)?;
    Ok(kernel.ports[0].0)
}

fn text_file(text: &str) -> Result<c_int, i32> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"xen-sim-text".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(libc::ENFILE);
    }
    // SAFETY: the descriptor is new and ours.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(text.as_bytes()).map_err(|_| libc::EIO)?;
    std::io::Seek::rewind(&mut file).map_err(|_| libc::EIO)?;
    Ok(file.into_raw_fd())
}

/// The function that this library hides.
pub(crate) fn hidden(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!function.is_null(), "the C library has {name:?}");
    function
}

/// # Safety
/// As `open`; `name` is that function or one like it.
unsafe fn open_by(name: &CStr, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    if !path.is_null() {
        // SAFETY: by the caller's word a path is a C string.
        if let Some(fd) = host_file(unsafe { CStr::from_ptr(path) }, flags) {
            return fd;
        }
    }
    // SAFETY: the function of that name has this signature.
    let real: Open = unsafe { mem::transmute(hidden(name)) };
    // SAFETY: the caller's arguments.
    unsafe { real(path, flags, mode) }
}

/// Opens a file of the host, or else as always.
///
/// # Safety
/// As `open` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_by(c"open", path, flags, mode) }
}

/// Opens a file of the host, or else as always.
///
/// # Safety
/// As `open64` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_by(c"open64", path, flags, mode) }
}

/// # Safety
/// As `openat`; `name` is that function or one like it.
unsafe fn open_at_by(name: &CStr, dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    if !path.is_null() {
        // SAFETY: by the caller's word a path is a C string.
        if let Some(fd) = host_file(unsafe { CStr::from_ptr(path) }, flags) {
            return fd;
        }
    }
    // SAFETY: the function of that name has this signature.
    let real: OpenAt = unsafe { mem::transmute(hidden(name)) };
    // SAFETY: the caller's arguments.
    unsafe { real(dir, path, flags, mode) }
}

/// Opens a file of the host, or else as always.
///
/// # Safety
/// As `openat` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at_by(c"openat", dir, path, flags, mode) }
}

/// Opens a file of the host, or else as always.
///
/// # Safety
/// As `openat64` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at_by(c"openat64", dir, path, flags, mode) }
}

/// Answers the one request that a store daemon makes to `/dev/xen/xenbus_backend`; all others go where they went.
///
/// # Safety
/// As `ioctl` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == IOCTL_XENBUS_BACKEND_EVTCHN {
        return kernel_port().map_or_else(fail, u32::cast_signed);
    }
    // SAFETY: the function of that name has this signature.
    let real: Ioctl = unsafe { mem::transmute(hidden(c"ioctl")) };
    // SAFETY: the caller's arguments.
    unsafe { real(fd, request, argument) }
}
