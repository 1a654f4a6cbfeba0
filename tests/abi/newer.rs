//! What came with Xen 4.21 and 4.22 and Debian's library has not: right by Xen's own description, over our daemon and
//! over one that knows nothing of it.

use crate::library::Library;
use crate::program::{Built, Run};
use crate::stage::stage;
use xenstored_tests::Store;

fn told(store: Store) -> String {
    let scene = stage(store);
    Run::new("newer", Library::Ours).built(Built::Ours).at(scene.host.socket()).output()
}

#[test]
fn features_quotas_and_depths_work() {
    let expected = r#"features: true
features: 15
of 3: true
features: 15
set features of 3: true
of 3: true
features: 4
set features of 4: fails: EBUSY
of 4: true
features: 15
of a domain that is not there: fails: ENOENT
set them: fails: ENOENT
set features that are none: fails: EINVAL
quota names: 10: "nodes" "watches" "transactions" "outstanding" "transaction-nodes" "memory" "node-size" "path-max" "node-permissions" "soft-memory"
nodes: true
global: 1000
set: true
nodes: true
global: 4321
set unlimited: true
nodes: true
global: 0
set too much: fails: EINVAL
bogus: fails: EINVAL
set bogus: fails: EINVAL
domain 4 watches: true
its own: 128
set: true
domain 4 watches: true
its own: 17
domain 4 bogus: fails: EINVAL
domain 999 watches: fails: ENOENT
set: fails: ENOENT
watch at depth 0: true
watch at depth 1: true
watch at depth 2, if possible: true
the same again: fails: EEXIST
event: 2: "/d" "0"
event: 2: "/d" "1"
event: 2: "/d" "2"
event: fails: EAGAIN
/d: true
event: 2: "/d" "0"
event: 2: "/d" "1"
event: 2: "/d" "2"
event: fails: EAGAIN
/d/e: true
event: 2: "/d/e" "1"
event: 2: "/d/e" "2"
event: fails: EAGAIN
/d/e/f: true
event: 2: "/d/e/f" "2"
event: fails: EAGAIN
/d/e/f/g: true
event: fails: EAGAIN
unwatch 0: true
unwatch 1: true
unwatch 2: true
watch nowhere: fails: EINVAL
"#;
    for (told, expected) in told(Store::Ours).lines().zip(expected.lines()) {
        assert_eq!(told, expected);
    }
    assert_eq!(told(Store::Ours).lines().count(), expected.lines().count());
}

/// Where the daemon knows no depth, only `xs_watch_try_depth` registers a watch, which sees everything below.
#[test]
fn an_older_daemon_refuses_them() {
    for store in [Store::C, Store::Ocaml] {
        let told = told(store);
        let (refused, watched) = told.split_once("watch at depth 2, if possible: true\n").expect("a watch");
        assert!(refused.lines().all(|line| line.ends_with(": fails: ENOSYS")), "{store:?}: {refused}");
        let seen = watched.lines().filter(|line| line.starts_with("event: 2: ") && line.ends_with("\"2\"")).count();
        assert_eq!(seen, 5, "{store:?}: {watched}");
        assert!(watched.ends_with("unwatch 2: true\nwatch nowhere: fails: ENOSYS\n"), "{store:?}: {watched}");
    }
}
