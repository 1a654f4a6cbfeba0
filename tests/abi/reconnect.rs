//! C programs that ask for it work on over the death of the daemon and of its keeper, both at once.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xenstored_tests::scene::Scene;
use xenstored_tests::wait;

use crate::library::Library;
use crate::program::{Built, Run};

/// Handles, each with a thread.
const PLAYERS: u64 = 30;

/// Deaths where nobody says how many.
const KILLS: u64 = 200;

#[test]
fn nobody_loses_anything_when_the_daemon_dies_with_its_keeper() {
    let kills = std::env::var("XENSTORED_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let mut scene = Scene::with_args(&["--keep", "5"], &[]);
    let run = Run::new("reconnect", Library::Ours).built(Built::Ours).at(scene.host.socket());
    let waiting = run.number(PLAYERS).patience(120 + kills).start();
    for round in 0..kills {
        // Somebody has work behind him, and more under way.
        let path = format!("/library/{}/written", round % PLAYERS);
        let mut watcher = scene.dom0();
        let before = watcher.read(&path);
        wait::until("somebody is served", || watcher.read(&path) != before);
        drop(watcher);
        let keepers = scene.keepers();
        if round % 2 == 0 {
            scene.kill_whoever_serves();
        }
        for keeper in keepers {
            let _ = kill(Pid::from_raw(i32::try_from(keeper).expect("a pid fits")), Signal::SIGKILL);
        }
        if round % 2 == 1 {
            scene.kill_whoever_serves();
        }
        scene.start_again();
    }
    let told = "wrong: 0\neverything counted once: yes\neverybody wrote: yes\nsome requests were cut off: yes\n";
    assert_eq!(waiting.finish(), format!("> kill daemons\n{told}"), "{}", scene.log());
}
