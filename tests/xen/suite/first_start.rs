//! What only the first daemon after the start of the machine can show. `make xen` runs this before everything else.

use crate::dom0::{Dom0, SOCKET};
use std::fs;
use std::path::Path;
use std::thread;
use xenstored_tests::wait;

/// What the kernel of domain 0 aims at, KiB, as told by its own balloon.
fn target_kib() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/xen_memory/xen_memory0/target_kb").expect("a balloon");
    text.trim().parse().expect("a number")
}

#[test]
fn the_socket_appears_once_the_kernels_ring_is_served_and_the_kernels_own_watch_fires() {
    assert!(!xen_rig::kernel_is_served().expect("the hypervisor tells the state of a port"));
    let mut dom0 = Dom0::begin();
    while !Path::new(SOCKET).exists() {
        thread::yield_now();
    }
    let served = xen_rig::kernel_is_served().expect("the hypervisor tells the state of a port");
    assert!(served, "the socket was there before the kernel's ring was served");
    dom0.await_answer();
    // The kernel waits for the store since it has started. Now it sets its watches, one of them on its memory's size.
    let mut client = dom0.connect();
    let less = target_kib() - 4096;
    wait::until("the kernel's balloon heeds its node", || {
        client.write("/local/domain/0/memory/target", less.to_string().as_bytes());
        target_kib() == less
    });
    dom0.stop();
}
