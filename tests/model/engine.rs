//! The engine behind the comparison's interface, with the part of the shell that a host without rings needs.

use crate::{
    adapter::{Conn, Counts, HostEvent, Store},
    replay::{Call, Remembered},
};
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
    engine: Remembered,
    /// It restarts before each request.
    restarts: bool,
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
            engine: Remembered::new(Engine::new(config)),
            restarts: false,
            connections: BTreeMap::new(),
            host: BTreeSet::from([0]),
            clock: Duration::ZERO,
        }
    }

    /// The same, and it restarts before each request.
    pub(crate) fn restarting() -> Self {
        Self { restarts: true, ..Self::new() }
    }

    /// Serves until nothing is left to do, and does what the engine asks of its shell.
    fn settle(&mut self) {
        loop {
            while let Some(effect) = self.engine.next_effect() {
                self.carry_out(effect);
            }
            self.engine.call(Call::Step(Time(self.clock)));
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
                self.engine.call(Call::Close(conn));
            }
            Effect::Release { conn, domid } => {
                if self.connections.get(&Conn::Domain(domid.0)) == Some(&conn) {
                    self.connections.remove(&Conn::Domain(domid.0));
                }
                self.engine.call(Call::Close(conn));
            }
            Effect::Ask { conn, question: Question::Introduce { domid, .. } } => {
                if self.host.contains(&domid.0) {
                    self.engine.call(Call::Answer(conn, Ok(OK.to_vec())));
                    let ring = self.engine.call(Call::Introduce(domid)).expect("a ring has a connection");
                    self.connections.insert(Conn::Domain(domid.0), ring);
                } else {
                    self.engine.call(Call::Answer(conn, Err(XsError::NoEnt)));
                }
            }
            Effect::Ask { conn, .. } => _ = self.engine.call(Call::Answer(conn, Ok(b"\0".to_vec()))),
            Effect::Note(Note::Mended(what)) => panic!("the accounts were wrong: {what}"),
            // Notes and traces are for people, and there is no ring to do anything about.
            _ => {}
        }
    }
}

impl Store for EngineStore {
    fn open(&mut self, conn: Conn) {
        self.engine.end_turn();
        let id = self.engine.call(Call::Open).expect("a socket has a connection");
        self.connections.insert(conn, id);
    }

    fn close(&mut self, conn: Conn) {
        if let Some(id) = self.connections.remove(&conn) {
            self.engine.end_turn();
            self.engine.call(Call::Close(id));
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
            if self.restarts {
                self.restart();
            }
            self.engine.end_turn();
            self.engine.call(Call::Receive(id, bytes.to_vec(), Time(self.clock)));
            self.settle();
        }
    }

    fn take_output(&mut self, conn: Conn) -> Vec<u8> {
        let Some(&id) = self.connections.get(&conn) else { return Vec::new() };
        let output = self.engine.output(id).to_vec();
        self.engine.call(Call::Sent(id, output.len()));
        self.settle();
        output
    }

    fn host_event(&mut self, event: HostEvent) {
        self.engine.end_turn();
        let event = match event {
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
        };
        self.engine.call(Call::Host(event));
        self.settle();
    }

    fn restart(&mut self) {
        self.engine.restart();
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
