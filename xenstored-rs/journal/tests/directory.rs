//! Which files of a directory are used, and which are refused.

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::Path,
    process,
};

use nix::{
    sys::stat::Mode,
    unistd::{Uid, chown, geteuid, mkfifo},
};
use rstest::rstest;
use tempfile::TempDir;
use xenstore_journal::{BootId, Directory, Error, Found, Image, ImageWriter, Log, LogFile, Plan};

fn directory() -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    (dir, directory)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(directory: &Directory) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Logs from a first one on, `count` of them, each with an image but the first.
fn history(directory: &Directory, count: usize) -> Vec<Log> {
    let mut logs = vec![Log::first(directory, "test").unwrap()];
    while logs.len() < count {
        let next = logs[logs.len() - 1].next(directory, "test").unwrap();
        image(directory, &next);
        logs.push(next);
    }
    logs
}

fn image(directory: &Directory, log: &Log) {
    let mut image = ImageWriter::create(directory, log.heading()).unwrap();
    write!(image, "state {}", log.number()).unwrap();
    image.finish().unwrap();
}

fn write_at(directory: &Directory, name: &str, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(directory.path().join(name)).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn plan(directory: &Directory) -> Option<Plan> {
    let Found { plan, other_boot, damaged } = directory.newest().unwrap();
    assert_eq!((other_boot.len(), damaged.len()), (0, 0));
    plan
}

#[test]
fn the_directory_and_its_files_are_of_one_user_alone() {
    let (dir, directory) = directory();
    assert_eq!(mode(directory.path()), 0o700);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    Directory::open(directory.path()).unwrap();
    assert_eq!(mode(directory.path()), 0o700);
    history(&directory, 2);
    assert_eq!(names(&directory), ["image.2", "log.1", "log.2"]);
    for name in names(&directory) {
        assert_eq!(mode(&directory.path().join(name)), 0o600);
    }
    assert!(matches!(Directory::open(&dir.path().join("not/there")), Err(Error::Io { what: "make", .. })));
}

#[test]
fn what_is_no_directory_is_refused_and_left_alone() {
    let (dir, directory) = directory();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o750)).unwrap();
    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    symlink(directory.path(), &link).unwrap();
    fs::write(&file, "kept").unwrap();
    for path in [&link, &file] {
        let error = Directory::open(path).unwrap_err();
        assert_eq!(error.to_string(), format!("{} is not a directory", path.display()));
    }
    assert_eq!((mode(directory.path()), fs::read(&file).unwrap()), (0o750, b"kept".to_vec()));
}

#[test]
fn a_damaged_boot_id_is_not_taken_for_that_of_another_boot() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(&dir.path().join("journal")).unwrap();
    let log = Log::first(&directory, "test").unwrap().path().to_owned();
    let whole = fs::read(&log).unwrap();
    for at in 8..24 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&log, bytes).unwrap();
        let error = directory.newest().unwrap_err();
        assert_eq!(error.to_string(), format!("{} is damaged at byte 8: the boot id is wrong", log.display()));
    }
}

#[test]
fn a_directory_of_other_things_is_not_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("passwd"), "root").unwrap();
    assert!(matches!(Directory::open(dir.path()), Err(Error::Used { mode: 0o755, .. })));
    assert_eq!(mode(dir.path()), 0o755);
    // One that has been a journal's is one still, whatever else is in it.
    fs::write(dir.path().join("log.1"), "").unwrap();
    assert!(Directory::open(dir.path()).is_ok());
    assert_eq!(mode(dir.path()), 0o700);
}

#[test]
fn another_users_files_are_refused() {
    if geteuid().is_root() {
        let (_dir, directory) = directory();
        history(&directory, 1);
        let log = directory.path().join("log.1");
        chown(&log, Some(Uid::from_raw(1)), None).unwrap();
        let text = format!("{} belongs to user 1", log.display());
        assert_eq!(directory.newest().unwrap_err().to_string(), text);
        assert_eq!(Log::open(&directory, 1).unwrap_err().to_string(), text);
        chown(directory.path(), Some(Uid::from_raw(1)), None).unwrap();
        assert!(matches!(Directory::open(directory.path()), Err(Error::ForeignOwner { owner: 1, .. })));
    } else {
        assert!(matches!(Directory::open(Path::new("/")), Err(Error::ForeignOwner { owner: 0, .. })));
        assert!(matches!(LogFile::open_any(Path::new("/etc/passwd")), Err(Error::ForeignOwner { owner: 0, .. })));
    }
}

#[test]
fn links_pipes_and_directories_are_not_taken_for_logs() {
    type Make = fn(&Path, &Path);
    let makes: [Make; 3] = [
        |path, target| symlink(target, path).unwrap(),
        |path, _| mkfifo(path, Mode::S_IRWXU).unwrap(),
        |path, _| fs::create_dir(path).unwrap(),
    ];
    for make in makes {
        let (_dir, directory) = directory();
        history(&directory, 1);
        let (log, moved) = (directory.path().join("log.1"), directory.path().join("moved"));
        fs::rename(&log, &moved).unwrap();
        make(&log, &moved);
        let text = format!("{} is not a plain file", log.display());
        assert_eq!(directory.newest().unwrap_err().to_string(), text);
        assert_eq!(LogFile::open(&directory, 1).unwrap_err().to_string(), text);
        assert_eq!(Log::open(&directory, 1).unwrap_err().to_string(), text);
    }
}

#[test]
fn other_names_are_nobodys_business() {
    let (_dir, directory) = directory();
    let others = [
        "log.01",
        "log.+7",
        "log.-7",
        "log.",
        "log",
        "log.7x",
        "log.7.8",
        "logs.7",
        "image.07",
        "log. 7",
        "LOG.7",
        "log.18446744073709551616",
        "log.7.new",
        "log.7.x.new",
    ];
    for other in others {
        fs::write(directory.path().join(other), "other").unwrap();
    }
    assert_eq!(plan(&directory), None);
    assert_eq!(Log::first(&directory, "test").unwrap().number(), 1);
    directory.remove_before(u64::MAX).unwrap();
    directory.remove_unfinished().unwrap();
    let mut expected = others.to_vec();
    expected.sort_unstable();
    assert_eq!(names(&directory), expected);
}

#[test]
fn recovery_begins_at_the_newest_image() {
    let (_dir, directory) = directory();
    assert_eq!(plan(&directory), None);
    let mut log = Log::first(&directory, "test").unwrap();
    assert_eq!(plan(&directory), Some(Plan { image: None, logs: vec![1] }));
    log = log.next(&directory, "test").unwrap();
    assert_eq!(plan(&directory), Some(Plan { image: None, logs: vec![1, 2] }));
    image(&directory, &log);
    assert_eq!(plan(&directory), Some(Plan { image: Some(2), logs: vec![2] }));
    assert_eq!(Image::open(&directory, 2).unwrap().content(), b"state 2");
    log = log.next(&directory, "test").unwrap();
    let logs = Some(Plan { image: Some(2), logs: vec![2, 3] });
    assert_eq!(plan(&directory), logs);
    directory.remove_before(2).unwrap();
    assert_eq!((plan(&directory), names(&directory).len()), (logs, 3));
    image(&directory, &log);
    assert_eq!(plan(&directory), Some(Plan { image: Some(3), logs: vec![3] }));
    assert_eq!((log.number(), log.heading().begins), (3, false));
}

#[test]
fn a_damaged_image_is_passed_over_for_an_older_one_if_its_logs_are_there() {
    let (_dir, directory) = directory();
    history(&directory, 3);
    write_at(&directory, "image.3", 515, b"!");
    let found = directory.newest().unwrap();
    assert_eq!(found.plan, Some(Plan { image: Some(2), logs: vec![2, 3] }));
    assert_eq!(found.damaged, [directory.path().join("image.3")]);
    // In its heading.
    write_at(&directory, "image.2", 5, b"!");
    let found = directory.newest().unwrap();
    assert_eq!((found.plan, found.damaged.len()), (Some(Plan { image: None, logs: vec![1, 2, 3] }), 2));
    directory.remove_before(3).unwrap();
    let error = directory.newest().unwrap_err();
    let text = "is damaged at byte 512: the checksum of the content is wrong";
    assert_eq!(error.to_string(), format!("{} {text}", directory.path().join("image.3").display()));
}

#[test]
fn what_is_obsolete_may_be_damaged() {
    let (_dir, directory) = directory();
    history(&directory, 3);
    let expected = plan(&directory);
    for name in ["log.1", "log.2", "image.2"] {
        write_at(&directory, name, 5, b"!");
    }
    assert_eq!(plan(&directory), expected);
    write_at(&directory, "image.3", 600, b"!");
    let error = directory.newest().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{} is damaged at byte 48: the content has not the length that the heading says",
            directory.path().join("image.3").display()
        )
    );
    write_at(&directory, "log.3", 5, b"!");
    let error = directory.newest().unwrap_err();
    assert_eq!(error.to_string(), format!("{} is not a log of a journal", directory.path().join("log.3").display()));
}

#[rstest]
#[case::in_the_middle(3, &["image.2", "image.3", "log.2"], "log.2")]
#[case::after_the_image(3, &["image.3", "log.2"], "log.2")]
#[case::the_beginning(2, &["image.2", "log.1"], "log.1")]
#[case::the_beginning_of_three(3, &["image.2", "image.3", "log.1"], "log.1")]
fn a_file_of_the_chain_that_is_missing_is_named(#[case] count: usize, #[case] removed: &[&str], #[case] missing: &str) {
    let (_dir, directory) = directory();
    history(&directory, count);
    for name in removed {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    let text = format!("{} is missing, and what comes after it is there", directory.path().join(missing).display());
    assert_eq!(directory.newest().unwrap_err().to_string(), text);
}

#[test]
fn a_new_history_has_nothing_to_do_with_the_old_one() {
    let (_dir, directory) = directory();
    let old = history(&directory, 3);
    let new = Log::first(&directory, "test").unwrap();
    assert_eq!((new.number(), new.heading().begins), (4, true));
    assert_ne!(new.heading().history, old[2].heading().history);
    let expected = Some(Plan { image: None, logs: vec![4] });
    assert_eq!(plan(&directory), expected);
    directory.remove_before(4).unwrap();
    assert_eq!((plan(&directory), names(&directory)), (expected, vec!["log.4".into()]));
    // What a child of the old history's server was still writing.
    image(&directory, &old[2]);
    assert_eq!(plan(&directory), Some(Plan { image: None, logs: vec![4] }));
    // Numbers that fall together: the image would fit by its name.
    fs::remove_file(directory.path().join("log.4")).unwrap();
    directory.remove_before(4).unwrap();
    let mut log = Log::first(&directory, "test").unwrap();
    while log.number() < 3 {
        log = log.next(&directory, "test").unwrap();
    }
    image(&directory, &old[2]);
    assert_eq!(plan(&directory), Some(Plan { image: None, logs: vec![1, 2, 3] }));
}

#[test]
fn files_of_another_boot_are_told_of_and_never_used() {
    let (_dir, directory) = directory();
    let other = Directory::open_in_boot(directory.path(), BootId::from_bytes([7; 16])).unwrap();
    history(&other, 2);
    // Not even what a newer version wrote is a hindrance.
    write_at(&directory, "log.2", 24, &[9]);
    let found = directory.newest().unwrap();
    assert_eq!(found.plan, None);
    assert_eq!(found.other_boot, ["image.2", "log.1", "log.2"].map(|name| directory.path().join(name)));
    for error in [Log::open(&directory, 1).unwrap_err(), LogFile::open(&directory, 1).unwrap_err()] {
        assert_eq!(error.to_string(), format!("{} is of another boot", directory.path().join("log.1").display()));
    }
    assert!(matches!(Image::open(&directory, 2), Err(Error::OtherBoot { .. })));
    let any = LogFile::open_any(&directory.path().join("log.1")).unwrap();
    assert_eq!(any.heading().boot.to_string(), "07070707-0707-0707-0707-070707070707");

    let log = Log::first(&directory, "test").unwrap();
    assert_eq!(log.number(), 3);
    assert_eq!(directory.newest().unwrap().plan, Some(Plan { image: None, logs: vec![3] }));
    directory.remove_before(3).unwrap();
    assert_eq!(directory.newest().unwrap().other_boot, Vec::<&Path>::new());
}

#[rstest]
#[case("log.2")]
#[case("image.2")]
fn a_newer_format_is_refused_by_name(#[case] name: &str) {
    let (_dir, directory) = directory();
    history(&directory, 2);
    write_at(&directory, name, 24, &2_u32.to_le_bytes());
    let path = directory.path().join(name);
    let text = format!("{} has format 2, written by \"test\"; known is up to 1", path.display());
    assert_eq!(directory.newest().unwrap_err().to_string(), text);
    let error = if name == "log.2" {
        Log::open(&directory, 2).map(drop).unwrap_err()
    } else {
        Image::open(&directory, 2).map(drop).unwrap_err()
    };
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_file_under_another_ones_name_is_refused() {
    let (_dir, directory) = directory();
    history(&directory, 2);
    let path = |name: &str| directory.path().join(name);
    fs::rename(path("log.2"), path("log.3")).unwrap();
    fs::rename(path("image.2"), path("image.3")).unwrap();
    let text = "is damaged at byte 40: the number is not that of the file's name";
    assert_eq!(Log::open(&directory, 3).unwrap_err().to_string(), format!("{} {text}", path("log.3").display()));
    assert_eq!(Image::open(&directory, 3).unwrap_err().to_string(), format!("{} {text}", path("image.3").display()));
    assert!(directory.newest().is_err());
    fs::rename(path("image.3"), path("log.2")).unwrap();
    assert_eq!(
        LogFile::open(&directory, 2).unwrap_err().to_string(),
        format!("{} is not a log of a journal", path("log.2").display())
    );
    fs::write(path("log.2"), "").unwrap();
    assert!(matches!(Log::open(&directory, 2), Err(Error::NotAJournal { .. })));
}

#[test]
fn a_log_never_takes_the_place_of_another_file() {
    let (_dir, directory) = directory();
    let log = history(&directory, 1).remove(0);
    fs::write(directory.path().join("log.2"), "kept").unwrap();
    assert!(matches!(log.next(&directory, "test"), Err(Error::Io { what: "make", .. })));
    assert_eq!(fs::read(directory.path().join("log.2")).unwrap(), b"kept");
    assert_eq!(names(&directory), ["log.1", "log.2"]);
    log.append(0, 0, 0, &[b"goes on"]).unwrap();
    // Above what is there, whatever it is.
    assert_eq!(Log::first(&directory, "test").unwrap().number(), 3);
}

#[test]
fn an_image_has_its_name_only_when_it_is_whole() {
    let (_dir, directory) = directory();
    let log = history(&directory, 1).remove(0);
    let unfinished = format!("image.1.{}.new", process::id());
    let mut writer = ImageWriter::create(&directory, log.heading()).unwrap();
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    writer.write_all(&content[..3_000_000]).unwrap();
    assert_eq!(names(&directory), [unfinished.as_str(), "log.1"]);
    assert_eq!(plan(&directory), Some(Plan { image: None, logs: vec![1] }));
    writer.write_all(&content[3_000_000..]).unwrap();
    writer.finish().unwrap();
    assert_eq!(names(&directory), ["image.1", "log.1"]);
    let image = Image::open(&directory, 1).unwrap();
    assert!(image.content() == content);
    assert_eq!(image.heading(), log.heading());

    // Given up, and left behind by one that was killed.
    let mut writer = ImageWriter::create(&directory, log.heading()).unwrap();
    writer.write_all(b"other").unwrap();
    drop(writer);
    assert!(Image::open(&directory, 1).unwrap().content() == content);
    fs::write(directory.path().join(&unfinished), "of one that was killed").unwrap();
    fs::write(directory.path().join("log.2.77.new"), "too").unwrap();
    image_of(&directory, &log, b"");
    assert_eq!(Image::open(&directory, 1).unwrap().content(), b"");
    fs::write(directory.path().join(&unfinished), "of one that was killed").unwrap();
    directory.remove_unfinished().unwrap();
    assert_eq!(names(&directory), ["image.1", "log.1"]);

    // Taken away by a successor while it is written.
    let writer = ImageWriter::create(&directory, log.heading()).unwrap();
    directory.remove_unfinished().unwrap();
    assert!(writer.finish().is_err());
    assert_eq!(names(&directory), ["image.1", "log.1"]);
}

fn image_of(directory: &Directory, log: &Log, content: &[u8]) {
    let mut image = ImageWriter::create(directory, log.heading()).unwrap();
    image.write_all(content).unwrap();
    image.finish().unwrap();
}

#[test]
fn long_and_odd_names_of_writers_fit() {
    let (_dir, directory) = directory();
    let writer = "ö".repeat(200);
    let log = Log::first(&directory, &writer).unwrap();
    assert_eq!(log.heading().writer, "ö".repeat(96));
    assert_eq!(LogFile::open(&directory, 1).unwrap().heading(), log.heading());
    let log = log.next(&directory, &format!("x{writer}")).unwrap();
    assert_eq!(LogFile::open(&directory, 2).unwrap().heading().writer, format!("x{}", "ö".repeat(95)));
    assert_eq!(Log::open(&directory, 2).unwrap().heading(), log.heading());
}
