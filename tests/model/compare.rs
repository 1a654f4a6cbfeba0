//! Two stores side by side: every reply, every event and every count must be the same after every step.

use crate::{
    adapter::{Conn, Store},
    output::{Output, Reply, text},
    steps::{DOMAINS, Step, Within},
};
use std::collections::BTreeMap;
use xenstore_wire::{Op, XsError, payload};

/// The client that looks at the tree; it never changes anything.
const LOOKER: Conn = Conn::Socket(99);

/// Everyone who may be connected.
const CONNS: [Conn; 7] =
    [Conn::Socket(0), Conn::Socket(1), LOOKER, Conn::Domain(1), Conn::Domain(2), Conn::Domain(3), Conn::Domain(4)];

/// Path, value and permissions of every node, in the order of a walk.
type Listing = Vec<(String, String, String)>;

/// The stores, and what the comparison has to remember.
pub(crate) struct Pair<'a> {
    wanted: &'a mut dyn Store,
    got: &'a mut dyn Store,
    req_id: u32,
    /// Open transactions' ids by connection; both stores give the same.
    open: BTreeMap<Conn, Vec<u32>>,
    /// By path: the generations of the last DIRECTORY_PART outside of transactions, and the list.
    parts: BTreeMap<String, (String, String, Vec<u8>)>,
    /// How often each type of request came to what, and how many events there were.
    pub(crate) tally: Tally,
}

/// Counts by request type and error name, or `OK`.
pub(crate) type Tally = BTreeMap<(&'static str, &'static str), u64>;

impl<'a> Pair<'a> {
    /// Starts with two fresh stores.
    pub(crate) fn new(wanted: &'a mut dyn Store, got: &'a mut dyn Store) -> Self {
        for store in [&mut *wanted, &mut *got] {
            for conn in [Conn::Socket(0), Conn::Socket(1), LOOKER] {
                store.open(conn);
            }
        }
        Self { wanted, got, req_id: 0, open: BTreeMap::new(), parts: BTreeMap::new(), tally: Tally::new() }
    }

    /// Does one step in both and compares all that can be seen.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        self.open.retain(|&conn, _| self.wanted.is_open(conn));
        match step {
            Step::Request { within: Within::Open(which), op: Op::TransactionEnd, payload, .. }
                if self.open.values().any(|open| !open.is_empty()) =>
            {
                let of = |(conn, ids): (&Conn, &Vec<u32>)| ids.iter().map(|id| (*conn, *id)).collect::<Vec<_>>();
                let open: Vec<(Conn, u32)> = self.open.iter().flat_map(of).collect();
                let (conn, tx_id) = open[usize::from(*which) % open.len()];
                self.request(conn, tx_id, Op::TransactionEnd, payload)
                    .map_err(|wrong| format!("for {conn:?}: {wrong}"))?;
            }
            Step::Request { conn, within, op, payload } if self.wanted.is_open(*conn) => {
                self.request(*conn, self.id_of(*conn, *within), *op, payload)?;
            }
            Step::Many { conn, within, op, numbers } if self.wanted.is_open(*conn) => {
                let tx_id = self.id_of(*conn, *within);
                for number in numbers.clone() {
                    self.request(*conn, tx_id, *op, &format!("/w/n{number}|"))?;
                    self.compare_counts()?;
                }
            }
            Step::Request { .. } | Step::Many { .. } => {}
            Step::Reconnect(number) => {
                let conn = Conn::Socket(*number);
                for store in [&mut *self.wanted, &mut *self.got] {
                    store.close(conn);
                    store.open(conn);
                }
                self.open.remove(&conn);
                self.compare_outputs()?;
            }
            Step::Restart => {
                self.wanted.restart();
                self.got.restart();
                self.compare_outputs()?;
            }
            Step::Host(event) => {
                self.wanted.host_event(*event);
                self.got.host_event(*event);
                self.compare_outputs()?;
            }
        }
        self.compare_counts()
    }

    fn id_of(&self, conn: Conn, within: Within) -> u32 {
        let open = self.open.get(&conn).map_or(&[][..], Vec::as_slice);
        match within {
            Within::Open(which) if !open.is_empty() => open[usize::from(which) % open.len()],
            Within::Nothing | Within::Open(_) => 0,
            Within::Unknown => 4242,
        }
    }

    fn request(&mut self, conn: Conn, tx_id: u32, op: Op, payload: &str) -> Result<(), String> {
        let payload: Vec<u8> = payload.bytes().map(|byte| if byte == b'|' { 0 } else { byte }).collect();
        let payload = payload.as_slice();
        let aborts = op == Op::TransactionEnd && payload == b"F\0";
        let before = if aborts { Some(self.listings()?) } else { None };
        self.req_id += 1;
        for store in [&mut *self.wanted, &mut *self.got] {
            store.request(conn, op.number(), self.req_id, tx_id, payload);
        }
        let replies = self.compare_outputs()?;
        let [(from, wanted, got)] = replies.as_slice() else { return Err(format!("replies {replies:?}")) };
        if *from != conn {
            return Err(format!("{from:?} got the reply"));
        }
        self.compare_replies(tx_id, op, payload, wanted, got)?;
        *self.tally.entry((op.name(), wanted.error().map_or("OK", XsError::name))).or_default() += 1;
        self.follow_transactions(conn, tx_id, op, payload, wanted);
        if before.is_some() && before != Some(self.listings()?) {
            return Err("an aborted transaction left something behind".to_owned());
        }
        Ok(())
    }

    /// Takes what both stores sent to everyone; events must be the same, and replies as many.
    fn compare_outputs(&mut self) -> Result<Vec<(Conn, Reply, Reply)>, String> {
        let mut replies = Vec::new();
        for conn in CONNS {
            let wanted = Output::decode(&self.wanted.take_output(conn));
            let got = Output::decode(&self.got.take_output(conn));
            if wanted.events != got.events {
                let show = |events: &[(Vec<u8>, Vec<u8>)]| -> Vec<_> {
                    events.iter().map(|(path, token)| format!("{} {}", text(path), text(token))).collect()
                };
                return Err(format!("{conn:?}: events {:?} instead of {:?}", show(&got.events), show(&wanted.events)));
            }
            *self.tally.entry((Op::WatchEvent.name(), "OK")).or_default() += wanted.events.len() as u64;
            if got.event_first {
                return Err(format!("{conn:?}: an event before the reply"));
            }
            if wanted.replies.len() != got.replies.len() {
                return Err(format!("{conn:?}: {:?} instead of {:?}", got.replies, wanted.replies));
            }
            if self.wanted.is_open(conn) != self.got.is_open(conn) {
                return Err(format!("{conn:?} is open: {}", self.got.is_open(conn)));
            }
            replies.extend(wanted.replies.into_iter().zip(got.replies).map(|(wanted, got)| (conn, wanted, got)));
        }
        Ok(replies)
    }

    fn compare_replies(
        &mut self,
        tx_id: u32,
        op: Op,
        request: &[u8],
        wanted: &Reply,
        got: &Reply,
    ) -> Result<(), String> {
        let differs = || Err(format!("{got:?} instead of {wanted:?}"));
        if wanted.op != got.op
            || wanted.error() != got.error()
            || (wanted.req_id, wanted.tx_id) != (got.req_id, got.tx_id)
        {
            return differs();
        }
        if wanted.error().is_some() {
            return Ok(());
        }
        match op {
            Op::DirectoryPart => self.compare_parts(tx_id, request, &wanted.payload, &got.payload),
            // The names may come in any order.
            Op::GetQuota if request.is_empty() => {
                let names = |reply: &Reply| -> Vec<String> {
                    let list = text(&reply.payload);
                    let mut names: Vec<_> = list.trim_end_matches('\0').split(' ').map(str::to_owned).collect();
                    names.sort();
                    names
                };
                if names(wanted) == names(got) { Ok(()) } else { differs() }
            }
            // A text for people.
            Op::Control if wanted.payload != xenstore_wire::OK => Ok(()),
            _ if wanted.payload == got.payload => Ok(()),
            _ => differs(),
        }
    }

    /// Generations are each store's own. What counts: with nothing changed at the node it stays, and with another
    /// list it is another.
    fn compare_parts(&mut self, tx_id: u32, request: &[u8], wanted: &[u8], got: &[u8]) -> Result<(), String> {
        let split = |reply: &[u8]| payload::string_and_rest(reply).map(|(number, list)| (text(number), list.to_vec()));
        let (Ok((wanted_generation, wanted)), Ok((generation, list))) = (split(wanted), split(got)) else {
            return Err(format!("{:?} has no generation", text(got)));
        };
        if wanted != list {
            return Err(format!("a part {:?} instead of {:?}", text(&list), text(&wanted)));
        }
        if tx_id != 0 {
            return Ok(());
        }
        let entry = (wanted_generation, generation, list);
        let before = self.parts.insert(text(request), entry.clone());
        match before {
            Some(before) if before.2 != entry.2 && before.1 == entry.1 => {
                Err(format!("the list became another, the generation stays {}", entry.1))
            }
            Some(before) if before.0 == entry.0 && before.1 != entry.1 => {
                Err(format!("the list was left alone, the generation went from {} to {}", before.1, entry.1))
            }
            _ => Ok(()),
        }
    }

    fn follow_transactions(&mut self, conn: Conn, tx_id: u32, op: Op, payload: &[u8], reply: &Reply) {
        let failed = reply.error().is_some();
        match op {
            Op::TransactionStart if !failed => {
                let id = text(&reply.payload).trim_end_matches('\0').parse().expect("the model's ids are numbers");
                self.open.entry(conn).or_default().push(id);
            }
            Op::TransactionEnd if matches!(payload, b"T\0" | b"F\0") => {
                self.open.entry(conn).or_default().retain(|&id| id != tx_id);
            }
            Op::ResetWatches if !failed => {
                self.open.remove(&conn);
            }
            _ => {}
        }
        if op == Op::Introduce && !failed {
            let domid = text(payload).split('\0').next().and_then(|domid| domid.parse().ok());
            self.open.remove(&Conn::Domain(domid.expect("a good INTRODUCE names a domain")));
        }
    }

    fn compare_counts(&mut self) -> Result<(), String> {
        for domid in [0].into_iter().chain(DOMAINS) {
            let (wanted, got) = (self.wanted.quota_counts(domid), self.got.quota_counts(domid));
            if wanted != got {
                return Err(format!("domain {domid} is said to use {got:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Walks both trees as `xenstore-ls` does.
    fn listings(&mut self) -> Result<[Listing; 2], String> {
        Ok([walk(self.wanted)?, walk(self.got)?])
    }

    /// Both trees must be the same, hold as many nodes of each domain as is said, and pass the store's own check.
    pub(crate) fn compare_trees(&mut self) -> Result<(), String> {
        self.request(LOOKER, 0, Op::Control, "check|")?;
        self.compare_counts()?;
        let [wanted, got] = self.listings()?;
        if wanted != got {
            let extra: Vec<_> = got.iter().filter(|node| !wanted.contains(node)).collect();
            let missing: Vec<_> = wanted.iter().filter(|node| !got.contains(node)).collect();
            return Err(format!("the tree has {extra:?} and lacks {missing:?}"));
        }
        for domid in DOMAINS {
            let owned = |(_, _, list): &&(String, String, String)| {
                list.split('\0').next().is_some_and(|owner| owner[1..] == domid.to_string())
            };
            let counted = got.iter().filter(owned).count() as u64;
            let said = self.got.quota_counts(domid).nodes;
            if counted != said {
                return Err(format!("domain {domid} owns {counted} nodes and is said to own {said}"));
            }
        }
        Ok(())
    }
}

/// Lists a store's tree through requests, the special nodes first.
fn walk(store: &mut dyn Store) -> Result<Listing, String> {
    let mut ask = |op: Op, path: &str| -> Result<String, String> {
        store.request(LOOKER, op.number(), 0, 0, format!("{path}\0").as_bytes());
        let output = Output::decode(&store.take_output(LOOKER));
        match output.replies.as_slice() {
            [reply] if reply.op == op.number() => Ok(text(&reply.payload)),
            replies => Err(format!("{} {path}: {replies:?}", op.name())),
        }
    };
    let mut listing = Vec::new();
    for special in ["@introduceDomain", "@releaseDomain"] {
        listing.push((special.to_owned(), String::new(), ask(Op::GetPerms, special)?));
    }
    let mut waiting = vec!["/".to_owned()];
    while let Some(path) = waiting.pop() {
        let names = ask(Op::Directory, &path)?;
        let inside = if path == "/" { "" } else { &path };
        waiting.extend(names.split_terminator('\0').map(|name| format!("{inside}/{name}")));
        let value = ask(Op::Read, &path)?;
        let permissions = ask(Op::GetPerms, &path)?;
        listing.push((path, value, permissions));
    }
    Ok(listing)
}
