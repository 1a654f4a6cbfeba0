//! oxenstored's settings, for a daemon that takes over from it.
//!
//! The file has a `key = value` a line, and comments behind `#`. Quotas go on as they were; what the command line says
//! outranks the file. Nothing in it is ever fatal: the store of a running host is at stake.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::cli::{Options, Quota, QuotaSetting};

/// Where oxenstored looks if nothing else is said.
const DEFAULT_PATH: &str = "/etc/xen/oxenstored.conf";

/// Most bytes of it that are read.
const MOST: u64 = 1 << 20;

/// Adds what oxenstored's settings say to the options of a daemon that takes over from it; to others nothing.
pub(crate) fn add_to(options: &mut Options) {
    if !options.of_oxenstored {
        return;
    }
    let named = options.oxenstored_conf.clone();
    let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    match read(&path) {
        Ok(text) => take(&text, &path, options),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => options.remarks.push(format!("{} cannot be read: {error}", path.display())),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a line came to.
enum Taken {
    /// It has its effect, or asks for what is so anyway.
    Yes,
    /// The key means nothing to this daemon.
    NoMeaning,
    /// The value is none for this key.
    Bad,
}

fn take(text: &str, path: &Path, options: &mut Options) {
    let before = std::mem::take(&mut options.quotas);
    let (mut without_meaning, mut bad, mut unlimited) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(setting, _)| setting).trim();
        if line.is_empty() {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        let taken = match (key, value) {
            ("quota-activate", "false") => {
                unlimited = true;
                Taken::Yes
            }
            _ => setting(key, value, options),
        };
        match taken {
            Taken::Yes => {}
            Taken::NoMeaning => without_meaning.push(printable(key)),
            Taken::Bad => bad.push(printable(line)),
        }
    }
    if unlimited {
        options.quotas.clear();
        let limiting = Quota::ALL.into_iter().filter(|quota| *quota != Quota::PathMax);
        options.quotas.extend(limiting.map(|quota| QuotaSetting { quota, value: 0 }));
    }
    options.quotas.extend(before);
    let mut remark = |what: &str, of: &[String]| {
        if !of.is_empty() {
            options.remarks.push(format!("{}: {what}: {}", path.display(), of.join(", ")));
        }
    };
    remark("without a meaning here", &without_meaning);
    remark("passed over", &bad);
}

fn setting(key: &str, value: &str, options: &mut Options) -> Taken {
    let quota = match key {
        "quota-maxentity" => Quota::Nodes,
        "quota-maxsize" => Quota::NodeSize,
        "quota-maxwatch" => Quota::Watches,
        "quota-transaction" => Quota::Transactions,
        "quota-maxoutstanding" => Quota::Outstanding,
        "quota-path-max" => Quota::PathMax,
        _ => return other(key, value, options),
    };
    match value.parse::<i32>().ok().and_then(|value| u32::try_from(value).ok()) {
        Some(value) => {
            options.set_quota(quota, value);
            Taken::Yes
        }
        None => Taken::Bad,
    }
}

fn other(key: &str, value: &str, options: &mut Options) -> Taken {
    match (key, value) {
        ("pid-file", "") => Taken::Bad,
        ("pid-file", file) => {
            options.pid_file.get_or_insert_with(|| file.into());
            Taken::Yes
        }
        ("xenstored-log-level", "debug") => {
            options.verbose = true;
            Taken::Yes
        }
        // What this daemon is like anyway.
        ("xenstored-log-level", "info" | "warn" | "error" | "null")
        | ("quota-activate" | "merge-activate" | "perms-activate" | "perms-watch-activate", "true")
        | ("test-eagain" | "persistent" | "allow-debug", "false")
        | ("xenstored-kva", "/proc/xen/xsd_kva")
        | ("xenstored-port", "/proc/xen/xsd_port") => Taken::Yes,
        _ => Taken::NoMeaning,
    }
}

/// A word of the file on one line, and not too long for one.
fn printable(word: &str) -> String {
    word.escape_debug().take(100).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn taken(text: &str) -> Options {
        let mut options = Options { of_oxenstored: true, ..Options::default() };
        options.quotas.push(QuotaSetting { quota: Quota::Watches, value: 7 });
        take(text, Path::new("FILE"), &mut options);
        options
    }

    fn quotas(options: &Options) -> Vec<(&'static str, u32)> {
        options.quotas.iter().map(|setting| (setting.quota.name(), setting.value)).collect()
    }

    #[test]
    fn quotas_go_on_and_the_command_line_outranks_them() {
        let options = taken(
            "# quotas\nquota-activate = true\nquota-maxentity=1000\n quota-maxsize = 4096 # bytes\nquota-maxwatch = 100\n\
             quota-transaction = 10\nquota-maxoutstanding = 1024\nquota-path-max = 1024\n",
        );
        let file = [("nodes", 1000), ("node-size", 4096), ("watches", 100), ("transactions", 10)];
        let rest = [("outstanding", 1024), ("path-max", 1024), ("watches", 7)];
        assert_eq!(quotas(&options), [&file[..], &rest[..]].concat());
        assert!(options.remarks.is_empty(), "{:?}", options.remarks);
    }

    #[test]
    fn without_quotas_nothing_is_limited_but_paths() {
        let options = taken("quota-maxentity = 3\nquota-activate = false\n");
        let quotas = quotas(&options);
        assert_eq!(quotas.iter().filter(|(_, value)| *value == 0).count(), Quota::ALL.len() - 1);
        assert_eq!(quotas.last(), Some(&("watches", 7)));
    }

    #[test]
    fn keys_without_a_meaning_are_named_in_one_line() {
        let options = taken("merge-activate = false\nconflict-burst-limit = 5.0\nwhat = ever\nxenstored-kva = /x\n");
        let said = "FILE: without a meaning here: merge-activate, conflict-burst-limit, what, xenstored-kva";
        assert_eq!(options.remarks, [said]);
    }

    #[rstest]
    #[case::no_number("quota-maxentity = many", "quota-maxentity = many")]
    #[case::negative("quota-maxentity = -1", "quota-maxentity = -1")]
    #[case::too_large("quota-maxwatch = 99999999999", "quota-maxwatch = 99999999999")]
    #[case::no_value("quota-maxwatch", "quota-maxwatch")]
    #[case::no_file("pid-file =", "pid-file =")]
    #[case::not_printable("quota-maxwatch = \u{1b}[1m", "quota-maxwatch = \\u{1b}[1m")]
    fn bad_values_are_passed_over(#[case] line: &str, #[case] named: &str) {
        let options = taken(line);
        assert_eq!(quotas(&options), [("watches", 7)]);
        assert_eq!(options.remarks, [format!("FILE: passed over: {named}")]);
    }

    #[test]
    fn what_asks_for_what_is_so_anyway_is_not_spoken_of() {
        let options = taken("pid-file = /run/x.pid\nxenstored-log-level = debug\ntest-eagain = false\n");
        assert_eq!(options.pid_file.as_deref(), Some(Path::new("/run/x.pid")));
        assert!(options.verbose && options.remarks.is_empty());
    }

    #[test]
    fn only_who_takes_over_from_oxenstored_reads_them() {
        let conf = Some(PathBuf::from("/no/such/file"));
        let mut options = Options { oxenstored_conf: conf.clone(), ..Options::default() };
        add_to(&mut options);
        assert!(options.remarks.is_empty());
        options.of_oxenstored = true;
        add_to(&mut options);
        assert!(options.remarks[0].starts_with("/no/such/file cannot be read: "), "{:?}", options.remarks);
        options.oxenstored_conf = Some("/".into());
        add_to(&mut options);
        assert_eq!(options.remarks.len(), 2);
    }
}
