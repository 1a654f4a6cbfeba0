//! Tests that need a process of their own: they count its threads or descriptors.

use crate::store;
use std::process::Command;
use xenstore_client::Options;

/// Says which test the process is for.
const VARIABLE: &str = "XENSTORE_CLIENT_TEST_ALONE";

/// Whether this process is the one of its own for the test `name`; if not, starts that and waits for its success.
fn is_alone(name: &str) -> bool {
    if std::env::var(VARIABLE).is_ok_and(|wanted| wanted == name) {
        return true;
    }
    let program = std::env::current_exe().expect("a test knows its own file");
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, name)
        .output()
        .expect("a test starts itself");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn entries(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("/proc lists this process").count()
}

#[test]
fn threads_and_descriptors_end_with_the_client() {
    if !is_alone("alone::threads_and_descriptors_end_with_the_client") {
        return;
    }
    let (daemon, first) = store();
    drop(first);
    let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
    let many: Vec<_> = (0..50)
        .map(|_| {
            let client = Options::new().place(daemon.socket()).open().unwrap();
            let watch = client.watch("/a").unwrap();
            (client, watch)
        })
        .collect();
    assert_eq!(entries("/proc/self/task"), threads + 50);
    drop(many);
    assert_eq!((entries("/proc/self/task"), entries("/proc/self/fd")), (threads, descriptors));
}
