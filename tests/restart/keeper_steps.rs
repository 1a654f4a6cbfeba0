//! A keeper that is killed at each step of handing over what it holds, or of taking it in: guests never notice, clients go on
//! or are told of the end, and another keeper follows.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use xenstore_wire::Op;
use xenstored_tests::scene::{Scene, write};
use xenstored_tests::wait::{self, PATIENCE};
use xenstored_tests::{Client, ClientError, process};

use crate::tracer::{Came, Tracer};

/// A guest.
const GUEST: u16 = 1;

/// Descriptors of a keeper that has the listener, the event channels and one client: beside those are the standard ones, the
/// link, its socket, and the daemon's process.
const HOLDS_ONE: usize = 9;

/// Starts a daemon in place of one that is dead, and kills the keeper behind so many of its steps, or when the daemon serves.
/// Tells how many steps it made.
fn start_and_kill_keeper(scene: &mut Scene, most: u64) -> Result<u64, Errno> {
    let [keeper] = scene.keepers()[..] else { panic!("one keeper, and not {:?}", scene.keepers()) };
    scene.kill();
    let mut tracer = Tracer::attach(keeper)?;
    scene.start_unawaited();
    let deadline = Instant::now() + PATIENCE;
    let mut steps = 0;
    while steps < most && Instant::now() < deadline {
        match tracer.next() {
            Came::Stopped => steps += 1,
            Came::Asleep if serves(scene) => break,
            Came::Asleep => thread::sleep(Duration::from_micros(200)),
            Came::Gone => panic!("the keeper ended by itself:\n{}", scene.log()),
        }
    }
    Ok(steps)
}

fn serves(scene: &Scene) -> bool {
    let client = Client::connect(&scene.host.socket()).ok();
    client.is_some_and(|mut client| {
        // Where only the keeper holds the socket, nobody answers.
        client.set_patience(Duration::from_millis(20));
        client.try_request(Op::Read, 0, b"/\0").is_ok()
    })
}

/// A client that is kept, which is seen at the keeper.
fn kept_client(scene: &Scene) -> Client {
    let mut client = scene.dom0();
    client.watch("/watched", "token");
    let holds = || scene.keepers().iter().any(|&keeper| process::descriptors(keeper) >= HOLDS_ONE);
    wait::until("it is kept", holds);
    client
}

#[test]
fn a_keeper_that_dies_while_it_hands_over_costs_no_guest_anything() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[GUEST]);
    let mut guest = scene.guest(GUEST);
    let _client = kept_client(&scene);
    let steps = match start_and_kill_keeper(&mut scene, u64::MAX) {
        Ok(steps) => steps,
        Err(error) => {
            println!(
                "NO STEPS: this process may not trace ({error}); keepers are killed at random times in the kill loop"
            );
            return;
        }
    };
    println!("{steps} steps");
    let (mut went_on, mut closed) = (0, 0);
    for most in 1..=steps {
        wait::until("there is one keeper", || scene.keepers().len() == 1);
        let mut client = kept_client(&scene);
        write(&mut guest, "step", most.to_string().as_bytes()).unwrap();
        start_and_kill_keeper(&mut scene, most).expect("what may be traced once may be traced again");
        wait::until("the daemon serves", || serves(&scene));
        assert_eq!(guest.read("step"), Ok(most.to_string().into_bytes()), "{most}: {}", scene.log());
        match client.try_request(Op::Read, 0, b"/\0") {
            Ok(reply) => {
                assert_eq!(reply.error(), None);
                went_on += 1;
            }
            Err(error) => {
                assert_eq!(error, ClientError::Closed, "{most}: {}", scene.log());
                closed += 1;
            }
        }
    }
    println!("{went_on} clients went on, {closed} were told of the end");
    // The last keeper is as good as the first.
    wait::until("there is one keeper", || scene.keepers().len() == 1);
    let mut client = kept_client(&scene);
    scene.kill();
    scene.start_again();
    assert!(client.read("/").is_ok(), "{}", scene.log());
    assert_eq!(guest.read("step"), Ok(steps.to_string().into_bytes()));
}
