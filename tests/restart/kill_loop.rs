//! Guests and clients at work while the daemon and its keeper are killed again and again: nobody loses anything.
//!
//! `XENSTORED_TEST_KILLS` sets how often; see `make kill-loop`.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use xenstored_tests::scene::{Scene, set_perms};
use xenstored_tests::wait::PATIENCE;

use crate::player::{Dice, Line, Player, Progress, SHARED};

/// Guests, and as many socket clients. Each guest watches a client, and each client a guest.
const GUESTS: u16 = 100;
/// Kills of each case where nobody says how many.
const KILLS: u64 = 200;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victims {
    /// The daemon; all sockets are kept.
    Daemon,
    /// The daemon, its keeper, or both in any order.
    All,
}

/// Ends the players also where a check fails.
struct Over<'a>(&'a Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

#[rstest]
#[case::daemon(Victims::Daemon)]
#[case::daemon_and_keeper(Victims::All)]
fn nobody_loses_anything(#[case] victims: Victims) {
    let kills = std::env::var("XENSTORED_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let domids: Vec<u16> = (1..=GUESTS).collect();
    let mut scene = Scene::with_args(&["--keep", "5"], &domids);
    let mut dom0 = scene.dom0();
    for counter in 0..SHARED {
        dom0.write(&format!("/counter/{counter}"), b"0");
        set_perms(&mut dom0, &format!("/counter/{counter}"), &["b0"]);
    }
    let progress = Progress::of(2 * domids.len());
    let mut players = Vec::new();
    for domid in domids {
        let (own, other) = (format!("/local/domain/{domid}"), format!("/client/{domid}"));
        dom0.write(&other, b"");
        set_perms(&mut dom0, &other, &["n0", &format!("r{domid}")]);
        let number = usize::from(domid - 1) * 2;
        let socket =
            Line::Socket { client: scene.dom0(), path: scene.host.socket(), may_be_lost: victims == Victims::All };
        let ring = Line::Ring(scene.ring_client(domid));
        players.push(Player::new(ring, number, own.clone(), (number + 1, other.clone())));
        players.push(Player::new(socket, number + 1, other, (number, own)));
    }
    players.iter_mut().for_each(|player| player.begin(&progress));
    drop(dom0);

    thread::scope(|scope| {
        for player in &mut players {
            scope.spawn(|| player.play(&progress));
        }
        let over = Over(&progress);
        kill_again_and_again(&mut scene, victims, kills, &progress);
        drop(over);
    });

    players.iter_mut().for_each(|player| player.end(&progress));
    let mut dom0 = scene.dom0();
    for counter in 0..SHARED {
        let own = players.iter().skip(counter).step_by(SHARED).map(Player::counted).sum::<u64>();
        let all = dom0.read(&format!("/counter/{counter}"));
        assert_eq!(all, Ok(own.to_string().into_bytes()), "counter {counter} is the sum of what players counted");
    }
    let commits = players.iter().fold((0, 0), |(yes, no), player| (yes + player.commits.0, no + player.commits.1));
    println!(
        "{kills} kills, {} answers, {} connections made anew, {} of {} contended commits accepted",
        progress.answered.load(Ordering::Relaxed),
        progress.lost.load(Ordering::Relaxed),
        commits.0,
        commits.0 + commits.1
    );
}

fn kill_again_and_again(scene: &mut Scene, victims: Victims, kills: u64, progress: &Progress) {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut served = true;
    for round in 0..kills {
        if served {
            // Mostly soon after the start; now and then when all is under way again.
            let most = if dice.below(4) == 0 { 400 } else { 50 };
            let enough = progress.answered.load(Ordering::Relaxed) + 1 + dice.below(most);
            let deadline = Instant::now() + PATIENCE;
            while progress.answered.load(Ordering::Relaxed) < enough {
                assert!(Instant::now() < deadline, "round {round}: nobody is answered any more\n{}", scene.log());
                thread::sleep(Duration::from_micros(100));
            }
        } else {
            // Anywhere in the recovery, which tells nobody how far it is.
            thread::sleep(Duration::from_micros(dice.below(50_000)));
        }
        let (keeper, daemon) = match (victims, dice.below(4)) {
            (Victims::Daemon, _) | (Victims::All, 0) => (false, true),
            (Victims::All, 1) if served => (true, false),
            (Victims::All, _) => (true, true),
        };
        let daemon_first = dice.below(2) == 0;
        if daemon && daemon_first {
            scene.kill_whoever_serves();
        }
        if keeper {
            for pid in scene.keepers() {
                let _ = kill(Pid::from_raw(i32::try_from(pid).expect("a pid fits")), Signal::SIGKILL);
            }
        }
        if daemon && !daemon_first {
            scene.kill_whoever_serves();
        }
        if daemon {
            // The last one is served in any case.
            served = dice.below(4) != 0 || round + 1 == kills;
            if served {
                scene.start_again();
            } else {
                scene.start_unawaited();
            }
        }
    }
}
