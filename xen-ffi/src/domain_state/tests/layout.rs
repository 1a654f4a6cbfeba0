//! The structures that are declared by hand, against the header that is installed: a C program prints what it has.

use core::mem::{offset_of, size_of};
use std::{fs, process::Command};

use super::super::control::{DomInfo, DomainInfo, Room};

const PROGRAM: &str = r#"
#define __XEN_TOOLS__
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <xenctrl.h>

#define SHOW(kind, field) printf(#kind "." #field " %zu\n", offsetof(kind, field))
#define BIT(field) do { \
        xc_dominfo_t info; unsigned int bits; \
        memset(&info, 0, sizeof(info)); info.field = 1; \
        memcpy(&bits, (char *)&info + offsetof(xc_dominfo_t, shutdown_reason) - sizeof(bits), sizeof(bits)); \
        printf("xc_dominfo_t." #field " %u\n", bits); \
    } while (0)

int main(void)
{
    SHOW(xc_domaininfo_t, domain);
    SHOW(xc_domaininfo_t, flags);
    SHOW(xc_domaininfo_t, handle);
    printf("XEN_DOMINF_dying %u\nXEN_DOMINF_shutdown %u\n", XEN_DOMINF_dying, XEN_DOMINF_shutdown);
    printf("sizeof %zu\n", sizeof(xc_domaininfo_t));
#if XEN_DOMCTL_INTERFACE_VERSION <= 0x15
    SHOW(xc_dominfo_t, domid);
    SHOW(xc_dominfo_t, shutdown_reason);
    SHOW(xc_dominfo_t, cpu_time);
    SHOW(xc_dominfo_t, handle);
    BIT(dying);
    BIT(crashed);
    BIT(shutdown);
    printf("sizeof %zu\n", sizeof(xc_dominfo_t));
#endif
    return 0;
}
"#;

#[test]
#[cfg_attr(miri, ignore = "runs a C compiler")]
fn the_structures_are_those_of_the_header() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() >= 6, "{text}");

    for line in text.lines() {
        let (name, number) = line.split_once(' ').unwrap();
        let number: usize = number.parse().unwrap();
        let ours = match name {
            "xc_domaininfo_t.domain" => offset_of!(DomainInfo, domid),
            "xc_domaininfo_t.flags" => offset_of!(DomainInfo, flags),
            "xc_domaininfo_t.handle" => offset_of!(DomainInfo, handle),
            "XEN_DOMINF_dying" => DomainInfo::DYING as usize,
            "XEN_DOMINF_shutdown" => DomainInfo::SHUTDOWN as usize,
            "xc_dominfo_t.domid" => offset_of!(DomInfo, domid),
            "xc_dominfo_t.shutdown_reason" => offset_of!(DomInfo, bits) + size_of::<u32>(),
            "xc_dominfo_t.cpu_time" => offset_of!(DomInfo, cpu_time),
            "xc_dominfo_t.handle" => offset_of!(DomInfo, handle),
            "xc_dominfo_t.dying" => DomInfo::DYING as usize,
            "xc_dominfo_t.crashed" => DomInfo::CRASHED as usize,
            "xc_dominfo_t.shutdown" => DomInfo::SHUTDOWN as usize,
            "sizeof" => {
                assert!(number <= size_of::<Room>(), "{number} bytes");
                continue;
            }
            other => panic!("{other}"),
        };
        assert_eq!(ours, number, "{name}");
    }
}
