//! The test programs on our library under valgrind, and with the compiler's checks in programs and library: no bad access,
//! no leak, no race.

use crate::differential::arguments;
use crate::library::Library;
use crate::program::{Built, Run};
use crate::stage::{NEW, stage};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use xenstore_wire::Op;
use xenstored_tests::Store;
use xenstored_tests::scene::Scene;

/// What memcheck finds is told by this exit status.
const FOUND: &str = "--error-exitcode=99";

/// Bad accesses, uses of what was never set, and every block that nothing leads to at the end. `--child-silent-after-fork`:
/// a child that leaves by `_exit` frees nothing.
const MEMCHECK: [&str; 8] = [
    "valgrind",
    "--quiet",
    FOUND,
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect,possible",
    "--errors-for-leak-kinds=definite,indirect,possible",
    "--child-silent-after-fork=yes",
    "--track-fds=no",
];

/// Data that two threads use without a lock between them, and locks that are taken in both orders. What is no fault is
/// said, by the names of functions, in a file.
const HELGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    FOUND,
    "--tool=helgrind",
    "--child-silent-after-fork=yes",
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/abi/helgrind.supp"),
];

/// Which of our libraries is looked at.
fn library(built: Built, tool: &[&str]) -> Library {
    match built {
        Built::Checked => Library::OursAddress,
        Built::Raced => Library::OursThread,
        _ if tool == HELGRIND => Library::OursPlain,
        _ => Library::Ours,
    }
}

/// Somebody who writes what storms are about as fast as the daemon takes it: a program's own writer is slowed by the
/// checks. Until it is dropped, or the daemon is gone.
#[derive(Debug)]
struct Wind {
    enough: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Wind {
    fn rise(scene: &Scene) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let (mut client, calm) = (scene.dom0(), Arc::clone(&enough));
        let writer = thread::spawn(move || {
            while !calm.load(Ordering::Relaxed) && client.try_request(Op::Write, 0, b"/storm/wind\0").is_ok() {}
        });
        Self { enough, writer: Some(writer) }
    }
}

impl Drop for Wind {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _written = self.writer.take().map(JoinHandle::join);
    }
}

/// Whether there is to be such a wind. Under valgrind, programs would never come to their end in it.
fn is_windy(name: &str, built: Built) -> bool {
    name == "storm" && matches!(built, Built::Checked | Built::Raced)
}

/// Runs a program with its arguments under a tool, over a daemon of ours.
fn clean(name: &'static str, built: Built, args: &[&str], tool: &[&str]) {
    let scene = stage(Store::Ours);
    let _wind = is_windy(name, built).then(|| Wind::rise(&scene));
    Run::new(name, library(built, tool)).built(built).at(scene.host.socket()).under(tool).args(args).output();
}

#[rstest]
#[case::nodes("nodes", arguments("nodes", Store::Ours))]
#[case::transactions("transactions", arguments("transactions", Store::Ours))]
#[case::watches("watches", &[])]
#[case::opening("opening", &[])]
#[case::words("words", &[])]
#[case::signals("signals", &[])]
#[case::let_go_after_fork("fork", &["destroy"])]
#[case::go_on_after_fork("fork", &["use"])]
#[case::storm("storm", &["50"])]
#[case::threads("threads", &["4", "25"])]
#[case::little_stack("little", &["1000"])]
#[case::plugin("plugin", &["5"])]
fn memory_is_used_and_freed_as_it_should(#[case] name: &'static str, #[case] args: &[&str]) {
    clean(name, Built::Debian, args, &MEMCHECK);
}

/// These checks know the very size of each block, and see bad accesses that valgrind takes for good ones.
#[rstest]
#[case::nodes("nodes", arguments("nodes", Store::Ours))]
#[case::transactions("transactions", arguments("transactions", Store::Ours))]
#[case::watches("watches", &[])]
#[case::opening("opening", &[])]
#[case::words("words", &[])]
#[case::signals("signals", &[])]
#[case::let_go_after_fork("fork", &["destroy"])]
#[case::storm("storm", &["200"])]
#[case::threads("threads", &["8", "100"])]
#[case::closing("closing", &["200"])]
fn so_the_compiler_s_checks_say(#[case] name: &'static str, #[case] args: &[&str]) {
    clean(name, Built::Checked, args, &[]);
}

#[rstest]
#[case::watches("watches", &[])]
#[case::storm("storm", &["200"])]
#[case::threads("threads", &["8", "100"])]
#[case::signals("signals", &[])]
#[case::let_go_after_fork("fork", &["destroy"])]
#[case::closing("closing", &["200"])]
fn nor_do_the_compiler_s_checks_find_a_race(#[case] name: &'static str, #[case] args: &[&str]) {
    clean(name, Built::Raced, args, &[]);
}

#[rstest]
#[case::newer("newer", &[])]
#[case::nulls("nulls", &[])]
#[case::wrong("wrong", &[])]
fn so_it_is_by_newer_calls(#[case] name: &'static str, #[case] args: &[&str]) {
    clean(name, Built::Ours, args, &MEMCHECK);
}

#[test]
fn so_it_is_by_toolstacks() {
    let scene = stage(Store::Ours);
    let domain = scene.host.domain(NEW).expect("the domain was made");
    let run = Run::new("domains", Library::Ours).at(scene.host.socket()).under(&MEMCHECK);
    run.number(domain.domid).number(domain.gfn).number(domain.port).output();
}

#[rstest]
#[case::watches("watches", &[])]
#[case::storm("storm", &["30"])]
#[case::threads("threads", &["4", "25"])]
#[case::signals("signals", &[])]
fn threads_use_nothing_without_a_lock(#[case] name: &'static str, #[case] args: &[&str]) {
    clean(name, Built::Debian, args, &HELGRIND);
}

#[rstest]
#[case::memory(Built::Debian, &MEMCHECK)]
#[case::locks(Built::Debian, &HELGRIND)]
#[case::checked_memory(Built::Checked, &[])]
#[case::checked_races(Built::Raced, &[])]
fn a_death_leaves_no_memory_and_no_race(#[case] built: Built, #[case] tool: &[&str]) {
    for (name, args) in [("death", &[][..]), ("storm", &["5", "die"])] {
        let mut scene = stage(Store::Ours);
        let _wind = is_windy(name, built).then(|| Wind::rise(&scene));
        let run = Run::new(name, library(built, tool)).built(built);
        let waiting = run.at(scene.host.socket()).under(tool).args(args).start();
        scene.kill();
        waiting.finish();
    }
}
