//! Random conversations with both daemons, decided by seeds.
//!
//! `XS_SEED` sets the first seed and `XS_ROUNDS` the number of conversations, for longer runs. A failure prints the
//! shortest part of the conversation that still shows it.

use crate::pair::Pair;
use crate::stream::{Step, generate};
use rstest::rstest;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Conversations of a normal run, all parts together.
const ROUNDS: u64 = 300;
/// Parts that run at the same time.
const PARTS: u64 = 4;
/// Steps of a conversation.
const LENGTH: usize = 60;
/// Most replays spent on making a failure shorter.
const REPLAYS: usize = 400;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// Plays a conversation; gives the step that showed a difference and what it was.
fn play(steps: &[Step], met: &mut BTreeMap<&'static str, usize>) -> Result<(), (usize, String)> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut pair = Pair::start();
        let result = steps.iter().enumerate().try_for_each(|(at, step)| pair.play(step).map_err(|wrong| (at, wrong)));
        let result = result.and_then(|()| pair.finish().map_err(|wrong| (steps.len() - 1, wrong)));
        for (rule, count) in &pair.met {
            *met.entry(rule).or_default() += count;
        }
        result
    }));
    played.unwrap_or_else(|_| Err((steps.len() - 1, "a daemon stopped answering between the steps".into())))
}

/// Leaves out what is not needed to see a difference: everything behind it, then single steps and requests.
fn shrink(mut steps: Vec<Step>, mut wrong: (usize, String)) -> (Vec<Step>, String) {
    let mut replays = 0;
    steps.truncate(wrong.0 + 1);
    let mut chunk = steps.len() / 2;
    while chunk > 0 && replays < REPLAYS {
        let mut at = 0;
        while at < steps.len() && steps.len() > 1 && replays < REPLAYS {
            let mut shorter = steps.clone();
            shorter.drain(at..(at + chunk).min(steps.len()));
            replays += 1;
            match if shorter.is_empty() { Ok(()) } else { play(&shorter, &mut BTreeMap::new()) } {
                Ok(()) => at += chunk,
                Err(seen) => {
                    shorter.truncate(seen.0 + 1);
                    (steps, wrong) = (shorter, seen);
                }
            }
        }
        chunk /= 2;
    }
    (steps, wrong.1)
}

#[rstest]
fn random_conversations_are_answered_alike(#[values(0, 1, 2, 3)] part: u64) {
    let first = from_environment("XS_SEED", 1);
    let rounds = from_environment("XS_ROUNDS", ROUNDS);
    let mut met = BTreeMap::new();
    for seed in (first..first + rounds).filter(|seed| seed % PARTS == part) {
        let steps = generate(seed, LENGTH);
        if let Err(wrong) = play(&steps, &mut met) {
            let (steps, wrong) = shrink(steps, wrong);
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("XS_SEED={seed} XS_ROUNDS=1: the daemons differ\n{}\n{wrong}", steps.join("\n"));
        }
    }
    println!("differences that a rule allows: {met:?}");
}
