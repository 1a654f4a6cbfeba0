//! What the loop has its keeper hold.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tracing::warn;
use xenstore_core::ConnId;

use super::{EventLoop, KEEPER};
use crate::clock;
use crate::keeper::{Key, Link};
use crate::keeping::{Keeping, Orders};

/// How long a keeper may take to be handed everything.
const HANDED_OVER: Duration = Duration::from_secs(5);

impl EventLoop {
    /// Has everything that outlives this process kept from now on.
    ///
    /// # Errors
    /// If the kernel has no descriptors left.
    pub(crate) fn keep_with(&mut self, orders: Orders, link: Option<Link>) -> io::Result<()> {
        let held = link.is_some();
        self.orders = Some(orders.clone());
        self.keeping = Some(Keeping::new(orders, KEEPER, link, self.poll.registry(), clock::now()));
        // A keeper that was there before holds the clients that are there already.
        self.clients.iter_mut().flatten().for_each(|client| client.kept = held);
        self.ticker.wind();
        self.keep_services()?;
        self.keep_all();
        Ok(())
    }

    /// Has everything kept, the young clients included, before this process ends in order.
    ///
    /// # Errors
    /// Where there is no keeper, or it does not come to it in time.
    pub(super) fn keep_everything(&mut self) -> io::Result<()> {
        let deadline = clock::now() + HANDED_OVER;
        loop {
            self.keep_all();
            let Some(keeping) = &self.keeping else { return Err(io::ErrorKind::NotConnected.into()) };
            keeping.settle(deadline.saturating_sub(clock::now()))?;
            // It takes no more than so many at once.
            if self.clients.iter().flatten().all(|client| client.kept) {
                return Ok(());
            }
        }
    }

    /// Has all clients kept, the young included.
    fn keep_all(&mut self) {
        let clients: Vec<ConnId> = self.clients.iter().flatten().map(|client| client.conn).collect();
        clients.into_iter().for_each(|conn| self.keep_client(conn));
    }

    fn keep_services(&self) -> io::Result<()> {
        let Some(keeping) = &self.keeping else { return Ok(()) };
        if let Some(listener) = &self.listener {
            keeping.keep(Key::Listener, listener.as_fd());
        }
        if let Some(guests) = &self.guests {
            keeping.keep_owned(Key::EventChannels, &guests.channels()?);
        }
        Ok(())
    }

    /// The keeper is gone: another is given all that it held.
    pub(super) fn keeper_ended(&mut self) {
        let (registry, now) = (self.poll.registry(), self.engine.now().0);
        let Some(keeping) = &mut self.keeping else { return };
        if keeping.keeper_ended(registry, now) {
            self.keep_anew();
        } else {
            self.ticker.wind();
        }
    }

    /// Tells a keeper that was just started of all that is to be kept.
    fn keep_anew(&mut self) {
        if let Err(error) = self.keep_services() {
            warn!(%error, "event channels are not kept");
        }
        let kept: Vec<ConnId> =
            self.clients.iter().flatten().filter(|client| client.kept).map(|client| client.conn).collect();
        for conn in kept {
            if let Some(client) = self.client(conn) {
                client.kept = false;
            }
            self.keep_client(conn);
        }
    }

    /// Has the clients kept that hold state since this turn.
    pub(super) fn keep_holders(&mut self) {
        if self.keeping.is_none() {
            return;
        }
        for at in 0..self.engine.touched().len() {
            let conn = self.engine.touched()[at];
            let unkept = self.clients.get(conn.index()).and_then(Option::as_ref).is_some_and(|client| !client.kept);
            if unkept && self.engine.holds_state(conn) {
                self.keep_client(conn);
            }
        }
    }

    /// Has the clients kept that are not young any more.
    pub(super) fn keep_grown(&mut self) {
        let now = self.engine.now().0;
        while let Some((conn, life)) = self.keeping.as_mut().and_then(|keeping| keeping.next_grown(now)) {
            if self.engine.life(conn) == Some(life) {
                self.keep_client(conn);
            }
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.pay();
            let started = keeping.start_due(self.poll.registry(), now);
            if keeping.waits() {
                self.ticker.wind();
            }
            if started {
                self.keep_anew();
            }
        }
    }

    pub(super) fn keep_client(&mut self, conn: ConnId) {
        let (Some(keeping), Some(life)) = (&mut self.keeping, self.engine.life(conn)) else { return };
        let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut).filter(|client| !client.kept)
        else {
            return;
        };
        client.kept = keeping.keep(Key::Client(life), client.as_fd());
        if !client.kept {
            // The keeper is behind; the next second it may not be.
            keeping.came(self.engine.now().0, conn, life);
        }
    }
}
