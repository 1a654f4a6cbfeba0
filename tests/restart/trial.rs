//! The new program of a live update is tried out while the daemon serves.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::scene::{Scene, ask, write};
use crate::take_over::program;
use xenstore_wire::Op;
use xenstored_tests::{Client, our_binary, wait};

/// What a step of a live update is answered.
pub(crate) fn say(client: &mut Client, words: &[&str]) -> String {
    let reply = ask(client, Op::Control, words).unwrap();
    String::from_utf8(reply).unwrap().trim_end_matches('\0').to_owned()
}

/// A program that has our help, and does so when it is to check a state.
fn candidate(scene: &Scene, check: &str) -> PathBuf {
    program(
        scene,
        "candidate",
        &format!("#!/bin/sh\nif test \"$1\" = --help; then echo xenstored-rs; else {check}; fi\n"),
    )
}

/// Who may do what with a file.
fn mode(file: &Path) -> u32 {
    PermissionsExt::mode(&fs::metadata(file).unwrap().permissions()) & 0o7777
}

/// Our program over a file.
fn check(file: &Path) -> Output {
    std::process::Command::new(our_binary()).arg("--check-state").arg(file).output().unwrap()
}

#[test]
fn one_that_cannot_go_on_changes_nothing() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[1]);
    let (mut dom0, mut guest) = (scene.dom0(), scene.guest(1));
    write(&mut guest, "a", b"1").unwrap();
    let broken = candidate(&scene, "echo it is too new; exit 1");
    assert_eq!(say(&mut dom0, &["live-update", "-f", broken.to_str().unwrap()]), "OK");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "The new binary cannot go on: it is too new");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "Not in live-update session.");
    let ending = program(&scene, "ending", "#!/bin/sh\nexit 1\n");
    assert_eq!(say(&mut dom0, &["live-update", "-f", ending.to_str().unwrap()]), "OK");
    let refused = "The new binary cannot go on: its --help fails";
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), refused);
    let junk = program(&scene, "junk", "neither");
    assert_eq!(say(&mut dom0, &["live-update", "-f", junk.to_str().unwrap()]), "OK");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "Error activating new binary.");
    // It takes none of these.
    assert_eq!(say(&mut dom0, &["live-update", "-f", our_binary().to_str().unwrap()]), "OK");
    assert_eq!(say(&mut dom0, &["live-update", "-c", "--no-such-option"]), "OK");
    let refused = say(&mut dom0, &["live-update", "-s"]);
    assert!(refused.starts_with("The new binary cannot go on: ") && refused.contains("no-such-option"), "{refused}");
    assert_eq!(guest.read("a"), Ok(b"1".to_vec()));
    scene.add(7);
    scene.destroy(7);
    scene.assert_alive();
}

#[test]
fn everybody_is_served_while_it_reads_the_state() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[1]);
    let (mut asker, mut dom0, mut guest) = (scene.dom0(), scene.dom0(), scene.guest(1));
    write(&mut guest, "a", b"1").unwrap();
    let dir = scene.host.dir().to_owned();
    let (told, go) = (dir.join("told"), dir.join("go"));
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let slow = format!("echo \"$@\" > {0}.new; mv {0}.new {0}; cat {1}; exit 1", told.display(), go.display());
    let slow = candidate(&scene, &slow);
    assert_eq!(say(&mut asker, &["live-update", "-f", slow.to_str().unwrap()]), "OK");
    asker.send(Op::Control.number(), 0, b"live-update\0-s\0").unwrap();
    let words = wait::until_some("the program is tried", || fs::read_to_string(&told).ok());

    assert_eq!(guest.read("a"), Ok(b"1".to_vec()));
    dom0.write("/b", b"2");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "Not in live-update session.");
    scene.add(7);
    scene.destroy(7);
    // What it reads is whole, and is all that there is but for what was written since.
    let image = Path::new(words.split_whitespace().last().unwrap());
    let checked = check(image);
    assert!(checked.status.success(), "{checked:?}");
    let name = image.file_name().unwrap().to_str().unwrap();
    let left: Vec<_> = fs::read_dir(image.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.len() == 2 && left.contains(&name.replace("image", "log").into()), "{left:?}");

    fs::OpenOptions::new().write(true).open(&go).unwrap().write_all(b"not so\n").unwrap();
    let answer = asker.reply().unwrap().payload;
    assert_eq!(String::from_utf8_lossy(&answer), "The new binary cannot go on: not so\0");
    assert_eq!(dom0.read("/b"), Ok(b"2".to_vec()));
    scene.assert_alive();
}

#[test]
fn an_update_whose_client_is_gone_comes_to_nothing() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[1]);
    let (mut asker, mut dom0) = (scene.dom0(), scene.dom0());
    let dir = scene.host.dir().to_owned();
    let (told, go) = (dir.join("told"), dir.join("go"));
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // It would be a success.
    let slow = candidate(&scene, &format!("echo > {}; cat {}", told.display(), go.display()));
    assert_eq!(say(&mut asker, &["live-update", "-f", slow.to_str().unwrap()]), "OK");
    asker.send(Op::Control.number(), 0, b"live-update\0-s\0").unwrap();
    wait::until("the program is tried", || told.exists());
    drop(asker);
    let other = our_binary();
    wait::until("the daemon knows", || say(&mut dom0, &["live-update", "-f", other.to_str().unwrap()]) == "OK");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "BUSY", "the other program still runs");
    drop(fs::OpenOptions::new().write(true).open(&go).unwrap());
    let before = scene.pid();
    wait::until("the next one has its turn", || match say(&mut dom0, &["live-update", "-s"]).as_str() {
        "OK" => true,
        answer => {
            assert_eq!(answer, "BUSY");
            false
        }
    });
    assert_eq!(fs::read_link(format!("/proc/{before}/exe")).unwrap(), fs::canonicalize(other).unwrap());
    scene.assert_alive();
}

#[test]
fn a_state_is_checked_to_the_last_byte() {
    let mut scene = Scene::with_args(&["--keep", "5"], &[1]);
    let mut dom0 = scene.dom0();
    dom0.write("/a", b"1");
    // What another daemon would find.
    let (run, stream) = (scene.host.dir().join("run"), scene.host.dir().join("stream"));
    let (dump, ours) = (run.join("state_dump"), our_binary());
    let other = format!("#!/bin/sh\ntest \"$1\" = --help && exit\ncp {} {}\n", dump.display(), stream.display());
    let other = program(&scene, "other", &format!("{other}exec {} \"$@\"\n", ours.display()));
    assert_eq!(say(&mut dom0, &["live-update", "-f", other.to_str().unwrap()]), "OK");
    assert_eq!(say(&mut dom0, &["live-update", "-s"]), "OK");
    assert_eq!(dom0.read("/a"), Ok(b"1".to_vec()), "{}", scene.log());
    assert!(!dump.exists());
    drop(dom0);
    scene.stop();

    let journal = run.join("journal");
    for whole in [&journal, &stream] {
        let checked = check(whole);
        assert!(checked.status.success() && checked.stderr.is_empty(), "{whole:?}: {checked:?}");
    }
    let content = fs::read(&stream).unwrap();
    for cut in (0..content.len()).step_by(content.len() / 37) {
        fs::write(&stream, &content[..cut]).unwrap();
        let checked = check(&stream);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.code() == Some(1) && said.contains("byte"), "{cut}: {checked:?}");
    }
    let log = fs::read_dir(&journal)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().contains("log"));
    let log = log.unwrap();
    let mut damaged = fs::read(&log).unwrap();
    damaged[100] ^= 1;
    fs::write(&log, damaged).unwrap();
    let checked = check(&journal);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.code() == Some(1) && said.contains("is damaged at byte"), "{checked:?}");
    assert_eq!(check(&run.join("nothing")).status.code(), Some(1));
}

#[test]
fn what_is_checked_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    let said = |file: &Path| {
        let checked = check(file);
        assert_eq!(checked.status.code(), Some(1), "{checked:?}");
        String::from_utf8(checked.stderr).unwrap()
    };
    assert_eq!(said(&other), format!("xenstored-rs: {} has no journal of this boot\n", other.display()));
    fs::write(other.join("log.1"), "junk").unwrap();
    let log = format!("xenstored-rs: {} is not a log of a journal\n", other.join("log.1").display());
    assert_eq!(said(&other), log);
    assert_eq!(mode(&other), 0o755);
    let large = dir.path().join("large");
    fs::File::create(&large).unwrap().set_len(20 << 30).unwrap();
    assert!(said(&large).contains("it is larger than any state"));
    let missing = dir.path().join("missing");
    assert!(said(&missing).contains("No such file"));
    assert!(!missing.exists());
}
