//! Plays a case against a daemon, over its socket and its guests' rings.

use crate::case::{Answer, Case, Names, OpName, Step, Tx};
use regex::{Regex, RegexBuilder};
use std::collections::{HashMap, VecDeque};
use xenstore_wire::{HEADER_SIZE, Header, Op, put_message};
use xenstored_tests::{Client, ClientError, Event, Reply};

/// Characters are bytes.
fn to_bytes(text: &str, round: Option<u32>) -> Vec<u8> {
    let text = with_round(text, round);
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a case's characters are bytes")).collect()
}

/// Bytes are characters.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn with_round(text: &str, round: Option<u32>) -> String {
    round.map_or_else(|| text.into(), |round| text.replace("{i}", &round.to_string()))
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("raw bytes are hex");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn op_number(op: &OpName) -> u32 {
    match op {
        OpName::Number(number) => *number,
        OpName::Name(name) => {
            Op::ALL.iter().find(|op| op.name() == name).unwrap_or_else(|| panic!("no message type {name}")).number()
        }
    }
}

fn regex(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).dot_matches_new_line(true).build().unwrap_or_else(|e| panic!("{pattern}: {e}"))
}

/// A connection, and the ids of the requests sent on it that are not answered yet.
struct Connection {
    client: Client,
    unanswered: VecDeque<(u32, u32)>,
    /// Sent bytes that are no whole request yet.
    partial: Vec<u8>,
}

impl Connection {
    /// Sends bytes and notes the ids of every request that they complete.
    fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.partial.extend_from_slice(bytes);
        while let Some(head) = self.partial.first_chunk::<HEADER_SIZE>() {
            let header = Header::decode(head);
            let size = HEADER_SIZE.saturating_add(header.len as usize);
            if self.partial.len() < size {
                break;
            }
            self.unanswered.push_back((header.req_id, header.tx_id));
            self.partial.drain(..size);
        }
        self.client.send_raw(bytes)
    }
}

/// The state of one case being played.
pub(crate) struct Player<'a> {
    connect: &'a dyn Fn(&str) -> Client,
    connections: HashMap<String, Connection>,
    next_req_id: u32,
    bound: HashMap<String, u32>,
    kept: HashMap<String, String>,
}

/// Plays a whole case, with `connect` making the connection of a name; the error says which step went wrong and how.
pub(crate) fn play(case: &Case, connect: &dyn Fn(&str) -> Client) -> Result<(), String> {
    let mut player =
        Player { connect, connections: HashMap::new(), next_req_id: 1, bound: HashMap::new(), kept: HashMap::new() };
    for (number, step) in case.steps.iter().enumerate() {
        let rounds: Vec<Option<u32>> = step.repeat.map_or_else(|| vec![None], |count| (0..count).map(Some).collect());
        for round in rounds {
            player.step(step, round).map_err(|wrong| format!("step {number} ({}): {wrong}", case.why))?;
        }
    }
    Ok(())
}

impl Player<'_> {
    fn connection(&mut self, name: &str) -> &mut Connection {
        let connect = self.connect;
        self.connections.entry(name.into()).or_insert_with(|| Connection {
            client: connect(name),
            unanswered: VecDeque::new(),
            partial: Vec::new(),
        })
    }

    fn step(&mut self, step: &Step, round: Option<u32>) -> Result<(), String> {
        let mut bytes = step.raw.as_deref().map(from_hex).unwrap_or_default();
        if let Some((op, text)) = &step.send {
            let tx_id = match &step.tx {
                None => 0,
                Some(Tx::Id(id)) => *id,
                Some(Tx::Bound(name)) => self.bound.get(name).copied().unwrap_or(0),
            };
            put_message(&mut bytes, op_number(op), self.next_req_id, tx_id, &to_bytes(text, round));
            self.next_req_id += 1;
        }
        let connection = self.connection(&step.on);
        match connection.send(&bytes) {
            // A daemon may close before the last byte is out; whether it had to is seen below.
            Err(ClientError::Closed) if step.closed => {}
            other => other.map_err(|e| e.to_string())?,
        }
        if step.close {
            self.connections.remove(&step.on);
            return Ok(());
        }
        if step.closed {
            return match connection.client.reply() {
                Err(ClientError::Closed) => Ok(()),
                Err(error) => Err(format!("the connection is not closed: {error}")),
                Ok(reply) => Err(format!("{} instead of a closed connection", shown(&reply))),
            };
        }
        if step.wants_reply() {
            let reply = connection.client.reply().map_err(|e| e.to_string())?;
            let ids = (reply.header.req_id, reply.header.tx_id);
            let wanted = connection.unanswered.pop_front();
            if wanted != Some(ids) {
                return Err(format!("a reply with ids {ids:?} to a request with {wanted:?}"));
            }
            self.check_reply(step, round, &reply)?;
            self.let_events_out();
        }
        for (wanted, in_order) in [(&step.events, true), (&step.events_any_order, false)] {
            if let Some(wanted) = wanted {
                let mut wanted: Vec<Event> =
                    wanted.iter().map(|(path, token)| Event::new(&with_round(path, round), token)).collect();
                let mut got = self.connection(&step.on).client.settled_events();
                if !in_order {
                    wanted.sort();
                    got.sort();
                }
                if got != wanted {
                    return Err(format!("events {got:?} instead of {wanted:?}"));
                }
            }
        }
        Ok(())
    }

    /// Waits until every quiet connection has got the events that are due: a daemon may drop an event while an equal
    /// one still waits to be sent, and a case counts them all.
    fn let_events_out(&mut self) {
        for connection in self.connections.values_mut() {
            if connection.unanswered.is_empty() && connection.partial.is_empty() {
                // A connection that the daemon has closed fails where a step uses it.
                let _ = connection.client.fence();
            }
        }
    }

    fn check_reply(&mut self, step: &Step, round: Option<u32>, reply: &Reply) -> Result<(), String> {
        if step.unspecified.is_some() {
            return Ok(());
        }
        if let Some(names) = &step.error {
            let names = match names {
                Names::One(name) => std::slice::from_ref(name),
                Names::Any(names) => names,
            };
            let right = reply.error().is_some_and(|name| names.contains(&name));
            return if right { Ok(()) } else { Err(format!("{} instead of ERROR {names:?}", shown(reply))) };
        }
        if reply.error().is_some() {
            return Err(shown(reply));
        }
        let own_op = step.send.as_ref().map(|(op, _)| op_number(op));
        let wanted = match &step.reply {
            None => None,
            Some(Answer::Ok(ok)) => {
                assert_eq!(ok, "OK", "the only short form of a reply");
                Some((own_op.expect("a short form follows a request"), b"OK\0".to_vec()))
            }
            Some(Answer::Exactly(op, text)) => Some((op_number(&OpName::Name(op.clone())), to_bytes(text, round))),
        };
        if let Some((op, payload)) = wanted
            && (reply.header.op != op || reply.payload != payload)
        {
            return Err(format!("{} instead of type {op} {:?}", shown(reply), to_text(&payload)));
        }
        if let Some(wanted) = &step.reply_sorted {
            let mut got: Vec<String> =
                reply.payload.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(to_text).collect();
            let mut wanted = wanted.clone();
            got.sort();
            wanted.sort();
            if got != wanted {
                return Err(format!("{got:?} instead of {wanted:?}"));
            }
        }
        self.check_patterns(step, &to_text(&reply.payload))?;
        if let Some(name) = &step.bind {
            let id = to_text(&reply.payload).trim_end_matches('\0').parse();
            self.bound.insert(name.clone(), id.map_err(|_| format!("{} is no transaction id", shown(reply)))?);
        }
        Ok(())
    }

    fn check_patterns(&mut self, step: &Step, payload: &str) -> Result<(), String> {
        if let Some(pattern) = &step.reply_matches
            && !regex(pattern).is_match(payload)
        {
            return Err(format!("{payload:?} does not match {pattern}"));
        }
        let part = |pattern: &str| {
            let groups =
                regex(pattern).captures(payload).ok_or_else(|| format!("{payload:?} does not match {pattern}"))?;
            Ok::<_, String>(groups[1].to_owned())
        };
        if let Some((name, pattern)) = &step.keep {
            self.kept.insert(name.clone(), part(pattern)?);
        }
        for (compared, must_be_same) in [(&step.same, true), (&step.differs, false)] {
            if let Some((name, pattern)) = compared {
                let got = part(pattern)?;
                if (got == self.kept[name]) != must_be_same {
                    let relation = if must_be_same { "equal" } else { "differ from" };
                    return Err(format!("{got} must {relation} the earlier {}", self.kept[name]));
                }
            }
        }
        Ok(())
    }
}

fn shown(reply: &Reply) -> String {
    let name = Op::from_number(reply.header.op).map_or("unknown type", Op::name);
    let text: String = to_text(&reply.payload).chars().take(160).collect();
    format!("{name} {text:?}")
}
