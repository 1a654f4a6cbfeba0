//! The engine behind the comparison's interface, with the part of the shell that a host without rings needs.

use crate::adapter::{Conn, Counts, HostEvent, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};
use xenstore_core::{
    CloseReason, Config, ConnId, DomId, DomainEvent, Effect, Engine, Existence, Note, Question, Quota, Time,
};
use xenstore_wire::{OK, XsError};

/// The engine, and who is connected to it.
pub(crate) struct EngineStore {
    engine: Engine,
    connections: BTreeMap<Conn, ConnId>,
    host: BTreeSet<u16>,
    clock: Duration,
}

impl fmt::Debug for EngineStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineStore").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl EngineStore {
    /// An engine that just started on a host that has domain 0 alone.
    pub(crate) fn new() -> Self {
        let config = Config { existence: Existence::Told, event_timeout: None, ..Config::default() };
        Self {
            engine: Engine::new(config),
            connections: BTreeMap::new(),
            host: BTreeSet::from([0]),
            clock: Duration::ZERO,
        }
    }

    /// Serves until nothing is left to do, and does what the engine asks of its shell.
    fn settle(&mut self) {
        loop {
            while let Some(effect) = self.engine.next_effect() {
                self.carry_out(effect);
            }
            self.engine.step(Time(self.clock));
            if !self.engine.has_work() {
                break;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Close { conn, reason } => {
                assert!(!matches!(reason, CloseReason::Failed { .. }), "the engine panicked: {reason:?}");
                self.connections.retain(|_, id| *id != conn);
                self.engine.close(conn);
            }
            Effect::Release { conn, domid } => {
                if self.connections.get(&Conn::Domain(domid.0)) == Some(&conn) {
                    self.connections.remove(&Conn::Domain(domid.0));
                }
                self.engine.close(conn);
            }
            Effect::Ask { conn, question: Question::Introduce { domid, .. } } => {
                if self.host.contains(&domid.0) {
                    self.engine.answer(conn, Ok(OK.to_vec()));
                    let ring = self.engine.introduce(domid);
                    self.connections.insert(Conn::Domain(domid.0), ring);
                } else {
                    self.engine.answer(conn, Err(XsError::NoEnt));
                }
            }
            Effect::Ask { conn, .. } => self.engine.answer(conn, Ok(b"\0".to_vec())),
            Effect::Note(Note::Mended(what)) => panic!("the accounts were wrong: {what}"),
            // Notes and traces are for people, and there is no ring to do anything about.
            _ => {}
        }
    }
}

impl Store for EngineStore {
    fn open(&mut self, conn: Conn) {
        let id = self.engine.open_socket().expect("there is room for a socket");
        self.connections.insert(conn, id);
    }

    fn close(&mut self, conn: Conn) {
        if let Some(id) = self.connections.remove(&conn) {
            self.engine.close(id);
            self.settle();
        }
    }

    fn is_open(&self, conn: Conn) -> bool {
        self.connections.contains_key(&conn)
    }

    fn receive(&mut self, conn: Conn, bytes: &[u8]) {
        if let Some(&id) = self.connections.get(&conn) {
            // An hour later each time, when all was read: the model knows no time, so nothing may wait for its moment.
            self.clock += Duration::from_secs(3600);
            self.engine.receive(id, bytes, Time(self.clock));
            self.settle();
        }
    }

    fn take_output(&mut self, conn: Conn) -> Vec<u8> {
        let Some(&id) = self.connections.get(&conn) else { return Vec::new() };
        let output = self.engine.output(id).to_vec();
        self.engine.sent(id, output.len());
        self.settle();
        output
    }

    fn host_event(&mut self, event: HostEvent) {
        self.engine.domain_event(match event {
            HostEvent::Exists(domid) => {
                self.host.insert(domid);
                DomainEvent::Appeared(DomId(domid))
            }
            HostEvent::Shutdown(domid) => DomainEvent::ShutDown(vec![DomId(domid)]),
            HostEvent::Destroyed(domid) => {
                self.host.remove(&domid);
                self.connections.remove(&Conn::Domain(domid));
                DomainEvent::Gone(vec![DomId(domid)])
            }
        });
        self.settle();
    }

    fn quota_counts(&mut self, domid: u16) -> Counts {
        let used = self.engine.quota_usage(DomId(domid)).unwrap_or_default();
        Counts {
            nodes: used[Quota::Nodes.index()],
            watches: used[Quota::Watches.index()],
            transactions: used[Quota::Transactions.index()],
            memory: used[Quota::Memory.index()],
        }
    }
}
