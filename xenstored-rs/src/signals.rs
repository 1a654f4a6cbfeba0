//! Signals as a source of events for the loop.

use std::io;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP: open the trace file again.
    ReopenTrace,
    /// SIGTERM or SIGINT: come to an orderly end.
    Terminate,
}

/// The signals that the daemon acts on. From its creation on they no longer end the process.
///
/// Register it with a mio poll for reading; when it is ready, take what [`Signals::pending`] gives.
pub struct Signals(signal_hook_mio::v1_0::Signals);

impl Signals {
    /// Takes over SIGHUP, SIGTERM and SIGINT.
    ///
    /// # Errors
    /// If the kernel refuses the handlers or has no descriptors left.
    pub fn new() -> io::Result<Self> {
        signal_hook_mio::v1_0::Signals::new([SIGHUP, SIGTERM, SIGINT]).map(Self)
    }

    /// What arrived since the last call. A signal that came several times is given once. Never blocks.
    pub fn pending(&mut self) -> impl Iterator<Item = Signal> + '_ {
        self.0.pending().filter_map(|number| match number {
            SIGHUP => Some(Signal::ReopenTrace),
            SIGTERM | SIGINT => Some(Signal::Terminate),
            _ => None,
        })
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Source for Signals {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.0.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.0.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.0.deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll};
    use signal_hook::low_level::raise;

    use super::*;

    // One test, because signals belong to the whole process.
    #[test]
    fn signals_wake_the_poll_and_say_what_they_ask_for() {
        let mut signals = Signals::new().unwrap();
        let mut poll = Poll::new().unwrap();
        poll.registry().register(&mut signals, Token(7), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        for (number, expected) in
            [(SIGHUP, Signal::ReopenTrace), (SIGTERM, Signal::Terminate), (SIGINT, Signal::Terminate)]
        {
            raise(number).unwrap();
            raise(number).unwrap();
            while !events.iter().any(|event| event.token() == Token(7)) {
                match poll.poll(&mut events, Some(Duration::from_secs(20))) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => {
                        other.unwrap();
                        assert!(!events.is_empty(), "no event within the time");
                    }
                }
            }
            events.clear();
            assert_eq!(signals.pending().collect::<Vec<_>>(), [expected]);
            assert_eq!(signals.pending().count(), 0);
        }
    }
}
