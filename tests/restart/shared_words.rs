//! Words that a daemon shares with others, and where it has them.

use std::fs;

use xen_sim::Word;
use xenstored_tests::scene::Scene;

/// A word that a daemon shares with others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    /// The end of the log's records: what comes before is sealed.
    Tail,
    /// Which request is executed.
    Executing,
    /// Whether a call on a socket is noted.
    Note,
    /// A word of a guest's ring page.
    Ring(u16, Word),
}

/// A line of a process's mappings.
#[derive(Debug)]
struct Mapping<'a> {
    start: usize,
    end: usize,
    /// Where it begins in its file.
    offset: usize,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        Some(Self { start: number(start)?, end: number(end)?, offset: number(offset)?, name: words.nth(2)? })
    }
}

/// Where the daemon of a scene has these words, each with its size; `None` where it does not have them all. Its log is the
/// one of that number.
pub(crate) fn addresses(scene: &Scene, log: u64, words: &[Shared]) -> Option<Vec<(usize, usize)>> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", scene.pid())).expect("the daemon lives");
    let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::parse).collect();
    // A new one was mapped under the name that it had before it was whole.
    let log = format!("/journal/log.{log}");
    // Records follow on the header; and the header is mapped for itself once more.
    let header = |with_records: bool| {
        let is_log =
            |name: &str| name.split_once(&log).is_some_and(|(_, more)| !more.starts_with(|c: char| c.is_ascii_digit()));
        let starts = |each: &&Mapping<'_>| each.offset == 0 && is_log(each.name);
        let goes_on = |first: &Mapping<'_>| {
            mappings.iter().any(|each| each.start == first.end && each.name == first.name && each.offset > 0)
        };
        let mut found = mappings.iter().filter(starts);
        found.find(|first| goes_on(first) == with_records).map(|first| first.start)
    };
    let page = |domid| {
        let offset = scene.ring(domid).page_offset();
        let is_it = |each: &&Mapping<'_>| each.offset == offset && each.name.starts_with("/memfd:xen-sim");
        mappings.iter().find(is_it).map(|page| page.start)
    };
    let address = |word: &Shared| {
        Some(match *word {
            Shared::Tail => (header(true)? + 512, 8),
            Shared::Executing => (header(false)? + 576, 8),
            Shared::Note => (header(true)? + 640, 8),
            Shared::Ring(domid, word) => {
                (page(domid)? + 2048 + 4 * Word::ALL.iter().position(|&each| each == word)?, 4)
            }
        })
    };
    words.iter().map(address).collect()
}
