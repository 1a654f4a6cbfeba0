//! Ports that a death left bound, and of which the journal does not know.
//!
//! A port is bound before the record that tells its number, and let go behind the record that tells of that. Event channels
//! that are kept keep what was bound or not let go in between, and who offers the port at the other end cannot be bound
//! again.

use std::collections::BTreeSet;

use tracing::info;
use xen_ffi::Port;
use xen_ffi::event_channel::BoundPort;
use xenstore_core::DomId;

use super::{Guests, xen};

/// One more than the highest port that a domain can have (`EVTCHN_FIFO_NR_CHANNELS` in Xen's `public/event_channel.h`).
const PORTS_END: u32 = 1 << 17;

impl Guests {
    /// Binds a local port to the one that a domain offers.
    ///
    /// # Errors
    /// Whatever the host said.
    pub(super) fn bind(&mut self, domid: DomId, remote: Port) -> Result<BoundPort, xen_ffi::Error> {
        match self.channels.bind_interdomain(xen(domid), remote) {
            Err(_) if self.find_strays() => self.channels.bind_interdomain(xen(domid), remote),
            bound => bound,
        }
    }

    /// Lets go of those of these ports that are bound still, and nobody's.
    pub(super) fn let_go_of(&mut self, ports: &BTreeSet<Port>) {
        if self.channels_are_kept {
            ports.iter().for_each(|&port| drop(self.stray(port)));
        }
    }

    /// Looks through all ports for those that are bound and nobody's, and lets them go; tells whether there were any. That
    /// takes a system call for each port that there can be, so it is done once, when something cannot be bound: this daemon
    /// itself loses none.
    pub(super) fn find_strays(&mut self) -> bool {
        if !std::mem::take(&mut self.may_have_strays) {
            return false;
        }
        let found = (1..PORTS_END).filter_map(|number| self.stray(Port(number))).count();
        if found > 0 {
            info!(found, "ports that a daemon of before had bound last were let go");
        }
        found > 0
    }

    /// A port that is bound and nobody's.
    fn stray(&self, port: Port) -> Option<BoundPort> {
        let known = self.by_port.contains_key(&port)
            || self.promised.contains(&port)
            || self.virq.as_ref().is_some_and(|virq| virq.port() == port);
        if known { None } else { self.channels.adopt_if_bound(port) }
    }
}
