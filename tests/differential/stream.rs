//! Random conversations: what is sent, not what comes back.

use crate::random::Random;
use std::fmt;
use xenstore_wire::{Op, PAYLOAD_MAX};

/// Connections that a conversation uses.
pub(crate) const CONNECTIONS: usize = 3;

/// The transaction that a request names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tx {
    /// None.
    Outside,
    /// One of those open on the connection (the number wraps around), none if there is none.
    Open(usize),
    /// One of those open on the next connection.
    Foreign(usize),
    /// A number that nobody gave out.
    Invented,
}

/// One request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) op: u32,
    pub(crate) tx: Tx,
    pub(crate) payload: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Op::from_number(self.op).map_or_else(|| self.op.to_string(), |op| op.name().into());
        let shown = &self.payload[..self.payload.len().min(120)];
        write!(f, "{name} \"{}\" ({} bytes) {:?}", shown.escape_ascii(), self.payload.len(), self.tx)
    }
}

/// What is done next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Requests sent in one go; more than one is a pipeline.
    Requests { on: usize, requests: Vec<Request> },
    /// A header that announces more than a message may carry.
    TooLong { on: usize },
    /// The client goes away and comes back.
    Reconnect { on: usize },
}

const PATHS: &[&str] = &[
    "/t/a",
    "/t/b",
    "/t/c",
    "/t/a/a",
    "/t/a/b",
    "/t/b/a",
    "/t/b/b",
    "/t/a/b/c",
    "/t/a/b/d",
    "/t/new/deep/node",
    "/t/d/e",
];
const TOP_PATHS: &[&str] = &["/", "/t", "/tool", "rel", "rel/sub", "/local/domain/0/rel", "/none/at/all", "/t/x@y-_Z9"];
const BAD_PATHS: &[&str] = &[
    "",
    "//",
    "/t/",
    "/t//a",
    "/t a",
    "/t/\u{1}",
    "@other",
    "/local/domain/",
    "/local/domain/0/",
    "t/",
    "/t.a",
    "/t:",
];
const SPECIAL_PATHS: &[&str] = &["@introduceDomain", "@releaseDomain", "@nothing", "@releaseDomain/3"];
const TOKENS: &[&str] = &["t", "u", "", "a token/with:anything", "1"];
const NUMBERS: &[&str] = &["0", "1", "5", "77", "32751", "007", "32752", "65535"];
const ODD_NUMBERS: &[&str] = &["", "x", "-1", "65536", "70000", "0x10", "1 ", " 1", "+1", "99999999999999999999"];

/// A conversation of `length` steps.
pub(crate) fn generate(seed: u64, length: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    (0..length).map(|_| step(&mut random)).collect()
}

fn step(random: &mut Random) -> Step {
    let on = random.below(CONNECTIONS);
    if random.once_in(60) {
        return Step::Reconnect { on };
    }
    if random.once_in(150) {
        return Step::TooLong { on };
    }
    let count = if random.once_in(8) { 2 + random.below(6) } else { 1 };
    let mut requests = Vec::new();
    while requests.len() < count {
        requests.push(request(random));
        // The store is looked at after a transaction's end, so nothing may follow it in the same go.
        if requests.last().is_some_and(|request: &Request| request.op == Op::TransactionEnd.number()) {
            break;
        }
    }
    Step::Requests { on, requests }
}

fn request(random: &mut Random) -> Request {
    let op = random.weighted(&[
        (12, Op::Write),
        (6, Op::Mkdir),
        (8, Op::Rm),
        (8, Op::Read),
        (6, Op::Directory),
        (3, Op::DirectoryPart),
        (5, Op::GetPerms),
        (7, Op::SetPerms),
        (7, Op::Watch),
        (3, Op::Unwatch),
        (5, Op::TransactionStart),
        (6, Op::TransactionEnd),
        (1, Op::ResetWatches),
        (1, Op::GetDomainPath),
        (1, Op::IsDomainIntroduced),
        (1, Op::Release),
        (1, Op::Resume),
        (1, Op::SetTarget),
        (1, Op::Introduce),
        (1, Op::Control),
        (1, Op::GetFeature),
        (1, Op::GetQuota),
    ]);
    let mut payload = payload(random, op);
    if random.once_in(25) {
        spoil(random, &mut payload);
    }
    payload.truncate(PAYLOAD_MAX);
    let number = if random.once_in(80) { [15, 16, 20, 27, 1000, 65535][random.below(6)] } else { op.number() };
    let tx = match op {
        Op::TransactionEnd => random.weighted(&[(20, Tx::Open(0)), (1, Tx::Outside), (1, Tx::Invented)]),
        Op::TransactionStart => random.weighted(&[(15, Tx::Outside), (1, Tx::Open(0)), (1, Tx::Invented)]),
        _ => random.weighted(&[(50, Tx::Outside), (45, Tx::Open(0)), (1, Tx::Foreign(0)), (1, Tx::Invented)]),
    };
    let tx = match tx {
        Tx::Open(_) => Tx::Open(random.below(4)),
        Tx::Foreign(_) => Tx::Foreign(random.below(4)),
        other => other,
    };
    Request { op: number, tx, payload }
}

fn path(random: &mut Random) -> Vec<u8> {
    let kind = random.weighted(&[(40, 0), (10, 1), (3, 2), (1, 3), (1, 4)]);
    match kind {
        0 => random.pick(PATHS).into(),
        1 => random.pick(TOP_PATHS).into(),
        2 => random.pick(BAD_PATHS).into(),
        3 => random.pick(SPECIAL_PATHS).into(),
        _ => format!("/t/{}", "long".repeat(1 + random.below(600))).into(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => Vec::new(),
        1 => vec![0, 1, 0xff, b'\n', 0],
        2 => vec![b'v'; 500 + random.below(3000)],
        n => format!("{n}{}", random.below(10)).into(),
    }
}

fn domid(random: &mut Random) -> Vec<u8> {
    if random.once_in(6) { random.pick(ODD_NUMBERS).into() } else { random.pick(NUMBERS).into() }
}

fn permission(random: &mut Random) -> Vec<u8> {
    let letter: &[u8] = if random.once_in(40) { b"x" } else { &b"nrwb"[random.below(4)..][..1] };
    let number = if random.once_in(20) { random.pick(ODD_NUMBERS) } else { random.pick(NUMBERS) };
    [letter, number.as_bytes()].concat()
}

fn strings(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| [part, &b"\0"[..]].concat()).collect()
}

fn payload(random: &mut Random, op: Op) -> Vec<u8> {
    match op {
        Op::Write => [path(random).as_slice(), b"\0", &value(random)].concat(),
        Op::SetPerms => {
            let path = if random.once_in(15) { random.pick(SPECIAL_PATHS).into() } else { path(random) };
            let most = if random.once_in(10) { 30 } else { 3 };
            let count = 1 + random.below(most);
            let mut payload = strings(&[&path]);
            for _ in 0..count {
                payload.extend(strings(&[&permission(random)]));
            }
            payload
        }
        Op::GetPerms if random.once_in(10) => strings(&[random.pick(SPECIAL_PATHS).as_bytes()]),
        Op::Watch | Op::Unwatch => {
            let path = match random.below(12) {
                0 => random.pick(SPECIAL_PATHS).into(),
                1 => b"/".to_vec(),
                2 => b"/t".to_vec(),
                _ => path(random),
            };
            strings(&[&path, random.pick(TOKENS).as_bytes()])
        }
        Op::DirectoryPart => {
            let offset = random.weighted(&[(8, "0"), (1, "1"), (1, "4096"), (1, "x"), (1, "")]);
            strings(&[&path(random), offset.as_bytes()])
        }
        Op::TransactionEnd => {
            random.weighted(&[(12, &b"T\0"[..]), (4, b"F\0"), (1, b"X\0"), (1, b"T"), (1, b"")]).into()
        }
        Op::TransactionStart | Op::ResetWatches => random.weighted(&[(9, &b"\0"[..]), (1, b"")]).into(),
        Op::GetDomainPath => strings(&[&domid(random)]),
        Op::IsDomainIntroduced | Op::Release | Op::Resume => {
            strings(&[random.pick(&["1", "5", "77", "x", ""]).as_bytes()])
        }
        Op::SetTarget => strings(&[b"1", random.pick(&["5", "77", "x", ""]).as_bytes()]),
        Op::Introduce => {
            random.weighted(&[(1, &b"5\0\x31\0"[..]), (1, b"5\0\x31\0\x30\0"), (1, b"x\0\x31\0\x31\0")]).into()
        }
        Op::Control => {
            random.weighted(&[(1, &b"check\0"[..]), (1, b"bogus\0"), (1, b"print\0hello\0"), (1, b"")]).into()
        }
        Op::GetFeature | Op::GetQuota => random.weighted(&[(1, &b""[..]), (1, b"nodes\0"), (1, b"5\0nodes\0")]).into(),
        _ => strings(&[&path(random)]),
    }
}

/// Makes a payload into one that a careless client might send.
fn spoil(random: &mut Random, payload: &mut Vec<u8>) {
    match random.below(5) {
        0 => drop(payload.pop()),
        1 => payload.push(b'x'),
        2 => payload.push(0),
        3 => payload.clear(),
        _ => {
            let at = random.below(payload.len() + 1);
            payload.insert(at, 0);
        }
    }
}
