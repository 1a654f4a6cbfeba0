//! What an engine's caller need not remember.
//!
//! An engine does what it is told and nothing else, so who remembers the calls since an image can make them again on the
//! engine that the image gives, and has the same engine. Most calls of a busy store are requests that read, and those leave
//! nothing behind once their replies are gone: they need not be remembered.

use crate::{engine::Engine, id::ConnId, witness::Witness};

impl Engine {
    /// A number that rises with everything that changes what later calls come to.
    ///
    /// It does not rise for READ, DIRECTORY, DIRECTORY_PART, GET_PERMS, GET_DOMAIN_PATH, IS_DOMAIN_INTRODUCED, GET_FEATURE
    /// and GET_QUOTA outside of transactions that come in whole and are served at once, nor for their replies leaving
    /// whole before the next [`Engine::keep`].
    ///
    /// So calls need not be remembered that left this number as it was, where after them each connection is settled
    /// ([`Engine::is_settled`]) whose bytes they took in: it is as if they had not been, but for the highest values seen of
    /// quotas, the count of executed requests ([`Engine::set_executed`]) and the time ([`Engine::set_now`]). Otherwise
    /// all of them are to be remembered, and [`Engine::keep`] is to be called.
    #[must_use]
    pub fn alterations(&self) -> u64 {
        self.alterations
    }

    /// Notes that the calls so far are remembered: replies that they left unsent must be too, whatever they reply to.
    pub fn keep(&mut self) {
        self.kept += 1;
    }

    /// Whether nothing of a connection is under way: nothing that it sent waits to be served or answered, nothing waits
    /// to be sent to it, none of its requests is outstanding, and it is not given up. True for one that is closed.
    #[must_use]
    pub fn is_settled(&self, conn: ConnId) -> bool {
        self.connections.get(conn.index()).is_none_or(|connection| {
            connection.input.is_empty()
                && connection.output.unsent().is_empty()
                && connection.asked.is_none()
                && !connection.ready
                && connection.outstanding.is_empty()
                && connection.closing.is_none()
        })
    }

    /// Notes that something changed.
    pub(crate) fn altered(&mut self) {
        self.alterations += 1;
    }

    /// Number of requests executed since the store was new, those that failed or were refused included.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Sets the number of executed requests back, after calls that altered nothing were forgotten, so that the next
    /// request has the same number where the calls are made again.
    pub fn set_executed(&mut self, executed: u64) {
        self.executed = executed;
    }

    /// The request that would be executed as number `number` is answered `EIO` in place of that. A transaction that it
    /// would have ended stays open until its connection ends or resets it. A number that is past changes nothing.
    pub fn refuse(&mut self, number: u64) {
        if number > self.executed {
            self.refused.insert(number);
            self.altered();
        }
    }

    /// Who is told of each request from now on; `None` is nobody.
    pub fn set_witness(&mut self, witness: Option<Box<dyn Witness>>) {
        self.witness = witness;
    }
}
