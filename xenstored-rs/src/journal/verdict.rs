//! A request that ends the daemon is executed twice at most: what is being executed is noted in the log, and after the
//! second death at it, the third daemon answers `EIO` in its place.
//!
//! A death has many causes that no request is to blame for, so only one that was under way can be suspected: that of
//! the log's last record. What has another record behind it was executed, and its client may know.

use tracing::{error, warn};
use xenstore_core::{Engine, Witness};
use xenstore_journal::{Execution, Log};

/// Deaths in a row at one request after which it is not executed again.
const DEATHS: u64 = 2;

/// Notes what is being executed in a log.
#[derive(Debug)]
struct Notes(Execution);

impl Witness for Notes {
    fn begins(&mut self, number: u64) {
        self.0.begin(number);
    }

    fn ends(&mut self) {
        self.0.end();
    }
}

/// Has each request noted in `log` from now on, as long as it is executed.
pub(super) fn note_in(log: &Log, engine: &mut Engine) {
    let execution = log.execution().unwrap_or_else(|error| {
        warn!(error = &error as &dyn std::error::Error, "which request is executed cannot be noted");
        None
    });
    engine.set_witness(execution.map(|execution| Box::new(Notes(execution)) as Box<dyn Witness>));
}

/// Notes nothing any more.
pub(super) fn note_nothing(engine: &mut Engine) {
    engine.set_witness(None);
}

/// Judges the death of the daemon that wrote `log`, the last one of its history.
pub(super) fn judge(log: &Log) {
    let Some(suspect) = log.count_death() else { return };
    let (request, deaths) = (suspect.number, suspect.deaths);
    if deaths < DEATHS {
        warn!(request, "the daemon before died while it executed a request; it is executed again");
    } else if log.convict(request) {
        error!(request, deaths, "a request has ended the daemon again and again; it is answered EIO from now on");
    } else {
        error!(request, deaths, "a request has ended the daemon again and again, as too many have before");
    }
}
