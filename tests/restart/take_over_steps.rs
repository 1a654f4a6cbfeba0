//! A daemon that is killed at each step of a take-over from another daemon, the steps of its own start included.

use std::fs;
use std::path::PathBuf;

use nix::errno::Errno;
use rstest::rstest;
use xenstore_wire::Op;
use xenstored_tests::scene::{OK, Scene, ask, is_introduced, set_perms};
use xenstored_tests::{Client, Event, Store, our_binary, process, tools, wait};

use crate::party::Party;
use crate::player::Dice;
use crate::stage::rounds;
use crate::tracer::{Came, Tracer};

/// Kills where nobody says how many.
const KILLS: u64 = 24;

/// Steps before the keeper begins, at which it is killed too.
const NEAR: u64 = 100;

/// The guest.
const GUEST: u16 = 1;

/// A host with another daemon, of which a guest and a client have something.
struct Stage {
    scene: Scene,
    guest: Party,
    client: Party,
    /// The one that asks for the take-over.
    toolstack: Client,
    /// The file in which the other daemon leaves what it knows.
    state: PathBuf,
}

/// What a daemon made of a take-over until its death.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// Its steps.
    steps: u64,
    /// Those before it had a keeper.
    alone: u64,
    /// Descriptors of the keeper.
    held: usize,
    /// The other daemon's file is not needed any more.
    is_done: bool,
}

impl Stage {
    fn new(store: Store) -> Self {
        let scene = Scene::of(store, &[GUEST]);
        let (mut guest, mut client) = (Party::ring(scene.ring_client(GUEST)), Party::socket(scene.dom0()));
        client.write("/kept", "value");
        client.watch("/kept", "client");
        client.watch("@releaseDomain", "gone");
        let mut toolstack = scene.dom0();
        set_perms(&mut toolstack, "/kept", &["n0", "r1"]);
        client.events();
        guest.watch("/kept", "guest");
        let words = ["live-update", "-f", our_binary().to_str().expect("text")];
        // oxenstored ends no text with a NUL.
        assert!(ask(&mut toolstack, Op::Control, &words).is_ok_and(|said| said.starts_with(b"OK")));
        let state = scene.host.dir().join("run").join(if store == Store::C { "state_dump" } else { "db" });
        Self { scene, guest, client, toolstack, state }
    }

    /// Has our daemon take over, and kills it behind so many of its steps.
    fn take_over_and_kill(&mut self, most: u64) -> Result<Made, Errno> {
        let program = fs::canonicalize(our_binary()).expect("it is there");
        let mut tracer = Tracer::attach(self.scene.pid())?;
        let is_ours = |pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
        self.ask_for_it();
        let (mut steps, mut counts, mut alone) = (0, false, 0);
        while steps < most {
            if self.toolstack.has_arrived() {
                if counts {
                    break;
                }
                // oxenstored has yet to look for transactions.
                assert_eq!(self.toolstack.reply().map(|reply| reply.payload), Ok(b"BUSY".to_vec()));
                self.ask_for_it();
            }
            match tracer.next() {
                Came::Stopped if counts => steps += 1,
                Came::Stopped => counts = is_ours(self.scene.pid()),
                Came::Asleep => std::thread::yield_now(),
                Came::Gone => panic!("it ended by itself:\n{}", self.scene.log()),
            }
            if most == u64::MAX && self.scene.keepers().is_empty() {
                alone = steps;
            }
        }
        let held = self.scene.keepers().first().map_or(0, |&keeper| process::descriptors(keeper));
        let is_done = counts && !self.state.exists();
        Ok(Made { steps, alone, held, is_done })
    }

    fn ask_for_it(&mut self) {
        self.toolstack.send(Op::Control.number(), 0, b"live-update\0-s\0").expect("there is room");
    }

    fn start_again(&mut self) {
        self.scene.kill_whoever_serves();
        self.scene.become_ours();
        self.scene.add_args(&["--keep", "5"]);
        self.scene.start_again();
    }

    /// Shows that everybody goes on as if nothing had happened.
    fn goes_on(mut self) {
        let mut other = self.scene.dom0();
        assert_eq!(other.read("/kept"), Ok(b"value".to_vec()), "{}", self.scene.log());
        assert!(is_introduced(&mut other, GUEST));
        let reply = self.toolstack.reply().unwrap_or_else(|error| panic!("{error}: {}", self.scene.log()));
        // Who asks a daemon that knows of no take-over asks too late.
        assert!([&b"OK"[..], b"OK\0", b"Not in live-update session.\0"].contains(&&reply.payload[..]), "{reply:?}");
        other.write("/kept", b"new");
        assert_eq!(self.client.events(), [Event::new("/kept", "client")], "{}", self.scene.log());
        assert_eq!(self.guest.events(), [Event::new("/kept", "guest")]);
        // Deaths of domains are noticed.
        self.scene.add(9);
        self.scene.destroy(9);
        assert_eq!(self.client.events(), [Event::new("@releaseDomain", "gone")], "{}", self.scene.log());
    }

    /// Shows that there is nothing left, and that the daemon serves.
    fn begins_anew(self) {
        let mut dom0 = self.scene.dom0();
        assert_eq!(dom0.read("/kept"), Err("ENOENT".into()));
        self.scene.host.introduce(GUEST).expect("the daemon takes it");
        assert_eq!(Party::ring(self.scene.ring_client(GUEST)).events(), []);
    }
}

/// The other way round: the journal is good until the other daemon has what was left for it, and not any longer.
#[test]
fn a_death_before_another_daemon_has_the_store_loses_nothing() {
    let stage = || {
        let scene = Scene::with_args(&["--keep", "5"], &[GUEST]);
        scene.dom0().write("/kept", b"value");
        scene
    };
    let left = |scene: &Scene| scene.host.dir().join("run/state_dump").exists();
    // Whether the other daemon had it then.
    let replace_and_kill = |scene: &Scene, most: u64| -> Result<(u64, bool), Errno> {
        let mut toolstack = scene.dom0();
        let program = format!("{}/xenstored", tools::XEN_BIN);
        assert!(ask(&mut toolstack, Op::Control, &["live-update", "-f", &program]).is_ok());
        let mut tracer = Tracer::attach(scene.pid())?;
        toolstack.send(Op::Control.number(), 0, b"live-update\0-s\0").expect("there is room");
        let (mut steps, mut was_left) = (0, false);
        while steps < most && !toolstack.has_arrived() {
            match tracer.next() {
                Came::Stopped => steps += 1,
                Came::Asleep => std::thread::yield_now(),
                Came::Gone => panic!("it ended by itself:\n{}", scene.log()),
            }
            was_left |= left(scene);
        }
        Ok((steps, was_left && !left(scene)))
    };
    let mut scene = stage();
    let steps = match replace_and_kill(&scene, u64::MAX) {
        Ok((steps, _)) => steps,
        Err(error) => {
            println!("NO STEPS: this process may not trace ({error}); nobody is killed");
            return;
        }
    };
    // The other daemon was killed at once, and what it had is nowhere.
    scene.kill_whoever_serves();
    scene.start_again();
    assert_eq!(scene.dom0().read("/kept"), Err("ENOENT".into()));
    let kills = rounds().map_or(KILLS, |rounds| rounds * steps);
    println!("{steps} steps, {kills} kills");
    for number in 0..kills {
        let most = 1 + number * steps / kills;
        let mut scene = stage();
        let (_, is_taken) = replace_and_kill(&scene, most).expect("what may be traced once may be traced again");
        scene.kill_whoever_serves();
        scene.start_again();
        println!("behind {most} steps, taken: {is_taken}");
        let found = scene.dom0().read("/kept");
        if is_taken {
            assert_eq!(found, Err("ENOENT".into()), "what the journal has is old");
        } else {
            assert_eq!(found, Ok(b"value".to_vec()), "{}", scene.log());
            assert_eq!(Party::ring(scene.ring_client(GUEST)).events(), []);
            scene.dom0().write("/kept", b"after");
            scene.kill();
            scene.start_again();
            assert_eq!(scene.dom0().read("/kept"), Ok(b"after".to_vec()));
        }
    }
}

/// The keeper starts a daemon with the arguments of the one before, which may have taken over.
#[test]
fn what_was_left_for_another_is_no_store_where_there_is_a_journal() {
    let mut stage = Stage::new(Store::C);
    if let Err(error) = stage.take_over_and_kill(u64::MAX) {
        println!("NO STEPS: this process may not trace ({error}); nobody is killed");
        return;
    }
    let serves = |stage: &Stage| {
        let mut client = Client::connect(&stage.scene.host.socket()).ok()?;
        client.try_request(Op::Read, 0, b"/\0").ok()?;
        stage.scene.daemons().first().copied()
    };
    let pid = wait::until_some("the keeper starts a daemon", || serves(&stage));
    assert_eq!(stage.toolstack.reply().map(|reply| reply.payload), Ok(OK.to_vec()), "{}", stage.scene.log());
    let words = ["live-update", "-f", &format!("{}/xenstored", tools::XEN_BIN)];
    assert_eq!(ask(&mut stage.toolstack, Op::Control, &words), Ok(OK.to_vec()));
    let mut tracer = Tracer::attach(pid).expect("what may be traced once may be traced again");
    stage.ask_for_it();
    while fs::metadata(&stage.state).is_ok_and(|file| file.len() == 0) || !stage.state.exists() {
        assert_ne!(tracer.next(), Came::Gone, "{}", stage.scene.log());
    }
    drop(tracer);
    wait::until("the keeper starts another", || serves(&stage).is_some_and(|other| other != pid));
    assert!(stage.state.exists(), "it is left");
    stage.goes_on();
}

#[rstest]
#[case::from_c(Store::C)]
#[case::from_oxenstored(Store::Ocaml)]
fn a_death_in_a_take_over_is_followed_by_another_attempt(#[case] store: Store) {
    let mut dice = Dice::thrown();
    let mut stage = Stage::new(store);
    let whole = match stage.take_over_and_kill(u64::MAX) {
        Ok(made) => made,
        Err(error) => {
            println!("NO STEPS: this process may not trace ({error}); nobody is killed");
            return;
        }
    };
    assert!(whole.is_done, "{whole:?}");
    stage.start_again();
    stage.goes_on();
    let rounds = rounds();
    // Most of the steps that it makes alone are the loader's.
    let (begin, kills) = match rounds {
        None => (whole.alone.saturating_sub(NEAR), KILLS),
        Some(rounds) => (0, rounds * whole.steps),
    };
    let steps = whole.steps - begin;
    println!("{whole:?}, {kills} kills");
    let first = dice.below(steps);
    let mut kept = 0;
    for number in 0..kills {
        let most = begin + 1 + (first + number * steps / kills) % steps;
        let mut stage = Stage::new(store);
        let made = stage.take_over_and_kill(most).expect("what may be traced once may be traced again");
        println!("{made:?}");
        stage.start_again();
        // With its mark a keeper holds one more than in the end. It may have been about to take that in.
        let must_go_on = made.is_done || made.held > whole.held;
        if must_go_on || stage.scene.dom0().read("/kept").is_ok() {
            kept += 1;
            stage.goes_on();
        } else {
            // As a death of the other daemon.
            stage.begins_anew();
        }
    }
    println!("{kept} deaths were followed by another attempt, or came after the end");
    assert!(kept > 0);
}
