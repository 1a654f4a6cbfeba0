//! A simulated host with one of the three daemons, for C programs to talk to.

use xenstored_tests::Store;
use xenstored_tests::scene::Scene;

/// Domains of every host: one that nobody introduces, one that is, and one for the program to introduce.
const UNKNOWN: u16 = 3;
const KNOWN: u16 = 4;
pub(crate) const NEW: u16 = 5;

/// A daemon on a new host.
pub(crate) fn stage(store: Store) -> Scene {
    let scene = Scene::of(store, &[KNOWN]);
    for domid in [UNKNOWN, NEW] {
        scene.host.create(domid).expect("a new domain");
    }
    scene
}
