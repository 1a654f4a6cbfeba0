//! Those who speak with the daemon, through a ring or a socket, and know what they are to be answered.

use std::collections::VecDeque;
use std::time::Duration;

use xen_sim::GuestClient;
use xenstore_wire::{Op, put_message};
use xenstored_tests::scene::OK;
use xenstored_tests::wait::PATIENCE;
use xenstored_tests::{Client, Event};

/// One that speaks with the daemon, through a ring or a socket.
#[derive(Debug)]
pub(crate) struct Party {
    line: Line,
    next_id: u32,
    /// Requests that are not answered yet.
    asked: VecDeque<u32>,
}

#[derive(Debug)]
enum Line {
    Ring(GuestClient),
    Socket(Client),
}

impl Party {
    pub(crate) fn ring(guest: GuestClient) -> Self {
        Self { line: Line::Ring(guest), next_id: 1, asked: VecDeque::new() }
    }

    pub(crate) fn socket(client: Client) -> Self {
        Self { line: Line::Socket(client), next_id: 1, asked: VecDeque::new() }
    }

    /// The bytes of the next request, which is awaited from now on.
    pub(crate) fn request_bytes(&mut self, op: Op, tx: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_message(&mut bytes, op.number(), self.next_id, tx, payload);
        self.asked.push_back(self.next_id);
        self.next_id += 1;
        bytes
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.line {
            Line::Ring(guest) => guest.guest().send(bytes, PATIENCE).expect("there is room"),
            Line::Socket(client) => client.send_raw(bytes).expect("there is room"),
        }
    }

    pub(crate) fn send(&mut self, op: Op, tx: u32, payload: &[u8]) {
        let bytes = self.request_bytes(op, tx, payload);
        self.send_bytes(&bytes);
    }

    /// Whether something has come through its socket.
    pub(crate) fn has_arrived(&self) -> bool {
        matches!(&self.line, Line::Socket(client) if client.has_arrived())
    }

    /// Takes the answer to the request that was sent first.
    pub(crate) fn answer(&mut self) -> Result<Vec<u8>, String> {
        let (header, payload) = match &mut self.line {
            Line::Ring(guest) => {
                let message = guest.reply().unwrap_or_else(|error| panic!("no answer: {error}"));
                (message.header, message.payload)
            }
            Line::Socket(client) => {
                let reply = client.reply().unwrap_or_else(|error| panic!("no answer: {error}"));
                (reply.header, reply.payload)
            }
        };
        assert_eq!(
            Some(header.req_id),
            self.asked.pop_front(),
            "each request is answered once, in its order: {header:?}"
        );
        if header.op == Op::Error.number() {
            return Err(String::from_utf8_lossy(&payload).trim_end_matches('\0').into());
        }
        Ok(payload)
    }

    pub(crate) fn ask(&mut self, op: Op, tx: u32, payload: &[u8]) -> Result<Vec<u8>, String> {
        self.send(op, tx, payload);
        self.answer()
    }

    pub(crate) fn read(&mut self, path: &str) -> Result<Vec<u8>, String> {
        self.ask(Op::Read, 0, format!("{path}\0").as_bytes())
    }

    pub(crate) fn write(&mut self, path: &str, value: &str) {
        assert_eq!(self.ask(Op::Write, 0, format!("{path}\0{value}").as_bytes()), Ok(OK.to_vec()), "WRITE {path}");
    }

    pub(crate) fn watch(&mut self, path: &str, token: &str) {
        assert_eq!(self.ask(Op::Watch, 0, format!("{path}\0{token}\0").as_bytes()), Ok(OK.to_vec()), "WATCH {path}");
        assert_eq!(self.events(), [Event::new(path, token)]);
    }

    /// Takes what is there of an answer that comes in parts.
    pub(crate) fn take_a_part(&mut self) {
        if let Line::Ring(guest) = &mut self.line {
            assert_eq!(guest.event(Duration::ZERO).expect("no whole answer"), None);
        }
    }

    /// All events of what has happened so far. Nothing else may have come.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        assert_eq!(self.ask(Op::GetDomainPath, 0, b"0\0"), Ok(b"/local/domain/0\0".to_vec()));
        match &mut self.line {
            Line::Ring(guest) => {
                let next = || guest.event(Duration::ZERO).expect("nothing but events");
                std::iter::from_fn(next).map(|(path, token)| Event { path, token }).collect()
            }
            Line::Socket(client) => {
                let events = client.settled_events();
                assert!(!client.has_arrived(), "nothing but events and answers");
                events
            }
        }
    }
}
