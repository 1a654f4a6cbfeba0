//! An engine whose calls are remembered, so that it can be made again from an image and them, as after a death.

use std::{
    convert::Infallible,
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering},
};
use xenstore_core::{ConnId, DomId, DomainEvent, Effect, Engine, Time};
use xenstore_wire::XsError;

/// Turns that were forgotten by all engines of this process, and restarts that were made without them.
static FORGOTTEN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// How many turns were forgotten, and how many restarts came after some were.
pub(crate) fn forgotten() -> [u64; 2] {
    FORGOTTEN.each_ref().map(|count| count.load(Ordering::Relaxed))
}

/// A call that changes an engine.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// A socket connection opens.
    Open,
    /// A connection is closed.
    Close(ConnId),
    /// Bytes come in.
    Receive(ConnId, Vec<u8>, Time),
    /// What is left to do is done.
    Step(Time),
    /// A question is answered.
    Answer(ConnId, Result<Vec<u8>, XsError>),
    /// A domain is introduced.
    Introduce(DomId),
    /// So many bytes left.
    Sent(ConnId, usize),
    /// The host reports.
    Host(DomainEvent),
}

impl Call {
    /// Makes the call; tells the connection that it opened.
    fn make(&self, engine: &mut Engine) -> Option<ConnId> {
        match self.clone() {
            Self::Open => return Some(engine.open_socket_again()),
            Self::Introduce(domid) => return Some(engine.introduce(domid)),
            Self::Close(conn) => engine.close(conn),
            Self::Receive(conn, bytes, now) => engine.receive(conn, &bytes, now),
            Self::Step(now) => engine.step(now),
            Self::Answer(conn, answer) => engine.answer(conn, answer),
            Self::Sent(conn, count) => engine.sent(conn, count),
            Self::Host(event) => engine.domain_event(event),
        }
        None
    }

    fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Close(conn) | Self::Receive(conn, ..) | Self::Answer(conn, _) | Self::Sent(conn, _) => Some(*conn),
            Self::Open | Self::Step(_) | Self::Introduce(_) | Self::Host(_) => None,
        }
    }
}

/// The calls of one turn, and how the engine was before.
#[derive(Debug, Default)]
struct Turn {
    calls: Vec<Call>,
    touched: Vec<ConnId>,
    /// A connection was not settled when the turn came to it.
    continues: bool,
    alterations: u64,
    executed: u64,
}

/// An engine and what it was told since an image.
#[derive(Debug)]
pub(crate) struct Remembered {
    engine: Engine,
    image: Vec<u8>,
    /// The calls of the turns that changed something.
    kept: Vec<Call>,
    turn: Turn,
    /// A turn was forgotten: the time of its calls and the numbers of its requests are.
    forgot: bool,
}

impl Deref for Remembered {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

fn image(engine: &Engine) -> Vec<u8> {
    let mut image = Vec::new();
    let saved = engine.save(|bytes| {
        image.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    });
    let Ok(()) = saved;
    image
}

/// The engine that an image and calls give.
fn replay(image: &[u8], calls: &[Call]) -> Engine {
    let mut engine = Engine::restore(image).unwrap_or_else(|error| panic!("{error}"));
    calls.iter().for_each(|call| _ = call.make(&mut engine));
    engine
}

impl Remembered {
    /// Remembers the calls of this engine.
    pub(crate) fn new(engine: Engine) -> Self {
        let image = image(&engine);
        let mut remembered = Self { engine, image, kept: Vec::new(), turn: Turn::default(), forgot: false };
        remembered.begin_turn();
        remembered
    }

    /// Makes a call; tells the connection that it opened.
    pub(crate) fn call(&mut self, call: Call) -> Option<ConnId> {
        if let Some(conn) = call.conn()
            && !self.turn.touched.contains(&conn)
        {
            self.turn.touched.push(conn);
            self.turn.continues |= !self.engine.is_settled(conn);
        }
        let opened = call.make(&mut self.engine);
        self.turn.calls.push(call);
        opened
    }

    /// What the shell is to do next.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.engine.next_effect()
    }

    fn begin_turn(&mut self) {
        let (alterations, executed) = (self.engine.alterations(), self.engine.executed());
        self.turn = Turn { alterations, executed, ..Turn::default() };
    }

    /// A turn ends. One that changed nothing is forgotten.
    pub(crate) fn end_turn(&mut self) {
        let settled = self.turn.touched.iter().all(|&conn| self.engine.is_settled(conn));
        if settled && !self.turn.continues && self.engine.alterations() == self.turn.alterations {
            self.engine.set_executed(self.turn.executed);
            let requests = self.turn.calls.iter().any(|call| matches!(call, Call::Receive(..)));
            FORGOTTEN[0].fetch_add(u64::from(requests), Ordering::Relaxed);
            self.forgot |= !self.turn.calls.is_empty();
        } else {
            self.engine.keep();
            self.kept.append(&mut self.turn.calls);
        }
        self.begin_turn();
    }

    /// The engine dies, and another goes on from the image and what is remembered.
    pub(crate) fn restart(&mut self) {
        self.end_turn();
        let saved = image(&self.engine);
        let restored = Engine::restore(&saved).unwrap_or_else(|error| panic!("{error}"));
        assert!(image(&restored) == saved, "what is restored has another image");
        let again = replay(&self.image, &self.kept);
        if !self.forgot {
            assert!(image(&again) == saved, "the same calls come to another image");
        }
        assert_eq!(again.executed(), self.engine.executed());
        FORGOTTEN[1].fetch_add(u64::from(std::mem::take(&mut self.forgot)), Ordering::Relaxed);
        self.engine = again;
        self.engine.resume();
        self.image = image(&self.engine);
        self.kept.clear();
        self.begin_turn();
    }
}
