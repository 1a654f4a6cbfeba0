//! The copy of the daemon that writes the store down is killed at each of its steps, or the daemon then, or both.

use nix::errno::Errno;
use rstest::rstest;

use crate::domain_steps::{Domain, Fate};
use crate::player::Dice;
use crate::stage::{Act, Cut, Keep, Stage, come_out, rounds};
use crate::steps::{Commit, Write};
use crate::tracer::{Came, Tracer};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The daemon serves on, with a journal that stays long.
    Copy,
    /// The copy is not to go on either.
    Daemon,
    Both,
}

/// Kills of each case where nobody says how many.
const KILLS: u64 = 16;

/// Starts a daemon, up to where it copies itself.
fn start_and_copy(stage: &mut Stage) -> Result<(Tracer, Tracer), Errno> {
    stage.scene.kill_whoever_serves();
    stage.scene.start_unawaited();
    let mut daemon = Tracer::attach(stage.scene.pid())?;
    loop {
        assert_ne!(daemon.next(), Came::Gone, "the daemon ended by itself:\n{}", stage.scene.log());
        if let Some(copy) = daemon.take_copy() {
            return Ok((daemon, copy));
        }
    }
}

/// Lets the copy make so many steps; tells how many it made.
fn go_on(copy: &mut Tracer, most: u64) -> u64 {
    (0..most).take_while(|_| matches!(copy.next(), Came::Stopped | Came::Asleep)).count() as u64
}

#[rstest]
#[case::of_the_copy(Victim::Copy, Write::through_a_ring())]
#[case::of_the_daemon(Victim::Daemon, Commit::new())]
#[case::of_both(Victim::Both, Domain(Fate::Introduced))]
fn a_death_while_the_store_is_written_down(#[case] victim: Victim, #[case] mut act: impl Act) {
    let mut dice = Dice::thrown();
    let mut stage = Stage::new(Keep::All);
    act.set_up(&mut stage);
    stage.begin_again();
    let whole = Cut { steps: u64::MAX, instructions: 0 };
    act.prepare(&mut stage);
    let measured = stage.play(&mut act, whole).and_then(|played| Ok((played, start_and_copy(&mut stage)?)));
    let (played, (daemon, mut copy)) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            println!(
                "NO STEPS: this process may not trace ({error}); starts that are killed at random times meet this too"
            );
            return;
        }
    };
    let steps = go_on(&mut copy, u64::MAX);
    drop((daemon, copy));
    come_out(&mut act, &mut stage, played.cues, whole);
    let kills = rounds().map_or(KILLS, |rounds| rounds * steps);
    println!("{steps} steps of the copy, {kills} kills");
    let first = dice.below(steps);
    for number in 0..kills {
        act.prepare(&mut stage);
        let cut = Cut { steps: dice.below(played.steps + 1), instructions: 0 };
        let cues = stage.play(&mut act, cut).expect("what may be traced once may be traced again").cues;
        let (mut daemon, mut copy) = start_and_copy(&mut stage).expect("what may be traced once may be traced again");
        let most = 1 + (first + number * steps / kills) % steps;
        println!("the copy makes {most} steps");
        go_on(&mut copy, most);
        match victim {
            Victim::Copy => {
                drop(copy);
                daemon.let_go();
                act.remaining_cues(&mut stage, cues);
                act.check(&mut stage);
                stage.begin_again();
                stage.next_round();
            }
            Victim::Daemon => {
                drop(daemon);
                // It was to end with the daemon.
                while copy.next() != Came::Gone {}
                come_out(&mut act, &mut stage, cues, cut);
            }
            Victim::Both => {
                stage.spare_the_accused(&mut daemon);
                drop((copy, daemon));
                come_out(&mut act, &mut stage, cues, cut);
            }
        }
    }
}
