//! What the server does, and how its state comes back from the files.
//!
//! A client sends bytes; for each the server answers one, which depends on the byte and on its position in the stream. A
//! byte that is lost or taken twice makes every later answer wrong, and one that is sent twice shifts them.

use xenstore_journal::{Directory, Image, ImageWriter, Log, LogFile, Mark, Note, Plan, Position, Record, sent_count};

/// Clients, and their numbers as connections.
pub(crate) const CLIENTS: usize = 2;

/// Kind of a record of bytes that were taken. Its payload begins with the position of the first in its stream.
pub(crate) const TAKEN: u16 = 1;
/// Kind of a record of how many were sent.
pub(crate) const SENT: u16 = 2;

/// The byte that a client sends at a position.
pub(crate) fn question(client: usize, position: u64) -> u8 {
    ((position ^ (client as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The byte that the server answers to one at a position.
pub(crate) fn answer(position: u64, question: u8) -> u8 {
    question.wrapping_add((position.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8)
}

/// A client's stream, at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Bytes taken.
    pub(crate) taken: u64,
    /// Answers not sent.
    pub(crate) waiting: Vec<u8>,
}

impl Stream {
    /// Bytes sent.
    pub(crate) fn sent(&self) -> u64 {
        self.taken - self.waiting.len() as u64
    }

    pub(crate) fn take(&mut self, byte: u8) {
        self.waiting.push(answer(self.taken, byte));
        self.taken += 1;
    }

    /// What a record does.
    fn replay(&mut self, client: usize, kind: u16, payload: &[u8]) {
        match kind {
            TAKEN => {
                let (start, bytes) = payload.split_first_chunk().expect("a position");
                let start = u64::from_le_bytes(*start);
                if start != self.taken {
                    // Turns in between were taken back, which happens to answered ones only.
                    assert!(self.waiting.is_empty() && start > self.taken, "{self:?} goes on at {start}");
                    self.taken = start;
                }
                for byte in bytes {
                    assert_eq!(*byte, question(client, self.taken), "client {client}, byte {}", self.taken);
                    self.take(*byte);
                }
            }
            SENT => {
                let count = usize::try_from(sent_count(payload).expect("a count")).unwrap();
                assert!(count <= self.waiting.len(), "{count} sent of {}", self.waiting.len());
                self.waiting.drain(..count);
            }
            _ => panic!("kind {kind}"),
        }
    }
}

/// All streams.
pub(crate) type Streams = [Stream; CLIENTS];

/// Applies a log: its records, then the positions that are newer than all of their stream's.
fn replay<'a>(
    streams: &mut Streams,
    records: impl Iterator<Item = Record<'a>>,
    position: impl Fn(u32) -> Option<Position>,
) {
    let mut last = [0; CLIENTS];
    for record in records {
        let client = record.conn as usize;
        streams[client].replay(client, record.kind, record.payload);
        last[client] = record.offset;
    }
    for (client, stream) in streams.iter_mut().enumerate() {
        let position = position(u32::try_from(client).unwrap()).filter(|position| last[client] < position.at);
        if let Some(Position { value, .. }) = position
            && value != stream.taken
        {
            assert!(stream.waiting.is_empty() && value > stream.taken, "{stream:?} goes on at {value}");
            stream.taken = value;
        }
    }
}

fn replay_file(streams: &mut Streams, log: &LogFile) {
    replay(streams, log.records().map(|record| record.unwrap()), |index| log.position(index));
}

/// The state that the files hold, without anything being changed, and the note there is. `None` without files.
pub(crate) fn look(directory: &Directory) -> Option<(Streams, Option<Note>)> {
    let plan = directory.newest().unwrap().plan?;
    let mut streams = image(directory, &plan);
    let mut note = None;
    for number in &plan.logs {
        let log = LogFile::open(directory, *number).unwrap();
        replay_file(&mut streams, &log);
        note = log.note();
    }
    match note {
        Some(Note::Received { conn, count, .. }) => {
            let stream = &mut streams[conn as usize];
            for _ in 0..count {
                stream.take(question(conn as usize, stream.taken));
            }
        }
        Some(Note::Sent { conn, count, .. }) => drop(streams[conn as usize].waiting.drain(..count)),
        None => {}
    }
    Some((streams, note))
}

/// The state that the files hold, and the log to go on with; a new one without files.
pub(crate) fn recover(directory: &Directory) -> (Streams, Log) {
    directory.remove_unfinished().unwrap();
    let found = directory.newest().unwrap();
    assert!(found.other_boot.is_empty() && found.damaged.is_empty(), "{found:?}");
    let Some(plan) = found.plan else {
        return (Streams::default(), Log::first(directory, "echo").unwrap());
    };
    let mut streams = image(directory, &plan);
    let (last, before) = plan.logs.split_last().unwrap();
    for number in before {
        replay_file(&mut streams, &LogFile::open(directory, *number).unwrap());
    }
    let log = Log::open(directory, *last).unwrap();
    replay(&mut streams, log.records().map(|record| record.unwrap()), |index| log.position(index));
    directory.remove_before(plan.oldest()).unwrap();
    (streams, log)
}

fn image(directory: &Directory, plan: &Plan) -> Streams {
    let Some(number) = plan.image else { return Streams::default() };
    let image = Image::open(directory, number).unwrap();
    let mut content = image.content();
    core::array::from_fn(|_| {
        let (numbers, rest) = content.split_first_chunk::<16>().unwrap();
        let (taken, len) = numbers.split_first_chunk::<8>().unwrap();
        let len = usize::try_from(u64::from_le_bytes(len.try_into().unwrap())).unwrap();
        let (waiting, rest) = rest.split_at(len);
        content = rest;
        Stream { taken: u64::from_le_bytes(*taken), waiting: waiting.to_vec() }
    })
}

/// Goes on in the next log, with an image.
pub(crate) fn rotate(directory: &Directory, log: &Log, streams: &Streams) -> Log {
    use std::io::Write;
    let next = log.next(directory, "echo").unwrap();
    let mut image = ImageWriter::create(directory, next.heading()).unwrap();
    for stream in streams {
        image.write_all(&stream.taken.to_le_bytes()).unwrap();
        image.write_all(&(stream.waiting.len() as u64).to_le_bytes()).unwrap();
        image.write_all(&stream.waiting).unwrap();
    }
    image.finish().unwrap();
    directory.remove_before(next.number()).unwrap();
    next
}

/// Takes a turn back in which everything was answered.
pub(crate) fn take_back(log: &mut Log, streams: &Streams, mark: Mark) {
    for (client, stream) in (0..).zip(streams) {
        log.set_position(client, stream.taken, mark).unwrap();
    }
    log.rewind(mark);
}
