//! Acts that are cut off by a SIGKILL at each of their steps, and must come out as if nothing had happened.
//!
//! `XENSTORED_TEST_STEP_ROUNDS` says how often each step is met, which makes a kill each. In the first round the daemon is
//! killed right there, later some instructions further on.
#![expect(clippy::print_stdout, reason = "a failure is followed up by what was played until then")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;
use xenstore_journal::LogFile;
use xenstored_tests::Event;
use xenstored_tests::scene::{Scene, set_perms};
use xenstored_tests::wait::{self, PATIENCE};

use crate::party::Party;
use crate::player::Dice;
use crate::shared_words::{Shared, addresses};
use crate::tracer::{Came, Tracer, sleeps};

/// Rounds where nobody says how many.
const ROUNDS: u64 = 2;

/// Kills of each act where nobody may trace.
const UNTRACED_KILLS: u64 = 24;

/// Most instructions beyond a step that a process is let go on by before it is killed, as a power of two: where stores are
/// steps, and where only system calls are.
const BEYOND: [u64; 2] = [10, 15];

/// Steps between two looks at where the log is.
const LOOK: u64 = 8;

/// The guest that asks.
pub(crate) const ASKER: u16 = 1;
/// A guest that watches.
pub(crate) const WATCHER: u16 = 2;
/// A domain that comes and goes.
pub(crate) const GUEST: u16 = 9;

/// Where all may write, and all but the guest that comes and goes watch.
pub(crate) const SHARED: &str = "/shared";

/// Something that happens to a daemon, or that it is asked for.
pub(crate) trait Act {
    /// Once for a stage.
    fn set_up(&mut self, stage: &mut Stage) {
        let _ = stage;
    }

    /// Before each time.
    fn prepare(&mut self, stage: &mut Stage) {
        let _ = stage;
    }

    /// How often somebody else does something, each time when the daemon has done all that it could.
    fn cues(&self) -> usize {
        1
    }

    /// What somebody else does then.
    fn cue(&mut self, stage: &mut Stage, number: usize);

    /// What somebody else does after the restart, of which the first `done` are done.
    fn remaining_cues(&mut self, stage: &mut Stage, done: usize) {
        (done..self.cues()).for_each(|number| self.cue(stage, number));
    }

    /// The words whose stores are steps.
    fn shared(&self) -> Vec<Shared>;

    /// Shows that all is as if the daemon had lived.
    fn check(&mut self, stage: &mut Stage);
}

/// A host with its daemon, and those who speak with it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) asker: Party,
    pub(crate) watcher: Party,
    pub(crate) client: Party,
    pub(crate) other: Party,
    keep: Keep,
    /// How often the act was played.
    pub(crate) round: u32,
    /// The last log that a compaction has left alone.
    log: u64,
    /// A daemon died while it executed a request of this round.
    accused: bool,
    /// Stores to shared words are met.
    stores_are_steps: bool,
}

/// What outlives the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A keeper, with sockets and event channels.
    All,
    /// Nothing: clients connect again, and ports are bound again.
    Nothing,
}

/// How an act was cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Behind so many steps.
    pub(crate) steps: u64,
    /// And so many instructions.
    pub(crate) instructions: u64,
}

/// How far an act came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    /// Steps that were made.
    pub(crate) steps: u64,
    /// What others did.
    pub(crate) cues: usize,
}

impl Stage {
    pub(crate) fn new(keep: Keep) -> Self {
        let seconds = if keep == Keep::All { "5" } else { "0" };
        let scene = Scene::with_args(&["--keep", seconds], &[ASKER, WATCHER]);
        let mut dom0 = scene.dom0();
        dom0.write(SHARED, b"");
        set_perms(&mut dom0, SHARED, &["b0"]);
        let rings = [ASKER, WATCHER].map(|domid| Party::ring(scene.ring_client(domid)));
        let sockets = [(); 2].map(|()| Party::socket(scene.dom0()));
        let ([asker, watcher], [client, other]) = (rings, sockets);
        let mut stage = Self {
            scene,
            asker,
            watcher,
            client,
            other,
            keep,
            round: 0,
            log: 0,
            accused: false,
            stores_are_steps: false,
        };
        stage.parties().into_iter().for_each(|party| party.watch(SHARED, "shared"));
        stage
    }

    /// Everybody who has a watch: those whose connections are not lost.
    pub(crate) fn parties(&mut self) -> Vec<&mut Party> {
        let mut parties = vec![&mut self.asker, &mut self.watcher];
        if self.keep == Keep::All {
            parties.extend([&mut self.client, &mut self.other]);
        }
        parties
    }

    /// Shows that everybody has had the events of these paths, each once.
    pub(crate) fn all_have_events_of(&mut self, paths: &[&str]) {
        let events: Vec<Event> = paths.iter().map(|path| Event::new(path, "shared")).collect();
        for (number, party) in self.parties().into_iter().enumerate() {
            assert_eq!(party.events(), events, "of party {number}");
        }
    }

    /// Ends and begins the daemon again, and waits until it has nothing to do any more.
    pub(crate) fn begin_again(&mut self) {
        loop {
            self.scene.kill_whoever_serves();
            self.scene.start_again();
            // Where that took long, the keeper was faster.
            if self.scene.daemons().contains(&self.scene.pid()) {
                break;
            }
        }
        if self.keep == Keep::Nothing {
            [self.client, self.other] = [(); 2].map(|()| Party::socket(self.scene.dom0()));
        }
        self.await_calm();
    }

    /// All has come out.
    pub(crate) fn next_round(&mut self) {
        self.accused = false;
        self.round += 1;
    }

    /// Waits until the daemon has made its journal short and sleeps.
    fn await_calm(&mut self) {
        wait::until("the journal is made short, and the daemon sleeps", || self.is_calm());
        self.log = self.newest_log();
    }

    /// Whether the daemon has made its journal short since it began, and sleeps.
    pub(crate) fn is_calm(&self) -> bool {
        let logs = self.journal_files("log.");
        self.journal_files("").len() == 2 && logs.len() == 1 && logs[0] > self.log && sleeps(self.pid())
    }

    /// The number of the log that is written to.
    pub(crate) fn newest_log(&self) -> u64 {
        self.journal_files("log.").into_iter().max().unwrap_or_default()
    }

    /// Whether a request is being executed, or was at the death.
    fn is_executing(&self) -> bool {
        let log = self.scene.host.dir().join(format!("run/journal/log.{}", self.newest_log()));
        LogFile::executing_now(&log).is_ok_and(|request| request.is_some())
    }

    /// Lets a daemon get over a request that another one died at already: two deaths would convict it.
    pub(crate) fn spare_the_accused(&mut self, tracer: &mut Tracer) {
        while self.accused && self.is_executing() && tracer.next() == Came::Stopped {}
        self.accused |= self.is_executing();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.scene.pid()).expect("a pid fits"))
    }

    /// Numbers of the whole files of the journal whose names begin so.
    fn journal_files(&self, prefix: &str) -> Vec<u64> {
        let files = fs::read_dir(self.scene.host.dir().join("run/journal")).expect("there is a journal");
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let number = |name: String| {
            let (_, number) = name.split_once('.')?;
            // Half-written ones have more to their names; they count, and are none.
            Some(number.parse().unwrap_or(0)).filter(|_| name.starts_with(prefix))
        };
        names.filter_map(number).collect()
    }

    /// Plays an act and cuts it off; the daemon is dead then.
    pub(crate) fn play(&mut self, act: &mut impl Act, cut: Cut) -> Result<Played, Errno> {
        let pid = self.pid();
        wait::until("the daemon sleeps", || sleeps(pid));
        let mut tracer = Tracer::attach(self.scene.pid())?;
        let words = addresses(&self.scene, self.log, &act.shared()).expect("they are mapped");
        self.stores_are_steps = tracer.watch(&words);
        act.cue(self, 0);
        let mut played = Played { steps: 0, cues: 1 };
        while played.steps < cut.steps {
            match tracer.next() {
                Came::Stopped => played.steps += 1,
                Came::Asleep if played.cues < act.cues() => {
                    act.cue(self, played.cues);
                    played.cues += 1;
                }
                Came::Asleep => return Ok(played),
                Came::Gone => panic!("the daemon ended by itself:\n{}", self.scene.log()),
            }
        }
        for _ in 0..cut.instructions {
            if tracer.step() != Came::Stopped {
                break;
            }
        }
        self.spare_the_accused(&mut tracer);
        Ok(played)
    }

    /// Follows a daemon for so many steps, or until it sleeps and `over` finds that it has nothing to do any more; tells how
    /// many steps it made. The log may be another one in between, and the program too.
    pub(crate) fn follow(&mut self, tracer: &mut Tracer, most: u64, over: impl Fn(&Self) -> bool) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        let mut steps = 0;
        while steps < most {
            assert!(Instant::now() < deadline, "it does not come to its end:\n{}", self.scene.log());
            match tracer.next() {
                Came::Stopped => steps += 1,
                Came::Asleep if over(self) => return steps,
                // Its keeper, or a copy of it, is at work.
                Came::Asleep => thread::sleep(Duration::from_micros(50)),
                // The keeper was faster.
                Came::Gone => return steps,
            }
            if steps % LOOK == 0
                && let Some(words) =
                    addresses(&self.scene, self.newest_log(), &[Shared::Tail, Shared::Executing, Shared::Note])
            {
                tracer.watch(&words);
            }
        }
        self.spare_the_accused(tracer);
        steps
    }

    /// As [`Stage::play`], where nobody may trace: the end comes at some time after the first cue.
    fn play_untraced(&mut self, act: &mut impl Act, dice: &mut Dice) -> Played {
        act.cue(self, 0);
        thread::sleep(Duration::from_micros(dice.below(3000)));
        Played { steps: 0, cues: 1 }
    }
}

/// How often each step is to be met, where somebody says.
pub(crate) fn rounds() -> Option<u64> {
    std::env::var("XENSTORED_TEST_STEP_ROUNDS").ok().map(|rounds| rounds.parse().expect("a number of rounds"))
}

/// Plays an act again and again, and kills the daemon each time at another of its steps.
pub(crate) fn at_each_step(mut act: impl Act, keep: Keep) {
    let mut dice = Dice::thrown();
    let mut stage = Stage::new(keep);
    act.set_up(&mut stage);
    stage.begin_again();
    // Cut off behind its end, which tells how many steps it has.
    let whole = Cut { steps: u64::MAX, instructions: 0 };
    act.prepare(&mut stage);
    let (steps, cues) = match stage.play(&mut act, whole) {
        Ok(played) => (played.steps, played.cues),
        Err(error) => {
            println!("NO STEPS: this process may not trace ({error}); the daemon is killed at random times instead");
            return at_random_times(&mut act, &mut stage, &mut dice);
        }
    };
    come_out(&mut act, &mut stage, cues, whole);
    let rounds = rounds().unwrap_or(ROUNDS);
    println!("{steps} steps, {rounds} times; stores are steps: {}", stage.stores_are_steps);
    for (round, steps) in (0..rounds).flat_map(|round| (1..=steps).map(move |steps| (round, steps))) {
        let beyond = BEYOND[usize::from(!stage.stores_are_steps)];
        let most = if round == 0 { 1 } else { 1 << dice.below(beyond + 1) };
        let cut = Cut { steps, instructions: dice.below(most) };
        act.prepare(&mut stage);
        let played = stage.play(&mut act, cut).expect("what may be traced once may be traced again");
        come_out(&mut act, &mut stage, played.cues, cut);
    }
}

/// As [`at_each_step`], where nobody may trace.
fn at_random_times(act: &mut impl Act, stage: &mut Stage, dice: &mut Dice) {
    for _ in 0..UNTRACED_KILLS {
        let played = stage.play_untraced(act, dice);
        come_out(act, stage, played.cues, Cut { steps: 0, instructions: 0 });
        act.prepare(stage);
    }
}

/// Has the next daemon bring the act to its end.
pub(crate) fn come_out(act: &mut impl Act, stage: &mut Stage, cues: usize, cut: Cut) {
    println!("round {}: cut off by {cut:?}", stage.round);
    stage.begin_again();
    act.remaining_cues(stage, cues);
    act.check(stage);
    stage.next_round();
}

impl Drop for Stage {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.scene.log());
        }
    }
}
