//! `xenstore-control live-update`: what it is told in steps, and what the steps come to.
//!
//! The commands and texts are those of the C daemon (`docs/misc/xenstore.txt`, CONTROL live-update): `-f` names the new
//! program, `-c` its arguments, `-s` starts, `-a` gives up. The session belongs to the connection that began it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xenstore_core::ConnId;
use xenstore_wire::XsError;

/// How long to wait for open transactions if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long after that somebody may take to ask for the last time.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// What a daemon that was started by itself says to take the place of one that runs, with until when it waits for that, in
/// milliseconds of the monotonic clock: a request may be met by a later daemon.
pub(crate) const HAND_OVER: &[u8] = b"--hand-over";

/// A text that every help of ours has, and no other's.
const OURS: &str = "xenstored-rs";

/// An update that is being prepared.
#[derive(Debug)]
struct Session {
    conn: ConnId,
    life: u64,
    program: PathBuf,
    arguments: Option<Vec<OsString>>,
    /// When it was first asked to start.
    started: Option<Duration>,
    /// Until when new transactions wait for that, should nobody ask any more.
    held_until: Duration,
}

/// Live updates of this daemon.
#[derive(Debug, Default)]
pub(crate) struct LiveUpdate {
    session: Option<Session>,
    /// This process was another daemon's until now: who asks how that goes is told that it went well.
    pub(crate) has_happened: bool,
}

/// What a step comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A text for whoever asked.
    Text(String),
    /// An error.
    Refused(XsError),
    /// The new program is to be executed.
    Start(Plan),
    /// A daemon that was started by itself takes this one's place.
    HandOver,
}

/// What is to be executed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments in place of this daemon's own.
    pub(crate) arguments: Option<Vec<OsString>>,
    /// Version of the stream.
    pub(crate) version: u32,
    /// Open transactions are given up rather than waited for any longer.
    pub(crate) force: bool,
    /// How long transactions have been waited for.
    pub(crate) waited: Duration,
    /// How long they are.
    pub(crate) patience: Duration,
}

impl LiveUpdate {
    /// Takes a step: the words after `live-update`. `alive` tells whether a connection is that of a life still.
    pub(crate) fn step(
        &mut self,
        conn: ConnId,
        life: u64,
        words: &[Vec<u8>],
        now: Duration,
        alive: impl Fn(ConnId, u64) -> bool,
    ) -> Step {
        self.session.take_if(|session| !alive(session.conn, session.life));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some((&what, rest)) = words.split_first() else { return Step::Refused(XsError::Inval) };
        let own = self.session.as_ref().is_some_and(|session| session.conn == conn);
        match (what, rest) {
            (b"-a", []) if own => {
                self.session = None;
                ok()
            }
            (b"-f", [program]) => {
                if self.session.is_some() {
                    return text("live-update session already active.");
                }
                let program = PathBuf::from(OsStr::from_bytes(program));
                if let Some(wrong) = cannot_execute(&program) {
                    return text(wrong);
                }
                self.has_happened = false;
                self.session =
                    Some(Session { conn, life, program, arguments: None, started: None, held_until: Duration::ZERO });
                ok()
            }
            (b"-c", words) if own && !words.is_empty() => {
                let words = words.iter().flat_map(|word| word.split(u8::is_ascii_whitespace));
                let words = words.filter(|word| !word.is_empty()).map(|word| OsStr::from_bytes(word).to_owned());
                if let Some(session) = &mut self.session {
                    session.arguments = Some(words.collect());
                }
                ok()
            }
            (HAND_OVER, [until]) => match std::str::from_utf8(until).ok().and_then(|until| until.parse().ok()) {
                // Whoever asked has given up.
                Some(until) if Duration::from_millis(until) < now => text("that was asked too long ago"),
                Some(_) => Step::HandOver,
                None => Step::Refused(XsError::Inval),
            },
            (b"-s", options) if own => self.start(options, now),
            (b"-s", _) if self.has_happened => ok(),
            (b"-a" | b"-c" | b"-s", _) => text("Not in live-update session."),
            _ => Step::Refused(XsError::Inval),
        }
    }

    fn start(&mut self, options: &[&[u8]], now: Duration) -> Step {
        let Some(session) = &mut self.session else { return text("Not in live-update session.") };
        let (mut version, mut force, mut patience) = (None, false, PATIENCE);
        let mut options = options.iter();
        while let Some(&option) = options.next() {
            let mut number = || options.next().and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
            match option {
                b"-F" => force = true,
                b"-t" => match number() {
                    Some(seconds) => patience = Duration::from_secs(seconds.into()),
                    None => return Step::Refused(XsError::Inval),
                },
                b"-v" => match number() {
                    Some(wanted @ (1 | 2)) => version = Some(wanted),
                    Some(_) => return text("Migration stream version not supported."),
                    None => return Step::Refused(XsError::Inval),
                },
                _ => return Step::Refused(XsError::Inval),
            }
        }
        let waited = now.saturating_sub(*session.started.get_or_insert(now));
        session.held_until = now + ASKED_AGAIN + patience.saturating_sub(waited);
        let (program, arguments) = (session.program.clone(), session.arguments.clone());
        // Every daemon reads version 1.
        Step::Start(Plan { program, arguments, version: version.unwrap_or(1), force, waited, patience })
    }

    /// Whether new transactions still wait, so that the open ones come to an end.
    pub(crate) fn holds(&self, now: Duration, alive: impl Fn(ConnId, u64) -> bool) -> bool {
        let session = self.session.as_ref().filter(|session| alive(session.conn, session.life));
        session.is_some_and(|session| now < session.held_until)
    }

    /// Ends the session: the update failed, or is given up.
    pub(crate) fn end(&mut self) {
        self.session = None;
    }
}

fn text(text: &str) -> Step {
    Step::Text(text.to_owned())
}

fn ok() -> Step {
    text("OK")
}

/// Why a file cannot be executed, in the C daemon's words.
fn cannot_execute(program: &Path) -> Option<&'static str> {
    match fs::metadata(program) {
        Ok(there) if there.is_file() && there.permissions().mode() & 0o111 != 0 => None,
        Ok(_) => Some("File not executable."),
        Err(_) => Some("File not accessible."),
    }
}

/// Whether this is what a build of this program prints when it is asked for its help.
pub(crate) fn is_help_of_ours(words: &str) -> bool {
    words.contains(OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(number: u32) -> ConnId {
        ConnId::from_number(number)
    }

    fn say(update: &mut LiveUpdate, who: u32, words: &[&str], now: u64) -> Step {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        update.step(conn(who), who.into(), &words, Duration::from_secs(now), |_, life| life < 9)
    }

    #[test]
    fn a_session_belongs_to_one_connection() {
        let mut update = LiveUpdate::default();
        assert_eq!(say(&mut update, 1, &["-s"], 0), text("Not in live-update session."));
        assert_eq!(say(&mut update, 1, &["-f", "/no/such"], 0), text("File not accessible."));
        assert_eq!(say(&mut update, 1, &["-f", "/etc/passwd"], 0), text("File not executable."));
        assert_eq!(say(&mut update, 1, &["-f", "/bin/true"], 0), ok());
        assert_eq!(say(&mut update, 2, &["-f", "/bin/true"], 0), text("live-update session already active."));
        assert_eq!(say(&mut update, 2, &["-a"], 0), text("Not in live-update session."));
        assert_eq!(say(&mut update, 1, &["-a"], 0), ok());
        assert_eq!(say(&mut update, 9, &["-f", "/bin/true"], 0), ok());
        assert_eq!(say(&mut update, 2, &["-f", "/bin/true"], 0), ok(), "the other one is gone");
    }

    #[test]
    fn what_is_started_is_what_was_said() {
        let mut update = LiveUpdate::default();
        say(&mut update, 1, &["-f", "/bin/true"], 0);
        say(&mut update, 1, &["-c", "-N  --pid-file /x"], 0);
        let arguments = Some(["-N", "--pid-file", "/x"].map(OsString::from).to_vec());
        let plan = |waited, patience, force, version| Plan {
            program: "/bin/true".into(),
            arguments: arguments.clone(),
            version,
            force,
            waited: Duration::from_secs(waited),
            patience: Duration::from_secs(patience),
        };
        assert_eq!(say(&mut update, 1, &["-s", "-t", "5"], 100), Step::Start(plan(0, 5, false, 1)));
        let again = say(&mut update, 1, &["-s", "-t", "5", "-F", "-v", "2"], 104);
        assert_eq!(again, Step::Start(plan(4, 5, true, 2)));
        let refused = text("Migration stream version not supported.");
        assert_eq!(say(&mut update, 1, &["-s", "-v", "3"], 104), refused);
        assert_eq!(say(&mut update, 1, &["-s", "-t"], 104), Step::Refused(XsError::Inval));
        assert_eq!(say(&mut update, 1, &["-x"], 104), Step::Refused(XsError::Inval));
    }

    #[test]
    fn a_place_is_left_to_who_still_waits_for_it() {
        let mut update = LiveUpdate::default();
        assert_eq!(say(&mut update, 1, &["--hand-over", "100500"], 100), Step::HandOver);
        assert_eq!(say(&mut update, 1, &["--hand-over", "99999"], 100), text("that was asked too long ago"));
        assert_eq!(say(&mut update, 1, &["--hand-over", "soon"], 100), Step::Refused(XsError::Inval));
        assert_eq!(say(&mut update, 1, &["--hand-over"], 100), Step::Refused(XsError::Inval));
    }

    #[test]
    fn who_asks_after_it_happened_is_told_so() {
        let mut update = LiveUpdate { has_happened: true, ..LiveUpdate::default() };
        assert_eq!(say(&mut update, 1, &["-s", "-t", "5"], 0), ok());
    }
}
