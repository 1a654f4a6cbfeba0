//! The new program of a live update is tried out before it is executed, while this daemon serves.
//!
//! It is asked for its help, which tells whether it is a build of this one. If it is, the journal is made short, and the
//! program run once more to see whether it can go on with the image that came of that: what the log has from there on is
//! of the same format. So the program, once executed, has little to go through.

use std::time::Duration;

use tracing::error;
use xenstore_core::ConnId;

use super::{EventLoop, UPDATE};
use crate::candidate::{Candidate, Trial};
use crate::clock;
use crate::live_update::{Plan, is_help_of_ours};

/// How long a program may take to print its help.
const HELP: Duration = Duration::from_secs(10);

/// How long a program may take to read an image.
const CHECK: Duration = Duration::from_secs(60);

/// An update that was asked to start, and is not answered yet.
#[derive(Debug)]
pub(super) struct Update {
    conn: ConnId,
    /// The connection's life: its number may be another's by now.
    life: u64,
    plan: Plan,
    stage: Stage,
    /// Nobody waits for it any more: it comes to nothing.
    abandoned: bool,
}

#[derive(Debug)]
enum Stage {
    /// The program is asked for its help.
    Asked(Candidate),
    /// The journal is made short.
    Shortening,
    /// The program reads the image.
    Checking(Candidate),
}

impl Update {
    /// Whether the image is read, and must stay.
    pub(super) fn reads(&self) -> bool {
        matches!(self.stage, Stage::Checking(_))
    }

    fn candidate(&mut self) -> Option<&mut Candidate> {
        match &mut self.stage {
            Stage::Asked(candidate) | Stage::Checking(candidate) => Some(candidate),
            Stage::Shortening => None,
        }
    }

    /// When to look at it again.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Asked(candidate) | Stage::Checking(candidate) => {
                Some(candidate.due()).filter(|due| *due != Duration::MAX)
            }
            Stage::Shortening => None,
        }
    }

    /// Ends a program that takes too long.
    pub(super) fn look(&mut self, now: Duration) {
        if let Some(candidate) = self.candidate() {
            candidate.look(now);
        }
    }
}

impl EventLoop {
    /// Begins to try out the program of an update. The answer comes later, unless there is one already.
    pub(super) fn try_out(&mut self, conn: ConnId, life: u64, plan: Plan) -> Option<String> {
        if self.trial.is_some() {
            // That of a connection that is gone meanwhile.
            return Some("BUSY".to_owned());
        }
        let due = clock::now() + HELP;
        match Candidate::start(&plan.program, &["--help".into()], due, self.poll.registry(), UPDATE) {
            Ok(candidate) => {
                self.trial = Some(Update { conn, life, plan, stage: Stage::Asked(candidate), abandoned: false });
                None
            }
            Err(error) => {
                error!(%error, "the new binary cannot be executed");
                Some(self.not_replaced())
            }
        }
    }

    /// The program that was tried out has ended.
    pub(super) fn candidate_ended(&mut self) {
        let Some(Update { conn, life, plan, stage, abandoned }) = self.trial.take() else { return };
        let (asked, candidate) = match stage {
            Stage::Asked(candidate) => (true, candidate),
            Stage::Checking(candidate) => (false, candidate),
            Stage::Shortening => return,
        };
        let trial = candidate.ended(self.poll.registry());
        if abandoned || self.engine.life(conn) != Some(life) {
            return;
        }
        let said = match (asked, trial) {
            (true, Trial::Ended { good: true, words }) if is_help_of_ours(&words) && self.engine.is_journaled() => {
                self.compaction.want(&mut self.engine);
                self.trial = Some(Update { conn, life, plan, stage: Stage::Shortening, abandoned: false });
                return;
            }
            (true, Trial::Ended { good: true, .. }) => {
                self.wait_for_transactions(&plan).unwrap_or_else(|| self.become_another(conn, &plan))
            }
            // C xenstored prints its help. Whatever else there is, oxenstored too, reads no stream and would be the end of the store.
            (true, Trial::Ended { good: false, .. }) => self.give_update_up("its --help fails"),
            (false, Trial::Ended { good: true, .. }) => self.become_ours(&plan),
            (false, Trial::Ended { words, .. }) => self.give_update_up(words.trim_end()),
            (_, Trial::Endless) => self.give_update_up("it does not end"),
        };
        self.answer_update(conn, said);
    }

    /// The journal was made short, up to that image, or could not be.
    pub(super) fn made_short(&mut self, image: Option<u64>) {
        let Some(Update { conn, life, plan, abandoned, .. }) =
            self.trial.take_if(|update| matches!(update.stage, Stage::Shortening))
        else {
            return;
        };
        if abandoned || self.engine.life(conn) != Some(life) {
            return;
        }
        let image = image.and_then(|number| self.engine.image(number));
        let said = match (image, self.own_arguments(&plan)) {
            (Some(image), Some(mut arguments)) => {
                arguments.extend(["--check-state".into(), image.into()]);
                let due = clock::now() + CHECK;
                match Candidate::start(&plan.program, &arguments, due, self.poll.registry(), UPDATE) {
                    Ok(candidate) => {
                        self.trial =
                            Some(Update { conn, life, plan, stage: Stage::Checking(candidate), abandoned: false });
                        return;
                    }
                    Err(error) => self.give_update_up(&format!("it cannot be executed: {error}")),
                }
            }
            _ => self.give_update_up("the store cannot be written down for it"),
        };
        self.answer_update(conn, said);
    }

    /// Nobody is at the other end of a connection any more: an update that it asked for comes to nothing.
    pub(super) fn abandon_update_of(&mut self, conn: ConnId) {
        if let Some(update) = self.trial.as_mut().filter(|update| update.conn == conn && !update.abandoned) {
            update.abandoned = true;
            let said = self.give_update_up("nobody waits for it");
            self.answer_update(conn, said);
        }
    }

    /// The update is over, and all goes on as before.
    fn give_update_up(&mut self, why: &str) -> String {
        self.update.end();
        format!("The new binary cannot go on: {why}")
    }

    fn answer_update(&mut self, conn: ConnId, text: String) {
        self.engine.answer(conn, Ok(text.into_bytes().into_iter().chain([0]).collect()));
        self.let_transactions_go();
    }
}
