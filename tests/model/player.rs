//! Plays the conformance cases against any [`Store`], domains' connections included, without a socket or a ring.

use crate::{
    adapter::{Conn, HostEvent, Store},
    case::{Answer, Case, Names, OpName, Step, Tx, parse},
    output::{Output, Reply, text},
};
use regex::{Regex, RegexBuilder};
use std::collections::{BTreeMap, VecDeque};
use xenstore_wire::{Decoder, Op, XsError, put_message};

/// The connection on which the player itself brings domains up.
const HOST: Conn = Conn::Socket(u16::MAX);

/// Every case of the conformance files.
pub(crate) fn all_cases() -> Vec<Case> {
    let files = [
        include_str!("../conformance/cases/protocol.json"),
        include_str!("../conformance/cases/field.json"),
        include_str!("../conformance/cases/guests.json"),
    ];
    files.into_iter().flat_map(parse).collect()
}

/// Plays one case on a fresh store whose host has the domains 1 to 200.
pub(crate) fn play(store: &mut dyn Store, case: &Case) -> Result<(), String> {
    let mut player = Player::new(store);
    for (number, step) in case.steps.iter().enumerate() {
        for round in 0..step.repeat.unwrap_or(1) {
            player.step(step, round).map_err(|wrong| format!("{} step {number} ({}): {wrong}", case.id, case.why))?;
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Seen {
    replies: VecDeque<Reply>,
    events: Vec<(String, String)>,
    asked: VecDeque<(u32, u32)>,
    sent: Decoder,
}

struct Player<'a> {
    store: &'a mut dyn Store,
    seen: BTreeMap<String, Seen>,
    req_id: u32,
    bound: BTreeMap<String, u32>,
    kept: BTreeMap<String, String>,
}

impl<'a> Player<'a> {
    fn new(store: &'a mut dyn Store) -> Self {
        store.open(HOST);
        for domid in 1..=200 {
            store.host_event(HostEvent::Exists(domid));
        }
        for domid in 3..=7 {
            store.request(HOST, Op::Introduce.number(), 0, 0, format!("{domid}\x001\x001\0").as_bytes());
        }
        store.take_output(HOST);
        Self { store, seen: BTreeMap::new(), req_id: 0, bound: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// `a`, `b`, `c17` are sockets, `g7` is domain 7.
    fn conn(&mut self, name: &str) -> Conn {
        let (kind, number) = name.split_at(1);
        if kind == "g" {
            return Conn::Domain(number.parse().expect("a guest has a domain id"));
        }
        let number: u16 = if number.is_empty() { 0 } else { number.parse().expect("a number follows the letter") };
        let conn = Conn::Socket(u16::from(kind.as_bytes()[0]) * 256 + number);
        if !self.seen.contains_key(name) {
            self.store.open(conn);
        }
        conn
    }

    fn step(&mut self, step: &Step, round: u32) -> Result<(), String> {
        let conn = self.conn(&step.on);
        let mut bytes = step.raw.as_deref().map(from_hex).unwrap_or_default();
        if let Some((op, payload)) = &step.send {
            let tx_id = match &step.tx {
                None => 0,
                Some(Tx::Id(id)) => *id,
                Some(Tx::Bound(name)) => *self.bound.get(name).ok_or_else(|| format!("{name} is not bound"))?,
            };
            self.req_id += 1;
            put_message(&mut bytes, number_of(op), self.req_id, tx_id, &from_text(payload, round));
        }
        let seen = self.seen.entry(step.on.clone()).or_default();
        seen.sent.push(&bytes);
        while let Ok(Some(message)) = seen.sent.next_message() {
            seen.asked.push_back((message.header.req_id, message.header.tx_id));
        }
        self.store.receive(conn, &bytes);
        self.collect();
        if step.close {
            self.store.close(conn);
            self.seen.remove(&step.on);
            return Ok(());
        }
        if self.store.is_open(conn) == step.closed {
            return Err(format!("the connection is {}", if step.closed { "still open" } else { "closed" }));
        }
        if step.wants_reply() {
            self.check_reply(step, round)?;
        }
        for (wanted, in_order) in [(&step.events, true), (&step.events_any_order, false)] {
            let Some(wanted) = wanted else { continue };
            let mut wanted: Vec<_> = wanted.iter().map(|(path, token)| (rounded(path, round), token.clone())).collect();
            let mut got = std::mem::take(&mut self.seen.entry(step.on.clone()).or_default().events);
            if !in_order {
                wanted.sort();
                got.sort();
            }
            if got != wanted {
                return Err(format!("events {got:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Takes what every connection got.
    fn collect(&mut self) {
        for name in self.seen.keys().cloned().collect::<Vec<_>>() {
            let conn = self.conn(&name);
            let output = Output::decode(&self.store.take_output(conn));
            let seen = self.seen.entry(name).or_default();
            seen.replies.extend(output.replies);
            seen.events.extend(output.events.iter().map(|(path, token)| (text(path), text(token))));
        }
    }

    fn check_reply(&mut self, step: &Step, round: u32) -> Result<(), String> {
        let seen = self.seen.entry(step.on.clone()).or_default();
        let reply = seen.replies.pop_front().ok_or("no reply")?;
        let asked = seen.asked.pop_front();
        if asked != Some((reply.req_id, reply.tx_id)) {
            return Err(format!("{reply:?} answers {asked:?}"));
        }
        if step.unspecified.is_some() {
            return Ok(());
        }
        if let Some(names) = &step.error {
            let names = match names {
                Names::One(name) => std::slice::from_ref(name),
                Names::Any(names) => names,
            };
            let right = reply.error().is_some_and(|error| names.iter().any(|name| name == error.name()));
            return if right { Ok(()) } else { Err(format!("{reply:?} instead of {names:?}")) };
        }
        if reply.op == Op::Error.number() {
            return Err(format!("{reply:?}"));
        }
        let wanted = match &step.reply {
            None => None,
            Some(Answer::Ok(_)) => step.send.as_ref().map(|(op, _)| (number_of(op), b"OK\0".to_vec())),
            Some(Answer::Exactly(op, payload)) => {
                Some((number_of(&OpName::Name(op.clone())), from_text(payload, round)))
            }
        };
        if let Some((op, payload)) = wanted
            && (reply.op, &reply.payload) != (op, &payload)
        {
            return Err(format!("{reply:?} instead of {op} {:?}", text(&payload)));
        }
        let payload = text(&reply.payload);
        if let Some(wanted) = &step.reply_sorted {
            let mut got: Vec<_> = payload.split_terminator('\0').collect();
            let mut wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
            got.sort_unstable();
            wanted.sort_unstable();
            if got != wanted {
                return Err(format!("{got:?} instead of {wanted:?}"));
            }
        }
        if let Some(name) = &step.bind {
            let id = payload.trim_end_matches('\0').parse().map_err(|_| format!("{payload:?} is no id"))?;
            self.bound.insert(name.clone(), id);
        }
        self.check_patterns(step, &payload)
    }

    fn check_patterns(&mut self, step: &Step, payload: &str) -> Result<(), String> {
        if let Some(pattern) = &step.reply_matches
            && !regex(pattern).is_match(payload)
        {
            return Err(format!("{payload:?} does not match {pattern}"));
        }
        let group = |pattern: &str| {
            let groups = regex(pattern).captures(payload);
            groups.map(|groups| groups[1].to_owned()).ok_or_else(|| format!("{payload:?} does not match {pattern}"))
        };
        if let Some((name, pattern)) = &step.keep {
            self.kept.insert(name.clone(), group(pattern)?);
        }
        for (compared, same) in [(&step.same, true), (&step.differs, false)] {
            if let Some((name, pattern)) = compared
                && (group(pattern)? == self.kept[name]) != same
            {
                return Err(format!("{payload:?} after {:?}", self.kept[name]));
            }
        }
        Ok(())
    }
}

fn number_of(op: &OpName) -> u32 {
    match op {
        OpName::Number(number) => *number,
        OpName::Name(name) => Op::ALL.iter().find(|op| op.name() == name).expect("a known type").number(),
    }
}

fn rounded(text: &str, round: u32) -> String {
    text.replace("{i}", &round.to_string())
}

fn from_text(text: &str, round: u32) -> Vec<u8> {
    rounded(text, round).chars().map(|char| u8::try_from(u32::from(char)).expect("characters are bytes")).collect()
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("raw is hex")).collect()
}

fn regex(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).dot_matches_new_line(true).build().expect("a case's pattern is one")
}

impl Reply {
    /// The error it carries.
    pub(crate) fn error(&self) -> Option<XsError> {
        let name = self.payload.strip_suffix(b"\0")?;
        (self.op == Op::Error.number()).then(|| XsError::from_name(name)).flatten()
    }
}
