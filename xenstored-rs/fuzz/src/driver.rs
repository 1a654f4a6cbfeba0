//! Stands where the daemon's shell stands: feeds the engine, does what it asks for, and reads all that it sends.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use xenstore_core::{CloseReason, Config, ConnId, DomId, DomainEvent, Effect, Engine, Note, Question, Time};
use xenstore_wire::{Decoder, Header, OK, Op, PAYLOAD_MAX, XsError, put_message};

/// Which end closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client left.
    Client,
    /// The engine gave it up, or its domain went.
    Engine,
}

/// One connection, seen from its client.
#[derive(Debug, Default)]
struct Client {
    /// The domain whose ring it is.
    domid: Option<DomId>,
    sent: Decoder,
    /// Requests without a reply so far.
    asked: VecDeque<Header>,
    got: Decoder,
    /// Number of the transaction opened last.
    tx_id: u32,
    last_reply: (u32, Vec<u8>),
    /// Does not read until it is asked to.
    deaf: bool,
}

/// An engine's image.
#[must_use]
pub fn image(engine: &Engine) -> Vec<u8> {
    let mut image = Vec::new();
    let saved = engine.save(|bytes| {
        image.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    });
    let Ok(()) = saved;
    image
}

/// An engine with connections whose every message is checked.
#[derive(Debug)]
pub struct Driver {
    engine: Engine,
    clients: BTreeMap<ConnId, Client>,
    now: Duration,
    /// Every byte that came back, by connection, where that is of interest.
    pub record: Option<BTreeMap<ConnId, Vec<u8>>>,
}

impl Driver {
    /// A fresh store with nobody connected.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), clients: BTreeMap::new(), now: Duration::ZERO, record: None }
    }

    /// The engine, for what needs no check.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Opens a socket connection, unless it is refused.
    pub fn open(&mut self) -> Option<ConnId> {
        self.settle();
        let conn = self.engine.open_socket().ok()?;
        assert!(self.clients.insert(conn, Client::default()).is_none(), "{conn} belongs to somebody");
        Some(conn)
    }

    /// Introduces a domain; one that is introduced already starts over.
    pub fn introduce(&mut self, domid: DomId) -> ConnId {
        let conn = self.engine.introduce(domid);
        let client = Client { domid: Some(domid), ..Client::default() };
        let before = self.clients.insert(conn, client);
        assert!(before.is_none_or(|before| before.domid == Some(domid)), "{conn} belongs to somebody else");
        conn
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnId> {
        self.clients.keys().copied().collect()
    }

    /// Whether this is an open socket connection.
    #[must_use]
    pub fn is_socket(&self, conn: ConnId) -> bool {
        self.clients.get(&conn).is_some_and(|client| client.domid.is_none())
    }

    /// Sends bytes, if the engine wants any.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        if !self.engine.wants_input(conn) {
            return;
        }
        let Some(client) = self.clients.get_mut(&conn) else { return };
        client.sent.push(bytes);
        while let Ok(Some(message)) = client.sent.next_message() {
            client.asked.push_back(message.header);
        }
        self.now += Duration::from_millis(1);
        self.engine.receive(conn, bytes, Time(self.now));
    }

    /// Sends one request, in the transaction that the connection opened last or in none.
    pub fn send_request(&mut self, conn: ConnId, op: u32, req_id: u32, in_transaction: bool, payload: &[u8]) {
        let tx_id = self.clients.get(&conn).filter(|_| in_transaction).map_or(0, |client| client.tx_id);
        let mut bytes = Vec::new();
        put_message(&mut bytes, op, req_id, tx_id, payload);
        self.send(conn, &bytes);
    }

    /// Sends one request, lets everything settle, and gives type and payload of its reply.
    pub fn ask(&mut self, conn: ConnId, op: Op, tx_id: u32, payload: &[u8]) -> (u32, Vec<u8>) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op.number(), 77, tx_id, payload);
        self.send(conn, &bytes);
        self.settle();
        let client = self.clients.get_mut(&conn).expect("who asks well-formed requests stays connected");
        assert!(client.asked.is_empty(), "{op:?} has no reply");
        std::mem::take(&mut client.last_reply)
    }

    /// Makes a connection stop reading, or read all that waits for it.
    pub fn set_deaf(&mut self, conn: ConnId, deaf: bool) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.deaf = deaf;
            self.flush(conn, usize::MAX);
        }
    }

    /// Ends a connection.
    pub fn close(&mut self, conn: ConnId, by: Closed) {
        if let Some(client) = self.clients.remove(&conn) {
            assert!(client.domid.is_none() || by == Closed::Engine, "a ring is not closed by its domain");
            self.engine.close(conn);
        }
    }

    /// Ends every socket but one, and all domains; then checks that they left nothing behind.
    pub fn end(&mut self, admin: ConnId) {
        self.settle();
        let gone = (1..=5).map(DomId).chain(self.clients.values().filter_map(|client| client.domid)).collect();
        self.engine.domain_event(DomainEvent::Gone(gone));
        self.settle();
        for conn in self.connections() {
            if conn != admin {
                self.close(conn, Closed::Client);
            }
        }
        self.set_deaf(admin, false);
        self.ask(admin, Op::ResetWatches, 0, b"\0");
        assert_eq!(self.ask(admin, Op::Control, 0, b"check\0").1, OK);
        let report = String::from_utf8(self.ask(admin, Op::Control, 0, b"memreport\0").1).expect("a report is text");
        let nothing =
            ["with 0 earlier states", "watches          : 0\n", "transactions     : 0\n", ": 1, 0 with unsent"];
        for wanted in nothing {
            assert!(report.contains(wanted), "no {wanted:?} in\n{report}");
        }
        for domid in (1..=5).map(DomId) {
            assert_eq!(self.engine.quota_usage(domid), None, "domain {domid} is gone");
        }
    }

    /// The daemon dies, and the next goes on with what the image says; what the engine wanted done is asked for anew.
    pub fn restart(&mut self) {
        let before = image(&self.engine);
        self.engine = Engine::restore(&before).expect("an image can be read");
        assert!(image(&self.engine) == before, "what is restored has the same image");
        self.engine.resume();
    }

    /// Takes turns until there is nothing left to do.
    pub fn settle(&mut self) {
        loop {
            self.now += Duration::from_millis(1);
            self.engine.step(Time(self.now));
            self.perform();
            while let Some(conn) = self.engine.next_output() {
                // Whoever does not read has a kernel buffer all the same.
                let most = if self.clients.get(&conn).is_some_and(|client| client.deaf) { 40 } else { usize::MAX };
                self.flush(conn, most);
            }
            self.perform();
            if !self.engine.has_work() {
                return;
            }
        }
    }

    /// Checks that everybody has all replies, after as much time as the engine wants to take. Those who do not read may
    /// lack some, and so may the domains whose requests caused events that nobody takes.
    pub fn check_answered(&mut self) {
        while self.clients.values().any(|client| !client.asked.is_empty())
            && let Some(deadline) = self.engine.next_deadline()
        {
            self.now = self.now.max(deadline.0);
            self.settle();
        }
        if self.clients.values().any(|client| client.deaf) {
            return;
        }
        for (conn, client) in &self.clients {
            assert!(client.asked.is_empty(), "{conn} has no reply to {:?}", client.asked);
            assert_eq!(client.got.pending(), 0, "{conn} got part of a message");
        }
    }

    fn flush(&mut self, conn: ConnId, most: usize) {
        let output = self.engine.output(conn);
        let bytes = output[..output.len().min(most)].to_vec();
        self.take(conn, &bytes);
        self.engine.sent(conn, bytes.len());
    }

    /// Does what the engine asks for, in its order.
    fn perform(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Release { conn, domid } => {
                    let client = self.clients.remove(&conn);
                    assert!(client.is_none_or(|client| client.domid == Some(domid)), "{conn} is not of {domid}");
                    self.engine.close(conn);
                }
                Effect::Close { conn, reason } => self.give_up(conn, &reason),
                Effect::Ignore { conn, domid, reason, .. } => {
                    assert!(!matches!(reason, CloseReason::Failed { .. }), "{reason:?}");
                    // Nothing more comes, not even what it had asked for. The domain may be gone by now.
                    if let Some(client) = self.clients.get_mut(&conn).filter(|client| client.domid == Some(domid)) {
                        *client = Client { domid: Some(domid), ..Client::default() };
                    }
                }
                Effect::Ask { conn, question: Question::Introduce { domid, .. } } => {
                    self.engine.answer(conn, Ok(OK.to_vec()));
                    self.flush(conn, usize::MAX);
                    self.introduce(domid);
                }
                Effect::Ask { conn, question: Question::Exist(mut domids) } => {
                    domids.retain(|domid| domid.0 % 2 == 1);
                    self.engine.answer_existence(conn, &domids);
                }
                Effect::Ask { conn, question: Question::Turns } => self.engine.answer(conn, Err(XsError::Io)),
                Effect::Ask { conn, question: Question::Report { file: None } } => {
                    let report = self.engine.memory_report().into_bytes();
                    self.engine.answer(conn, Ok(report));
                }
                Effect::Ask { conn, .. } => self.engine.answer(conn, Ok(OK.to_vec())),
                Effect::Note(Note::Mended(what)) => panic!("the accounts were wrong: {what}"),
                Effect::Note(_) | Effect::Trace(_) => {}
            }
        }
    }

    fn give_up(&mut self, conn: ConnId, reason: &CloseReason) {
        assert!(!matches!(reason, CloseReason::Failed { .. }), "{reason:?}");
        let bytes = self.engine.output(conn).to_vec();
        self.take(conn, &bytes);
        // The client may have left by now.
        let Some(client) = self.clients.get(&conn) else { return };
        let all = matches!(reason, CloseReason::TooLong { .. });
        assert!(!all || client.asked.is_empty(), "requests before the last are answered: {:?}", client.asked);
        self.close(conn, Closed::Engine);
    }

    /// A client reads: whole messages, each the reply to its oldest request or an event.
    fn take(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.entry(conn).or_default().extend_from_slice(bytes);
        }
        let Some(client) = self.clients.get_mut(&conn) else { return };
        client.got.push(bytes);
        while let Some(message) = client.got.next_message().expect("the engine keeps to the limits of messages") {
            let (header, payload) = (message.header, message.payload);
            assert!(payload.len() <= PAYLOAD_MAX);
            if header.op == Op::WatchEvent.number() {
                assert_eq!((header.req_id, header.tx_id), (0, 0), "an event has no ids");
                assert_eq!(payload.iter().filter(|&&byte| byte == 0).count(), 2, "an event is two strings");
                assert_eq!(payload.last(), Some(&0), "an event is two strings");
                continue;
            }
            let asked = client.asked.pop_front().expect("a reply has a request");
            assert_eq!((header.req_id, header.tx_id), (asked.req_id, asked.tx_id), "a reply has its request's ids");
            if header.op == Op::Error.number() {
                let name = payload.strip_suffix(b"\0").expect("an error's name has a NUL");
                assert!(XsError::from_name(name).is_some(), "{name:?} is no error of the protocol");
            } else {
                assert_eq!(header.op, asked.op, "a reply has its request's type");
            }
            if header.op == Op::TransactionStart.number() {
                let digits = payload.strip_suffix(b"\0").and_then(|digits| std::str::from_utf8(digits).ok());
                client.tx_id = digits.and_then(|digits| digits.parse().ok()).expect("a transaction has a number");
            }
            client.last_reply = (header.op, payload.to_vec());
        }
    }
}
