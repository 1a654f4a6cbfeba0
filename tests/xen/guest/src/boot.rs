//! From the entry points to Rust, and the notes by which the domain builder finds them.
//!
//! A PV guest starts in 64-bit mode with its memory mapped and `start_info` in RSI (xen/include/public/xen.h). A PVH
//! guest starts in flat 32-bit mode with the address of `hvm_start_info` in EBX (xen/include/public/arch-x86/hvm/
//! start_info.h); it maps the first 4 GiB one to one and goes on in 64-bit mode. Notes: xen/include/public/elfnote.h.

use crate::machine::{HvmStartInfo, Machine, StartInfo};
use core::arch::global_asm;

global_asm!(
    r#"
    .section .text.boot, "ax"
    .code64
    .globl pv_start
pv_start:
    cld
    lea     boot_stack_end(%rip), %rsp
    xor     %ebp, %ebp
    mov     %rsi, %rdi
    call    {pv}
    ud2

    .code32
pvh_start:
    cld
    mov     $boot_stack_end, %esp
    mov     %ebx, %esi
    /* Pages of 2 MiB, present and writable, until the address wraps at 4 GiB. */
    mov     $boot_directories, %edi
    mov     $0x83, %eax
1:  mov     %eax, (%edi)
    add     $8, %edi
    add     $0x200000, %eax
    jnc     1b
    mov     $boot_level4, %eax
    mov     %eax, %cr3
    mov     %cr4, %eax
    or      $0x620, %eax            /* PAE, OSFXSR, OSXMMEXCPT */
    mov     %eax, %cr4
    mov     $0xc0000080, %ecx       /* EFER */
    rdmsr
    or      $0x100, %eax            /* LME */
    wrmsr
    mov     %cr0, %eax
    and     $0xfffffff3, %eax       /* not EM, not TS */
    or      $0x80000002, %eax       /* PG, MP */
    mov     %eax, %cr0
    lgdt    boot_gdt_pointer
    ljmp    $8, $2f

    .code64
2:  mov     $16, %eax
    mov     %eax, %ds
    mov     %eax, %es
    mov     %eax, %ss
    mov     $boot_stack_end, %esp
    xor     %ebp, %ebp
    mov     %esi, %edi
    call    {pvh}
    ud2

    .section .data.boot, "aw"
    .balign 8
boot_gdt:
    .quad   0, 0x00af9a000000ffff, 0x00cf92000000ffff
boot_gdt_pointer:
    .word   23
    .long   boot_gdt
    .balign 4096
boot_level4:
    .quad   boot_level3 + 3
    .fill   511, 8, 0
boot_level3:
    .quad   boot_directories + 3, boot_directories + 0x1003, boot_directories + 0x2003, boot_directories + 0x3003
    .fill   508, 8, 0

    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_directories:
    .skip   0x4000
    .globl hypercall_page
hypercall_page:
    .skip   4096
    .globl shared_info
shared_info:
    .skip   4096
    .skip   0x8000
boot_stack_end:

    .macro xen_number type, value
    .balign 4
    .long   4, 8, \type
    .asciz  "Xen"
    .quad   \value
    .endm
    .macro xen_text type, text
    .balign 4
    .long   4, 9f - 8f, \type
    .asciz  "Xen"
8:  .asciz  "\text"
9:
    .endm

    .section .note.Xen, "a", @note
    xen_number  1, pv_start         /* ENTRY */
    xen_number  2, hypercall_page   /* HYPERCALL_PAGE */
    xen_number  3, 0                /* VIRT_BASE: virtual is physical */
    xen_number  4, 0                /* PADDR_OFFSET */
    xen_text    5, "xen-3.0"        /* XEN_VERSION */
    xen_text    6, "xenstored-rs-test" /* GUEST_OS */
    xen_text    8, "generic"        /* LOADER */
    xen_text    9, "yes"            /* PAE_MODE */
    xen_number 18, pvh_start        /* PHYS32_ENTRY */
    .text
"#,
    pv = sym pv_main,
    pvh = sym pvh_main,
    options(att_syntax)
);

extern "C" fn pv_main(info: *const StartInfo) -> ! {
    // SAFETY: this is what the hypervisor started the guest with, and nothing has changed it.
    crate::run(unsafe { Machine::of_pv(info) })
}

extern "C" fn pvh_main(info: *const HvmStartInfo) -> ! {
    // SAFETY: this is what the hypervisor started the guest with, and nothing has changed it.
    crate::run(unsafe { Machine::of_pvh(info) })
}
