//! Libraries that a daemon opens at run time.

use crate::files::hidden;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::{mem, ptr};

type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// What the names of Xen's control libraries begin with.
const XEN_LIBRARIES: [&[u8]; 2] = [b"libxenctrl.so", b"libxenmanage.so"];

/// Gives this library in place of Xen's control libraries, else what was asked for: a symbol that is looked up in a
/// handle is looked for in that library only, so preloading alone would not be enough.
///
/// # Safety
/// As `dlopen` of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the function of that name has this signature.
    let real: DlOpen = unsafe { mem::transmute(hidden(c"dlopen")) };
    if !name.is_null() {
        // SAFETY: by the caller's word a name is a C string.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        let file = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes);
        if XEN_LIBRARIES.iter().any(|library| file.starts_with(library)) {
            // SAFETY: both are C strings or flags as dlopen wants them.
            return own_name().map_or(ptr::null_mut(), |own| unsafe { real(own, libc::RTLD_NOW) });
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real(name, flags) }
}

/// The file name under which this library was loaded.
fn own_name() -> Option<*const c_char> {
    // SAFETY: all zero is a valid value of this plain structure.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: the address is one inside this library, the structure is ours.
    let found = unsafe { libc::dladdr((own_name as fn() -> _) as *const c_void, &raw mut info) };
    (found != 0 && !info.dli_fname.is_null()).then_some(info.dli_fname)
}
