//! What a host's process has on its heap. A program of its own, since it counts what the whole process allocates, and
//! nothing else may be at work beside it.

use peak_alloc::PeakAlloc;
use tempfile::TempDir;
use xen_sim::Host;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Ports that the guest has in turn: more than a host has event channels (65 536), so that channels are used again.
const PORTS: usize = 70_000;

/// Most bytes that may come to be in use meanwhile: the broker's thread has its own when it starts, and the test's program
/// a few. Four bytes for each port would be seventeen times as much.
const MOST: usize = 16 << 10;

#[test]
fn the_heap_of_a_host_does_not_grow_with_the_ports_that_guests_have_had() {
    let dir = TempDir::new().unwrap();
    let host = Host::start(dir.path()).unwrap();
    host.create(1).unwrap();
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    for _ in 0..PORTS {
        host.renew_port(1).unwrap();
    }
    let most = HEAP.peak_usage();
    assert!(most < before + MOST, "{before} bytes were in use, then up to {most}");
}
