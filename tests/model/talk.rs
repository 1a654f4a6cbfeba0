//! Short-hand for tests that talk to a store by hand.

use crate::{
    adapter::{Conn, HostEvent, Store},
    output::{Output, text},
};
use std::collections::BTreeMap;
use xenstore_wire::{Op, XsError};

/// A socket client.
pub(crate) const A: Conn = Conn::Socket(0);
/// Another one.
pub(crate) const B: Conn = Conn::Socket(1);
/// Domains that are introduced from the start.
pub(crate) const G3: Conn = Conn::Domain(3);
/// The second of them.
pub(crate) const G4: Conn = Conn::Domain(4);

/// A store with two socket clients, and the domains 3 and 4 introduced with homes of their own.
pub(crate) struct Talk {
    /// The store under test.
    pub(crate) store: Box<dyn Store>,
    events: BTreeMap<Conn, Vec<(String, String)>>,
}

impl Talk {
    /// Starts the conversation on a fresh store. The host has the domains 1 to 9.
    pub(crate) fn on(mut store: Box<dyn Store>) -> Self {
        store.open(A);
        store.open(B);
        for domid in 1..=9 {
            store.host_event(HostEvent::Exists(domid));
        }
        let mut talk = Self { store, events: BTreeMap::new() };
        for domid in 3..=4 {
            talk.ok(A, Op::Introduce, &format!("{domid}|1|1|"));
            talk.ok(A, Op::Mkdir, &format!("/local/domain/{domid}|"));
            talk.ok(A, Op::SetPerms, &format!("/local/domain/{domid}|n{domid}|"));
        }
        talk
    }

    /// Sends a request in a transaction (`|` is a NUL) and gives the reply's payload in the same spelling.
    pub(crate) fn ask_in(&mut self, conn: Conn, tx_id: u32, op: Op, payload: &str) -> Result<String, XsError> {
        let payload: Vec<u8> = payload.bytes().map(|byte| if byte == b'|' { 0 } else { byte }).collect();
        self.store.request(conn, op.number(), 77, tx_id, &payload);
        let mut reply = None;
        for of in [A, B, G3, G4] {
            let output = Output::decode(&self.store.take_output(of));
            let events = output.events.iter().map(|(path, token)| (text(path), text(token)));
            self.events.entry(of).or_default().extend(events);
            if of == conn {
                assert!(!output.event_first, "a reply stands before the events of its request");
                assert_eq!(output.replies.len(), 1, "one reply to one request");
                reply = output.replies.into_iter().next();
            } else {
                assert!(output.replies.is_empty(), "nobody else gets a reply");
            }
        }
        let reply = reply.expect("the caller is one of the four");
        assert_eq!((reply.req_id, reply.tx_id), (77, tx_id));
        match reply.error() {
            Some(error) => Err(error),
            None => {
                assert_eq!(reply.op, op.number());
                Ok(text(&reply.payload).replace('\0', "|"))
            }
        }
    }

    /// Sends a request outside of transactions.
    pub(crate) fn ask(&mut self, conn: Conn, op: Op, payload: &str) -> Result<String, XsError> {
        self.ask_in(conn, 0, op, payload)
    }

    /// Sends a request that must succeed, and gives its payload.
    pub(crate) fn ok(&mut self, conn: Conn, op: Op, payload: &str) -> String {
        self.ask(conn, op, payload).unwrap_or_else(|error| panic!("{} {payload}: {error}", op.name()))
    }

    /// The same in a transaction.
    pub(crate) fn ok_in(&mut self, conn: Conn, tx_id: u32, op: Op, payload: &str) -> String {
        self.ask_in(conn, tx_id, op, payload).unwrap_or_else(|error| panic!("{} {payload}: {error}", op.name()))
    }

    /// Starts a transaction.
    pub(crate) fn start(&mut self, conn: Conn) -> u32 {
        self.ok(conn, Op::TransactionStart, "|").trim_end_matches('|').parse().expect("an id is a number")
    }

    /// Commits a transaction.
    pub(crate) fn commit(&mut self, conn: Conn, tx_id: u32) -> Result<String, XsError> {
        self.ask_in(conn, tx_id, Op::TransactionEnd, "T|")
    }

    /// The host reports on a domain.
    pub(crate) fn host(&mut self, event: HostEvent) {
        self.store.host_event(event);
        for of in [A, B, G3, G4] {
            let output = Output::decode(&self.store.take_output(of));
            let events = output.events.iter().map(|(path, token)| (text(path), text(token)));
            self.events.entry(of).or_default().extend(events);
        }
    }

    /// The paths of the events that a connection got since the last call.
    pub(crate) fn paths(&mut self, conn: Conn) -> Vec<String> {
        self.events.remove(&conn).unwrap_or_default().into_iter().map(|(path, _)| path).collect()
    }

    /// Path and token of the events that a connection got since the last call.
    pub(crate) fn events(&mut self, conn: Conn) -> Vec<(String, String)> {
        self.events.remove(&conn).unwrap_or_default()
    }
}
