//! A guest that is Linux, with Debian's tools in it. It takes its time and much memory, so it runs when asked for.

use crate::dom0::{Dom0, xl};
use crate::toolstack::configuration;
use rstest::rstest;
use std::fs;
use std::time::{Duration, Instant};
use xenstored_tests::Client;

/// A kernel that has to start has more time than a request.
const PATIENCE: Duration = Duration::from_secs(90);

fn await_value(client: &mut Client, path: &str, wanted: &str) {
    let begun = Instant::now();
    loop {
        let value = client.read(path);
        if value == Ok(wanted.as_bytes().to_vec()) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{path} is {value:?} and not {wanted:?}; its console:\n{}", console());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn console() -> String {
    fs::read_to_string("/var/log/xen/guest-linux.log").unwrap_or_default()
}

#[rstest]
#[ignore = "boots Linux in an emulated guest, which takes minutes: make xen ARGS=linux"]
fn a_linux_guest_uses_its_store_through_its_own_kernel(#[values("pv", "pvh")] kind: &str) {
    let dom0 = Dom0::start();
    let mut client = dom0.connect();
    let text = "kernel = \"/rig/linux/vmlinux\"\nramdisk = \"/rig/linux/initrd\"\nmemory = 192\n\
        extra = \"console=hvc0 quiet loglevel=4 panic=1 rdinit=/guest-init\"";
    xl(&["create", "-q", &configuration("linux", kind, text)]);
    let domid: u16 = xl(&["domid", "linux"]).trim().parse().expect("a number");
    let home = format!("/local/domain/{domid}");
    await_value(&mut client, &format!("{home}/data/hello"), "Linux");
    client.write(&format!("{home}/data/question"), b"42");
    await_value(&mut client, &format!("{home}/data/answer"), "42 it is");
    xl(&["shutdown", "-w", "linux"]);
    assert_eq!(client.read(&home), Err("ENOENT".into()));
    assert!(console().contains("the store says: 42"), "{}", console());
}
