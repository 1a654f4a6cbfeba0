//! What a case file holds.
//!
//! A file is a list of cases; a case is a scripted conversation, each step one object:
//!
//! | key | meaning |
//! | --- | --- |
//! | `on` | connection name, opened at first use; `a`, `b`, … are socket clients, `g7` is domain 7 |
//! | `send` | `["OP", "payload"]`; OP is a name or a number, characters of the payload are bytes (Latin-1) |
//! | `tx` | name of the transaction the request belongs to (bound with `bind`), or a raw number |
//! | `bind` | name under which the decimal reply payload is kept |
//! | `reply` | `["OP", "payload"]`, or `"OK"` for the request's own type and a plain OK |
//! | `error` | the name of the error that must come back, or a list of names any of which is right |
//! | `reply_sorted` | the NUL-separated strings of the payload, in any order |
//! | `reply_matches` | regular expression over the payload |
//! | `keep`, `same`, `differs` | `[name, regex]`: keep the regex's first group, or compare it with what was kept |
//! | `events` | `[path, token]` list: exactly these events arrive on the connection, in this order |
//! | `events_any_order` | the same in any order |
//! | `raw` | hex bytes to send as they are |
//! | `closed` | the daemon must close this connection |
//! | `close` | the client closes this connection |
//! | `repeat` | number of rounds; `{i}` in payloads is the round, from 0 |
//! | `unspecified` | daemons are known to differ: any answer but a hang or a lost connection is right |

use serde::Deserialize;

/// One scripted conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) why: String,
    #[serde(rename = "source")]
    _source: String,
    pub(crate) steps: Vec<Step>,
}

/// One step of a conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) on: String,
    pub(crate) send: Option<(OpName, String)>,
    pub(crate) tx: Option<Tx>,
    pub(crate) bind: Option<String>,
    pub(crate) reply: Option<Answer>,
    pub(crate) error: Option<Names>,
    pub(crate) reply_sorted: Option<Vec<String>>,
    pub(crate) reply_matches: Option<String>,
    pub(crate) keep: Option<(String, String)>,
    pub(crate) same: Option<(String, String)>,
    pub(crate) differs: Option<(String, String)>,
    pub(crate) events: Option<Vec<(String, String)>>,
    pub(crate) events_any_order: Option<Vec<(String, String)>>,
    pub(crate) raw: Option<String>,
    #[serde(default)]
    pub(crate) closed: bool,
    #[serde(default)]
    pub(crate) close: bool,
    pub(crate) repeat: Option<u32>,
    pub(crate) unspecified: Option<String>,
}

/// A message type by name or number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OpName {
    Name(String),
    Number(u32),
}

/// The transaction of a request.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Tx {
    Id(u32),
    Bound(String),
}

/// The reply that must come.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// A plain OK of the request's own type.
    Ok(String),
    /// This type and payload.
    Exactly(String, String),
}

/// One error name or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    One(String),
    Any(Vec<String>),
}

impl Step {
    /// Whether a reply belongs to this step.
    pub(crate) fn wants_reply(&self) -> bool {
        self.reply.is_some()
            || self.error.is_some()
            || self.reply_sorted.is_some()
            || self.reply_matches.is_some()
            || self.bind.is_some()
            || self.keep.is_some()
            || self.same.is_some()
            || self.differs.is_some()
            || self.unspecified.is_some()
    }
}

impl Case {
    /// Whether a guest's ring is needed.
    pub(crate) fn needs_guest(&self) -> bool {
        self.steps.iter().any(|step| {
            step.on
                .strip_prefix('g')
                .is_some_and(|domid| !domid.is_empty() && domid.bytes().all(|b| b.is_ascii_digit()))
        })
    }
}

/// The cases of a file.
pub(crate) fn parse(text: &str) -> Vec<Case> {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("case file: {e}"))
}
