//! A log in which everything happens, and what a damaged one comes to: for tests and fuzz targets only.

use std::convert::Infallible;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use xen_ffi::Port;
use xenstore_core::{CloseReason, Config, ConnId, DomId, DomainEvent, Effect, Engine, Existence, Question, Time};
use xenstore_journal::{Directory, Log, LogFile};
use xenstore_wire::{Op, XsError, put_message};

use super::journaled::{Journaled, WRITER};
use super::record::{HostPorts, Reach, RingPosition};
use super::recovery::{RecoveryError, recover_log};

/// A daemon without a loop.
struct Sample {
    journaled: Journaled,
    now: Time,
}

/// The content of a log that has a record of every kind, and of most a few; it is made in a directory of its own.
///
/// # Panics
/// If it cannot be made.
pub(crate) fn sample(directory: &Path) -> Vec<u8> {
    let directory = Directory::open(directory).expect("a directory");
    let log = Log::first(&directory, WRITER).expect("a log");
    let path = log.path().to_owned();
    let config = Config { existence: Existence::Asked, ..Config::default() };
    let mut journaled = Journaled::new(Engine::new(config.clone()), log, Some(directory), config);
    journaled.begin();
    Sample { journaled, now: Time::default() }.play();
    std::fs::read(path).expect("the log can be read")
}

impl Sample {
    fn play(&mut self) {
        self.journaled.host_ports(HostPorts { domain_state: Some(Port(9)) });
        let (dom0, one, two) = (self.open(), self.introduce(1), self.introduce(2));
        let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
        socket.set_nonblocking(true).expect("a socket");
        let mut ask = |sample: &mut Self, bytes: &[u8]| {
            client.write_all(bytes).expect("the socket takes it");
            let _ = sample.journaled.receive_from(dom0, socket.as_fd(), sample.now);
            sample.settle();
            let _ = sample.journaled.send_to(dom0, socket.as_fd());
            sample.journaled.end_turn();
        };
        ask(self, &request(Op::Watch, 0, b"/\0t\0"));
        ask(self, &request(Op::Watch, 0, b"@releaseDomain\0gone\0"));
        self.say(one, &request(Op::Write, 0, b"data\0value"));
        self.say(two, &request(Op::TransactionStart, 0, b"\0"));
        self.say(two, &request(Op::Mkdir, 1, b"in\0"));
        ask(self, &request(Op::SetPerms, 0, b"/local/domain/1/data\0n1\0r2\0"));
        ask(self, &request(Op::TransactionStart, 0, b"\0"));
        ask(self, &request(Op::Write, 2, b"/a/b\0c"));
        ask(self, &request(Op::TransactionEnd, 2, b"T\0"));
        ask(self, &request(Op::Introduce, 0, b"3\x0077\x005\0"));
        ask(self, &request(Op::GetFeature, 0, b"6\0"));
        ask(self, &request(Op::Control, 0, b"turns\0"));
        ask(self, &request(Op::SetQuota, 0, b"1\0nodes\x0030\0"));
        ask(self, &request(Op::Rm, 0, b"/a\0"));
        self.say(one, &request(Op::Write, 0, b"half\0and")[..9]);
        self.journaled.hold_transactions(true);
        self.say(one, &request(Op::Write, 0, b"half\0and")[9..]);
        self.journaled.hold_transactions(false);
        let reach = reach(2, 40);
        self.journaled.rebound(two, reach, RingPosition { requests: 7, replies: 9 });
        self.journaled.reconnect(two);
        self.journaled.domain_event(DomainEvent::Appeared(DomId(5)));
        self.journaled.domain_event(DomainEvent::ShutDown(vec![DomId(1)]));
        self.journaled.domain_event(DomainEvent::Gone(vec![DomId(3)]));
        self.settle();
        self.journaled.end_turn();
        self.journaled.ring_failed(one);
        let other = self.open();
        self.journaled.sent_nothing(dom0);
        self.journaled.close(other);
        self.settle();
        ask(self, &request(Op::Write, 0, b"/last\0")[..20]);
    }

    fn open(&mut self) -> ConnId {
        self.journaled.open_socket().expect("there is room")
    }

    fn introduce(&mut self, domid: u16) -> ConnId {
        self.journaled.introduce(reach(domid, 10 + u32::from(domid)), RingPosition::default())
    }

    /// Bytes from a ring, and the answers put into it.
    fn say(&mut self, conn: ConnId, bytes: &[u8]) {
        let at = RingPosition { requests: 100, replies: 50 };
        self.journaled.record_taken(conn, at, bytes);
        self.journaled.serve_taken(conn, bytes, self.now);
        self.settle();
        let waiting = self.journaled.output(conn).len();
        if waiting > 0 {
            self.journaled.put(conn, waiting, at);
        }
        self.journaled.end_turn();
    }

    /// Goes on until nothing is left, and answers what is asked.
    fn settle(&mut self) {
        self.now = Time(self.now.0 + Duration::from_millis(3));
        self.journaled.step(self.now);
        while let Some(effect) = self.journaled.next_effect() {
            match effect {
                Effect::Ask { conn, question: Question::Introduce { domid, .. } } => {
                    self.journaled.answer_introduction(conn, reach(domid.0, 4), RingPosition::default());
                }
                Effect::Ask { conn, question: Question::Exist(domids) } => {
                    self.journaled.answer_existence(conn, domids);
                }
                Effect::Ask { conn, .. } => self.journaled.answer(conn, Err(XsError::Io)),
                Effect::Release { conn, .. } => self.journaled.close(conn),
                _ => {}
            }
        }
    }
}

fn reach(domid: u16, local: u32) -> Reach {
    Reach { domid: DomId(domid), remote: Port(5), local: Port(local), gfn: 77, life: None }
}

fn request(op: Op, tx_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_message(&mut bytes, op.number(), 4, tx_id, payload);
    bytes
}

/// Goes through what may be a log, as a daemon that starts does, and gives the number of its records. The store that it
/// tells of is sound: it can be written down and read, and the engine has failed at nothing.
///
/// # Errors
/// Why a daemon would refuse it.
///
/// # Panics
/// Where it is not refused, and the store is not sound.
pub(crate) fn recover_bytes(bytes: &[u8]) -> Result<usize, String> {
    let refused = |error: &dyn std::error::Error| error.to_string();
    let file = LogFile::from_bytes(Path::new("log.1"), bytes).map_err(|error| refused(&error))?;
    let mut engine = recover_log(&file).map_err(|error: RecoveryError| refused(&error))?;
    let image = image(&engine);
    let again = Engine::restore(&image).expect("what was recovered can be written down and read");
    assert!(self::image(&again) == image, "it is the same then");
    engine.resume();
    while let Some(effect) = engine.next_effect() {
        let failed = matches!(&effect, Effect::Close { reason, .. } | Effect::Ignore { reason, .. }
            if matches!(reason, CloseReason::Failed { .. }));
        assert!(!failed, "{effect:?}");
    }
    Ok(file.records().count())
}

fn image(engine: &Engine) -> Vec<u8> {
    let mut image = Vec::new();
    let Ok(()) = engine.save(|bytes| {
        image.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    });
    image
}
