//! The whole engine in an image.

use super::Engine;
use crate::{
    config::Config,
    connection::{Connection, ConnectionKind},
    domain::{Domains, feature},
    effect::{CloseReason, Effect},
    id::ConnId,
    image::{ImageError, Reader, Stored, Tag, Writer},
    slots::Slots,
    store::Store,
    watch::Watches,
};

impl Engine {
    /// Writes an image: all that later calls depend on. It comes in pieces of about 64 KiB, whatever the size of the
    /// store, in one go; the engine is not to be called in between.
    ///
    /// Not in it are the witness, tracing, [`Engine::alterations`], and effects and output that the shell was not told
    /// of: [`Engine::resume`] finds them again.
    ///
    /// # Errors
    /// The first that the sink said; it gets nothing after that.
    pub fn save<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut outcome = Ok(());
        let mut put = |bytes: &[u8]| {
            if outcome.is_ok() {
                outcome = sink(bytes);
            }
        };
        let mut out = Writer::new(&mut put);
        self.save_parts(&mut out);
        out.finish();
        outcome
    }

    fn save_parts(&self, out: &mut Writer<'_>) {
        let Self {
            config,
            store,
            generation,
            connections,
            domains,
            watches,
            // Only saves memory.
            permissions: _,
            pool,
            now,
            // None of these between calls.
            in_hand: _,
            changes: _,
            cause: _,
            reading: _,
            scratch: _,
            fired: _,
            writers,
            // Those of the connections.
            alarms: _,
            lives,
            ready,
            // What the shell was not told of yet.
            flush: _,
            wanting: _,
            appended: _,
            effects: _,
            endings,
            piece,
            // The same for all.
            earlier_most: _,
            waiting,
            wake,
            holding,
            // Only how much it grows counts.
            told: _,
            // The shell's own.
            tracing: _,
            witness: _,
            alterations: _,
            kept: _,
            executed,
            refused,
            #[cfg(test)]
                fail_at: _,
        } = self;
        config.save(out);
        out.section(Tag::Engine);
        generation.save(out);
        now.save(out);
        lives.save(out);
        executed.save(out);
        pool.peak().save(out);
        refused.save(out);
        ready.save(out);
        endings.save(out);
        piece.save(out);
        waiting.save(out);
        wake.save(out);
        holding.save(out);
        domains.save(out);
        store.save(out);
        save_connections(connections, store, out);
        watches.save(out);
        out.section(Tag::Writers);
        out.count(writers.len());
        for (node, domid) in writers {
            out.record();
            node.save(out);
            domid.save(out);
        }
    }

    /// The engine of an image. It goes on as the one that was saved; a shell that has just started calls
    /// [`Engine::resume`] too.
    ///
    /// # Errors
    /// Where the bytes are no image of this version or an older one, and at which of them that shows. What an image can
    /// be was checked as far as it can end the program; whether it is right is left to the checksum.
    pub fn restore(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(bytes)?;
        let input = &mut reader;
        let mut engine = Self::new(Config::restore(input)?);
        input.section(Tag::Engine)?;
        engine.generation = input.get()?;
        engine.now = input.get()?;
        engine.lives = input.get()?;
        engine.executed = input.get()?;
        let peak = input.get()?;
        engine.refused = input.get()?;
        engine.ready = input.get()?;
        engine.endings = input.get()?;
        engine.piece = input.get()?;
        if engine.piece == 0 {
            return Err(input.wrong("a piece of work"));
        }
        engine.waiting = input.get()?;
        engine.wake = input.get()?;
        engine.holding = input.get()?;
        engine.domains = Domains::restore(input, &engine.config)?;
        engine.store = Store::restore(input)?;
        engine.connections = restore_connections(input, &engine.store)?;
        let connections = &mut engine.connections;
        for (domid, domain) in engine.domains.iter() {
            if let Some(conn) = domain.connection {
                let of = connections.get(conn.index()).map(|connection| connection.kind);
                if of != Some(ConnectionKind::Domain(domid)) {
                    return Err(input.wrong("the connection of a domain"));
                }
            }
        }
        engine.watches = Watches::restore(input, |watch| {
            let Some(connection) = connections.get_mut(watch.conn.index()) else { return false };
            connection.watches += 1;
            connection.watch_bytes += watch.size();
            true
        })?;
        input.section(Tag::Writers)?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            engine.writers.insert(input.get()?, input.get()?);
        }
        for (number, connection) in engine.connections.iter_mut() {
            connection.account(&mut engine.pool);
            let conn = ConnId(u32::try_from(number).unwrap_or(u32::MAX));
            if matches!(connection.kind, ConnectionKind::Domain(domid) if domid != engine.config.priv_domid) {
                for transaction in connection.transactions.values() {
                    engine.store.snapshots.note_guest(transaction.snapshot, conn, transaction.id);
                }
            }
            if let Some(time) = connection.alarm {
                engine.alarms.insert((time, conn, connection.life));
            }
        }
        engine.pool.set_peak(peak);
        reader.finish()?;
        Ok(engine)
    }

    /// Begins to serve with a new shell: all that is open for the shell to do is told, as far as the state says it. Of
    /// earlier effects none is left.
    ///
    /// Questions without an answer are asked, sockets that were given up are to be closed, rings of domains that ended to
    /// be let go, those that are bad to be ignored; every connection with unsent output is there to be flushed, and
    /// every one with whole requests that can be served to be stepped.
    pub fn resume(&mut self) {
        self.effects.clear();
        self.flush.clear();
        self.wanting.clear();
        let conns: Vec<(ConnId, ConnectionKind)> = self.connections().collect();
        for (conn, kind) in conns {
            let Some(connection) = self.connections.get_mut(conn.index()) else { continue };
            connection.deferred = false;
            connection.flushing = !connection.output.unsent().is_empty();
            if connection.flushing {
                self.flush.push_back(conn);
            }
            if let Some(question) = connection.asked.as_ref().and_then(|asked| asked.question.clone()) {
                self.effects.push_back(Effect::Ask { conn, question });
            }
            match (connection.closing.clone(), kind) {
                (None, _) => {}
                (Some(reason), ConnectionKind::Socket) => self.effects.push_back(Effect::Close { conn, reason }),
                (Some(CloseReason::Gone), ConnectionKind::Domain(domid)) => {
                    if !self.endings.iter().any(|ending| ending.holds(conn)) {
                        self.effects.push_back(Effect::Release { conn, domid });
                    }
                }
                (Some(reason), ConnectionKind::Domain(domid)) => {
                    let tell = self.domains.features(domid) & feature::ERROR != 0;
                    self.effects.push_back(Effect::Ignore { conn, domid, reason, tell });
                }
            }
            self.settle(conn);
        }
    }

    /// Every open connection, in the order of their numbers.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, ConnectionKind)> {
        let number = |index: usize| u32::try_from(index).ok();
        self.connections.iter().filter_map(move |(index, connection)| Some((ConnId(number(index)?), connection.kind)))
    }

    /// The settings that the engine was started with, and goes on with whatever restores it.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

fn save_connections(connections: &Slots<Connection>, store: &Store, out: &mut Writer<'_>) {
    let entries = connections.entries();
    out.section(Tag::Connections);
    out.count(entries.len());
    for entry in entries {
        out.record();
        entry.is_some().save(out);
        entry.iter().for_each(|connection| connection.save(store, out));
    }
}

fn restore_connections(input: &mut Reader<'_>, store: &Store) -> Result<Slots<Connection>, ImageError> {
    input.section(Tag::Connections)?;
    let count: usize = input.get()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        input.record()?;
        entries.push(if input.get()? { Some(Connection::restore(input, store)?) } else { None });
    }
    Ok(Slots::new(entries))
}
