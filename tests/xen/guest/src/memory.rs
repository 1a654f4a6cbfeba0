//! What the compiler expects of a C library and of the standard library.

use core::arch::asm;

/// Copies bytes forwards.
///
/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's pointers are good for so many bytes; the direction flag is clear everywhere.
    unsafe { asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") count => _) };
    to
}

/// Copies bytes that may overlap.
///
/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= count {
        // SAFETY: forwards no byte is overwritten before it is read.
        return unsafe { memcpy(to, from, count) };
    }
    let (last_to, last_from) = (to.wrapping_add(count).wrapping_sub(1), from.wrapping_add(count).wrapping_sub(1));
    // SAFETY: backwards no byte is overwritten before it is read, and the direction flag is cleared again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rdi") last_to => _, inout("rsi") last_from => _, inout("rcx") count => _)
    };
    to
}

/// Fills bytes.
///
/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller's pointer is good for so many bytes; the direction flag is clear everywhere.
    unsafe { asm!("rep stosb", inout("rdi") to => _, in("al") byte.to_le_bytes()[0], inout("rcx") count => _) };
    to
}

/// Compares bytes.
///
/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: the caller's pointer is good for `count` bytes.
        let left = unsafe { one.wrapping_add(at).read_volatile() };
        // SAFETY: the caller's pointer is good for `count` bytes.
        let right = unsafe { other.wrapping_add(at).read_volatile() };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// Compares bytes for equality.
///
/// # Safety
/// As `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { memcmp(one, other, count) }
}

/// Named by the unwinding tables of the core library, which are thrown away: nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
