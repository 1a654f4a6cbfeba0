//! Which request was being executed at a death, so that one that kills its server is not run for ever.

use core::sync::atomic::Ordering::{Relaxed, Release};
use std::{io, os::fd::AsFd};

use crate::{
    layout::{CONVICTS, CONVICTS_AT, DEATHS_AT, EXECUTING_AT, SUSPECT_AT},
    log::Log,
    mapping::Mapping,
};

/// A request that was being executed when the process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The request's number, by its server's count.
    pub number: u64,
    /// Deaths in a row that it was met at.
    pub deaths: u64,
}

/// Notes in a log which request is being executed. It is good for as long as anybody needs it, the log's end included.
#[derive(Debug)]
pub struct Execution {
    header: Mapping,
}

impl Execution {
    /// Notes that request `number` is being executed from now on. Numbers are below `u64::MAX`, and the same when the
    /// request is executed again after a recovery.
    pub fn begin(&self, number: u64) {
        self.header.atomic(EXECUTING_AT).store(number.wrapping_add(1), Release);
    }

    /// Notes that no request is being executed.
    pub fn end(&self) {
        self.header.atomic(EXECUTING_AT).store(0, Release);
    }
}

impl Log {
    /// A handle to note what is being executed with; `None` for a log in memory, which nobody will ask.
    ///
    /// # Errors
    /// If there is no address space.
    pub fn execution(&self) -> io::Result<Option<Execution>> {
        let Some(file) = self.file() else { return Ok(None) };
        Ok(Some(Execution { header: Mapping::header(file.as_fd())? }))
    }

    /// The request that is being executed; after a death, that which was.
    #[must_use]
    pub fn in_execution(&self) -> Option<u64> {
        self.map.atomic(EXECUTING_AT).load(Relaxed).checked_sub(1)
    }

    /// Counts a death: makes the request that was being executed the suspect, one death worse if it was so already,
    /// and notes that none is being executed. Without one, nobody is suspect any more.
    pub fn count_death(&self) -> Option<Suspect> {
        let suspect = self.in_execution().map(|number| {
            let before = self.suspect().filter(|suspect| suspect.number == number);
            Suspect { number, deaths: before.map_or(0, |suspect| suspect.deaths).saturating_add(1) }
        });
        self.set_suspect(suspect);
        self.map.atomic(EXECUTING_AT).store(0, Release);
        suspect
    }

    /// The suspect.
    #[must_use]
    pub fn suspect(&self) -> Option<Suspect> {
        let deaths = self.map.atomic(DEATHS_AT).load(Relaxed);
        (deaths > 0).then(|| Suspect { number: self.map.atomic(SUSPECT_AT).load(Relaxed), deaths })
    }

    /// Sets the suspect, or that there is none.
    pub fn set_suspect(&self, suspect: Option<Suspect>) {
        let (number, deaths) = suspect.map_or((0, 0), |suspect| (suspect.number, suspect.deaths));
        // A death in between leaves no suspect, or this one.
        self.map.atomic(DEATHS_AT).store(0, Release);
        self.map.atomic(SUSPECT_AT).store(number, Release);
        self.map.atomic(DEATHS_AT).store(deaths, Release);
    }

    /// Notes, for as long as the log is read, that request `number` is never to be executed again. Tells whether there
    /// was a place for that.
    pub fn convict(&self, number: u64) -> bool {
        let entry = number.wrapping_add(1);
        let mut places = (0..CONVICTS).map(|place| self.map.atomic(CONVICTS_AT + 8 * place));
        let free = places.find(|place| [0, entry].contains(&place.load(Relaxed)));
        free.inspect(|place| place.store(entry, Release)).is_some()
    }

    /// The requests that are never to be executed again, in the order in which they were convicted.
    pub fn convicts(&self) -> impl Iterator<Item = u64> {
        let places = (0..CONVICTS).map(|place| self.map.atomic(CONVICTS_AT + 8 * place).load(Relaxed));
        places.map_while(|entry| entry.checked_sub(1))
    }
}
