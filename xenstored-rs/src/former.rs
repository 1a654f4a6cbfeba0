//! The daemon that this process was before a take-over: which program it may have been, should the take-over fail.
//!
//! Neither C xenstored nor oxenstored names itself to the program that it executes in its place (`argv[0]` is the new
//! program), so it is looked for where it is installed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::TakeOver;

/// Where the kernel tells the version of the hypervisor.
const VERSION: &str = "/sys/hypervisor/version";

/// Where distributions that have several versions of Xen beside each other keep their programs: below `xen-VERSION/bin`.
const VERSIONED: &str = "/usr/lib";

/// Where all others have them.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/lib/xen/bin", "/usr/libexec/xen/bin"];

/// Programs that a daemon of that kind may have been, the likeliest first.
pub(crate) fn programs(kind: TakeOver) -> Vec<PathBuf> {
    let this = fs::read_link("/proc/self/exe").ok();
    let running = running_version(Path::new(VERSION));
    let mut found = candidates(kind, running.as_deref(), Path::new(VERSIONED), &PLACES.map(Path::new));
    // It may be installed under the other's name.
    found.retain(|program| fs::canonicalize(program).is_ok_and(|there| Some(there) != this));
    found
}

fn candidates(kind: TakeOver, running: Option<&str>, versioned: &Path, places: &[&Path]) -> Vec<PathBuf> {
    let name = match kind {
        TakeOver::C => "xenstored",
        TakeOver::Oxenstored => "oxenstored",
    };
    let bin = |version: &str| versioned.join(format!("xen-{version}/bin"));
    // Another version than the one that runs is better than none: the newest first.
    let mut others: Vec<(Vec<u32>, String)> = fs::read_dir(versioned)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_prefix("xen-")?.to_owned()))
        .map(|version| (version.split('.').map_while(|part| part.parse().ok()).collect(), version))
        .filter(|(numbers, _): &(Vec<u32>, String)| !numbers.is_empty())
        .collect();
    others.sort();
    let versions = running.map(bin).into_iter().chain(others.iter().rev().map(|(_, version)| bin(version)));
    let mut found: Vec<PathBuf> = Vec::new();
    for place in versions.chain(places.iter().map(PathBuf::from)) {
        let program = place.join(name);
        if program.is_file() && !found.contains(&program) {
            found.push(program);
        }
    }
    found
}

/// The hypervisor's version as `4.17`, by the files in a directory.
fn running_version(dir: &Path) -> Option<String> {
    let number = |name| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u32>().ok();
    Some(format!("{}.{}", number("major")?, number("minor")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_runs_comes_first_then_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let program = |place: &str, name: &str| {
            let place = dir.path().join(place);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(name), "").unwrap();
        };
        for version in ["4.9", "4.17", "4.22", "common"] {
            program(&format!("xen-{version}/bin"), "xenstored");
        }
        program("xen-4.20/bin", "oxenstored");
        program("sbin", "xenstored");
        let sbin = dir.path().join("sbin");
        let found = |kind, running| -> Vec<String> {
            let found = candidates(kind, running, dir.path(), &[&sbin, Path::new("/no/such")]);
            found.iter().map(|file| file.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned()).collect()
        };
        let all = ["xen-4.22/bin/xenstored", "xen-4.17/bin/xenstored", "xen-4.9/bin/xenstored", "sbin/xenstored"];
        assert_eq!(found(TakeOver::C, None), all);
        assert_eq!(found(TakeOver::C, Some("4.21")), all, "one that is not there is passed over");
        assert_eq!(found(TakeOver::C, Some("4.9")), [all[2], all[0], all[1], all[3]]);
        assert_eq!(found(TakeOver::Oxenstored, None), ["xen-4.20/bin/oxenstored"]);
    }

    #[test]
    fn a_version_is_two_numbers() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(running_version(dir.path()), None);
        fs::write(dir.path().join("major"), "4\n").unwrap();
        fs::write(dir.path().join("minor"), "17\n").unwrap();
        assert_eq!(running_version(dir.path()).as_deref(), Some("4.17"));
    }
}
