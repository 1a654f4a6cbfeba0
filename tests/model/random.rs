//! Random sequences of steps, shrunk to the shortest that still goes wrong.

use crate::{
    adapter::Store,
    compare::{Pair, Tally},
    model::Model,
    steps::{Step, opening, step},
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::{cell::RefCell, env};

/// Sequences that are played, unless `XS_ROUNDS` says otherwise.
const ROUNDS: u32 = 2000;

/// Where the random numbers start, unless `XS_SEED` says otherwise.
const SEED: u64 = 1;

fn number<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What random sequences must come to now and then: without these they would show little.
const SEEN: [(&str, &str); 16] = [
    ("WATCH_EVENT", "OK"),
    ("TRANSACTION_END", "OK"),
    ("TRANSACTION_END", "EAGAIN"),
    ("TRANSACTION_END", "ENOMEM"),
    ("TRANSACTION_START", "ENOSPC"),
    ("WRITE", "ENOSPC"),
    ("WRITE", "EACCES"),
    ("WRITE", "ENOMEM"),
    ("WRITE", "EIO"),
    ("READ", "ENOENT"),
    ("RM", "ENOENT"),
    ("SET_PERMS", "EPERM"),
    ("SET_PERMS", "ENOENT"),
    ("WATCH", "EEXIST"),
    ("WATCH", "ENOSPC"),
    ("RELEASE", "OK"),
];

/// Plays random sequences on a fresh store and a fresh model each, comparing them after every step.
pub(crate) fn compare(make: fn() -> Box<dyn Store>) {
    let rounds = number("XS_ROUNDS", ROUNDS);
    let config = Config {
        cases: rounds,
        failure_persistence: None,
        // What proptest would shrink within its lengths is shrunk below without that bound.
        max_shrink_iters: 0,
        ..Config::default()
    };
    let mut seed = [0x5a; 16];
    seed[..8].copy_from_slice(&number("XS_SEED", SEED).to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &seed));
    let seen = RefCell::new(Tally::new());
    let result = runner.run(&proptest::collection::vec(step(), 60..76), |steps| {
        let tally = play(make, &steps).map_err(TestCaseError::fail)?;
        for (what, count) in tally {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
        Ok(())
    });
    match result {
        Ok(()) => {
            let seen = seen.into_inner();
            let rare: Vec<_> = SEEN.iter().filter(|what| seen.get(what).is_none_or(|&count| count < 10)).collect();
            assert!(rounds < ROUNDS || rare.is_empty(), "hardly seen: {rare:?} of {seen:?}");
        }
        Err(TestError::Fail(_, steps)) => {
            let (wrong, steps) = shorten(make, steps);
            let shown: Vec<_> = steps.iter().map(|step| format!("  {step}")).collect();
            panic!("{wrong}\nafter the opening, the shortest sequence found:\n{}", shown.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Plays one sequence behind the opening; the error says what was different first.
fn play(make: fn() -> Box<dyn Store>, steps: &[Step]) -> Result<Tally, String> {
    let (mut model, mut store) = (Model::new(), make());
    let mut pair = Pair::new(&mut model, store.as_mut());
    for step in opening().iter().chain(steps) {
        pair.step(step).map_err(|wrong| format!("at {step}: {wrong}"))?;
    }
    pair.compare_trees()?;
    Ok(pair.tally)
}

/// Leaves steps out, many at once and then single ones, as long as the rest still goes wrong.
fn shorten(make: fn() -> Box<dyn Store>, mut steps: Vec<Step>) -> (String, Vec<Step>) {
    let mut wrong = play(make, &steps).expect_err("it went wrong before");
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut shorter = false;
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..steps.len().min(at + size));
            match play(make, &fewer) {
                Err(still) => (wrong, steps, shorter) = (still, fewer, true),
                Ok(_) => at += size,
            }
        }
        if !shorter {
            size /= 2;
        }
    }
    (wrong, steps)
}
