//! A daemon that is killed at each step of its start, again and again: nothing that the one before had promised is lost, and
//! the next one comes to serve.
//!
//! A start here goes on until the journal is made short, so that the steps of that are among its steps.

use std::thread;
use std::time::Duration;

use crate::domain_steps::{Domain, Fate};
use crate::player::Dice;
use crate::stage::{Act, Cut, Keep, Stage, come_out, rounds};
use crate::steps::{Commit, Write};
use crate::tracer::Tracer;
use nix::errno::Errno;
use rstest::rstest;

/// Sequences of deaths of each case where nobody says how many.
const SEQUENCES: u64 = 20;

/// Starts that end in a death in one sequence, at most.
const DEATHS: usize = 3;

/// Starts a daemon and kills it behind so many steps; tells how many it made until then, or until it had nothing to do any
/// more.
fn start_and_kill(stage: &mut Stage, most: u64) -> Result<u64, Errno> {
    stage.scene.kill_whoever_serves();
    stage.scene.start_unawaited();
    let mut tracer = Tracer::attach(stage.scene.pid())?;
    Ok(stage.follow(&mut tracer, most, |stage| stage.is_calm()))
}

#[rstest]
#[case::a_write_through_a_ring(Write::through_a_ring(), Keep::All)]
#[case::a_write_through_a_ring_bound_anew(Write::through_a_ring(), Keep::Nothing)]
#[case::a_write_through_a_socket(Write::through_a_socket(), Keep::All)]
#[case::the_end_of_a_transaction(Commit::new(), Keep::All)]
#[case::an_introduction(Domain(Fate::Introduced), Keep::All)]
#[case::a_release(Domain(Fate::Released), Keep::All)]
#[case::a_domain_that_goes(Domain(Fate::Gone), Keep::All)]
fn a_daemon_that_dies_in_its_start_is_followed(#[case] mut act: impl Act, #[case] keep: Keep) {
    let mut dice = Dice::thrown();
    let mut stage = Stage::new(keep);
    act.set_up(&mut stage);
    stage.begin_again();
    let whole = Cut { steps: u64::MAX, instructions: 0 };
    act.prepare(&mut stage);
    let measured = stage.play(&mut act, whole).and_then(|played| Ok((played, start_and_kill(&mut stage, u64::MAX)?)));
    let (played, steps) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            println!("NO STEPS: this process may not trace ({error}); starts are killed at random times instead");
            at_random_times(&mut act, &mut stage, &mut dice);
            return;
        }
    };
    come_out(&mut act, &mut stage, played.cues, whole);
    let sequences = rounds().map_or(SEQUENCES, |rounds| rounds * steps);
    println!("{steps} steps of a start, {sequences} sequences");
    let first = dice.below(steps);
    for number in 0..sequences {
        act.prepare(&mut stage);
        let cut = Cut { steps: dice.below(played.steps + 1), instructions: 0 };
        let cues = stage.play(&mut act, cut).expect("what may be traced once may be traced again").cues;
        let mut deaths = vec![1 + (first + number * steps / sequences) % steps];
        while dice.below(2) == 0 && deaths.len() < DEATHS {
            deaths.push(1 + dice.below(steps));
        }
        println!("starts that end behind so many steps: {deaths:?}");
        for most in deaths {
            start_and_kill(&mut stage, most).expect("what may be traced once may be traced again");
        }
        come_out(&mut act, &mut stage, cues, cut);
    }
}

/// As [`a_daemon_that_dies_in_its_start_is_followed`], where nobody may trace.
fn at_random_times(act: &mut impl Act, stage: &mut Stage, dice: &mut Dice) {
    for _ in 0..SEQUENCES {
        act.cue(stage, 0);
        for _ in 0..=dice.below(2) {
            stage.scene.kill_whoever_serves();
            stage.scene.start_unawaited();
            thread::sleep(Duration::from_micros(dice.below(30_000)));
        }
        come_out(act, stage, 1, Cut { steps: 0, instructions: 0 });
        act.prepare(stage);
    }
}
