//! A daemon that is killed at each step of a live update, those of the new program included, until that has answered.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::our_binary;

use crate::party::Party;
use crate::player::Dice;
use crate::stage::{Act, Cut, Keep, Stage, come_out, rounds};
use crate::steps::{Commit, Write};
use crate::tracer::Tracer;

/// Kills of each case where nobody says how many.
const KILLS: u64 = 24;

/// Begins an update, and an act with it.
fn begin(stage: &mut Stage, updater: &mut Party, act: &mut impl Act) {
    updater.send(Op::Control, 0, b"live-update\0-s\0");
    act.cue(stage, 0);
}

/// Names the program of an update.
fn name(updater: &mut Party, program: &Path) {
    let named = format!("live-update\0-f\0{}\0", program.display());
    assert_eq!(updater.ask(Op::Control, 0, named.as_bytes()), Ok(b"OK\0".to_vec()));
}

/// Has an update done, an act with it, and kills the daemon behind so many steps; tells how many it made.
fn update_and_kill(stage: &mut Stage, updater: &mut Party, act: &mut impl Act, most: u64) -> Result<u64, Errno> {
    let mut tracer = Tracer::attach(stage.scene.pid())?;
    begin(stage, updater, act);
    Ok(stage.follow(&mut tracer, most, |_| updater.has_arrived()))
}

/// Shows that all goes on, and who asked for the update is answered once.
fn come_out_of_it(stage: &mut Stage, updater: &mut Party, act: &mut impl Act, cut: Cut) {
    stage.begin_again();
    let said = updater.answer().map(|said| String::from_utf8_lossy(&said).into_owned());
    // Who asks a daemon that knows of no update asks too late, or too early.
    assert!(matches!(said.as_deref(), Ok("OK\0" | "Not in live-update session.\0")), "{said:?}");
    come_out(act, stage, 1, cut);
}

#[rstest]
#[case::with_a_write(Write::through_a_ring())]
#[case::with_the_end_of_a_transaction(Commit::new())]
fn a_death_in_a_live_update_loses_nothing(#[case] mut act: impl Act) {
    let mut dice = Dice::thrown();
    let mut stage = Stage::new(Keep::All);
    let program = stage.scene.host.dir().join("another-build");
    fs::copy(our_binary(), &program).expect("there is room");
    // One that has a watch is kept.
    let mut updater = Party::socket(stage.scene.dom0());
    updater.watch("/updates", "none");
    act.set_up(&mut stage);
    stage.begin_again();
    let whole = Cut { steps: u64::MAX, instructions: 0 };
    act.prepare(&mut stage);
    name(&mut updater, &program);
    let steps = match update_and_kill(&mut stage, &mut updater, &mut act, u64::MAX) {
        Ok(steps) => steps,
        Err(error) => {
            println!("NO STEPS: this process may not trace ({error}); the daemon is killed at random times instead");
            for _ in 0..KILLS {
                begin(&mut stage, &mut updater, &mut act);
                thread::sleep(Duration::from_micros(dice.below(60_000)));
                come_out_of_it(&mut stage, &mut updater, &mut act, whole);
                act.prepare(&mut stage);
                name(&mut updater, &program);
            }
            return;
        }
    };
    come_out_of_it(&mut stage, &mut updater, &mut act, whole);
    let kills = rounds().map_or(KILLS, |rounds| rounds * steps);
    println!("{steps} steps, {kills} kills");
    let first = dice.below(steps);
    for number in 0..kills {
        act.prepare(&mut stage);
        name(&mut updater, &program);
        let cut = Cut { steps: 1 + (first + number * steps / kills) % steps, instructions: 0 };
        let played = update_and_kill(&mut stage, &mut updater, &mut act, cut.steps);
        played.expect("what may be traced once may be traced again");
        come_out_of_it(&mut stage, &mut updater, &mut act, cut);
    }
}
