//! Plays a conversation against both daemons at once and compares.

use crate::footprint::{Footprint, Shadow, changes};
use crate::rules::{self, CONFLICTS, EQUAL_EVENTS, OWN_ERRORS, Rule, Verdict};
use crate::stream::{CONNECTIONS, Request, Step, Tx};
use std::collections::BTreeMap;
use xenstore_wire::{Header, Op, PAYLOAD_MAX, XsError, payload, put_message};
use xenstored_tests::{Backend, Client, Daemon, Event, Reply};

/// Ours first, C second.
type Both<T> = [T; 2];

/// A transaction that is open on both daemons.
struct Transaction {
    ids: Both<u32>,
    /// What it looked at or changed so far.
    touched: Footprint,
    /// What others changed since it began.
    outside: Footprint,
    /// What it changed.
    changed: Footprint,
}

impl Transaction {
    /// Whether others changed something that it deals with: then the two daemons' rules differ.
    fn contested(&self) -> bool {
        self.touched.meets(&self.outside)
    }
}

/// A node as a listing finds it: value, permissions.
type Listing = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

/// Both daemons, in step with each other.
pub(crate) struct Pair {
    daemons: Both<Daemon>,
    clients: Both<Vec<Client>>,
    /// Connections that only look at the store.
    observers: Both<Client>,
    transactions: Vec<Vec<Transaction>>,
    /// Of each connection: how many watches have a token.
    tokens: Vec<BTreeMap<Vec<u8>, usize>>,
    shadow: Shadow,
    /// Differences that a rule allows, and how often each was met.
    pub(crate) met: BTreeMap<&'static str, usize>,
}

/// What one step led to.
#[derive(Default)]
struct Course {
    /// A rule let the stores part.
    split: bool,
    /// Events depend on a rule, so they are not compared.
    loose_events: bool,
}

impl Pair {
    /// Two fresh daemons with the same few nodes.
    pub(crate) fn start() -> Self {
        let daemons = [Backend::Ours, Backend::C].map(Daemon::start);
        let observers = daemons.each_ref().map(Daemon::connect);
        let mut pair = Self {
            daemons,
            clients: [Vec::new(), Vec::new()],
            observers,
            transactions: Vec::new(),
            tokens: Vec::new(),
            shadow: Shadow::default(),
            met: BTreeMap::new(),
        };
        pair.reset();
        pair
    }

    /// Brings both stores and all connections to the same beginning.
    fn reset(&mut self) {
        let old = std::mem::replace(
            &mut self.clients,
            self.daemons.each_ref().map(|daemon| (0..CONNECTIONS).map(|_| daemon.connect()).collect()),
        );
        drop(old);
        self.transactions = (0..CONNECTIONS).map(|_| Vec::new()).collect();
        self.tokens = vec![BTreeMap::new(); CONNECTIONS];
        for client in &mut self.observers {
            // C may have taken it in by a number that is none.
            let _ = client.request(Op::Release, b"5\0");
            let names = client.request(Op::Directory, b"/\0").expect("the root is listed");
            for name in payload::strings(&names) {
                let path = [b"/", name, b"\0"].concat();
                client.request(Op::Rm, &path).expect("a node is removed");
            }
            for path in ["/", "@introduceDomain", "@releaseDomain"] {
                client.request(Op::SetPerms, format!("{path}\0n0\0").as_bytes()).expect("permissions are set");
            }
            for path in ["/", "/t/a/a", "/t/b", "/t/c", "/local/domain/0", "/tool/xenstored"] {
                client.write(path, b"");
            }
        }
        let listing = self.list(0).expect("the store is listed");
        self.shadow.set(listing.into_keys());
    }

    /// The names of a node's children, however many.
    fn children(&mut self, side: usize, path: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let client = &mut self.observers[side];
        let named = [path, b"\0"].concat();
        match client.request(Op::Directory, &named) {
            Ok(names) => return Ok(payload::strings(&names).map(<[u8]>::to_vec).collect()),
            Err(error) if error == "E2BIG" => {}
            Err(error) => return Err(error),
        }
        let mut list = Vec::new();
        // An empty name marks the end.
        while !list.ends_with(b"\0\0") {
            let request = [&named, list.len().to_string().as_bytes(), b"\0"].concat();
            let slice = client.request(Op::DirectoryPart, &request)?;
            let (_, names) = payload::string_and_rest(&slice).map_err(|e| e.to_string())?;
            if names.is_empty() {
                return Err(format!("a slice of {} without names", path.escape_ascii()));
            }
            list.extend_from_slice(names);
        }
        Ok(payload::strings(&list).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Every node of one daemon's store.
    fn list(&mut self, side: usize) -> Result<Listing, String> {
        let mut listing = Listing::new();
        let mut pending = vec![b"/".to_vec()];
        while let Some(path) = pending.pop() {
            let named = [path.as_slice(), b"\0"].concat();
            let value = self.observers[side].request(Op::Read, &named)?;
            let permissions = self.observers[side].request(Op::GetPerms, &named)?;
            for name in self.children(side, &path)? {
                let separator: &[u8] = if path == b"/" { b"" } else { b"/" };
                pending.push([path.as_slice(), separator, &name].concat());
            }
            listing.insert(path, (value, permissions));
        }
        Ok(listing)
    }

    /// Plays one step; the error says how the daemons differ.
    pub(crate) fn play(&mut self, step: &Step) -> Result<(), String> {
        let mut course = Course::default();
        match step {
            Step::Requests { on, requests } => self.requests(*on, requests, &mut course)?,
            Step::TooLong { on } => {
                let len = u32::try_from(PAYLOAD_MAX + 1).expect("a length");
                let header = Header { op: Op::Read.number(), req_id: 1, tx_id: 0, len };
                for clients in &mut self.clients {
                    clients[*on].send_raw(&header.encode()).map_err(|e| e.to_string())?;
                    clients[*on].closed().map_err(|e| format!("after an oversized header: {e}"))?;
                }
                self.reconnect(*on);
            }
            Step::Reconnect { on } => self.reconnect(*on),
        }
        if course.split {
            self.reset();
            return Ok(());
        }
        let pipelined = matches!(step, Step::Requests { requests, .. } if requests.len() > 1);
        self.compare_events(pipelined, course.loose_events)
    }

    fn reconnect(&mut self, on: usize) {
        for (daemon, clients) in self.daemons.iter().zip(&mut self.clients) {
            clients[on] = daemon.connect();
        }
        self.transactions[on].clear();
        self.tokens[on].clear();
    }

    /// The ids that a request carries to each daemon.
    fn ids(&self, on: usize, tx: Tx) -> Both<u32> {
        let open = |on: usize, at: usize| {
            let transactions = &self.transactions[on % CONNECTIONS];
            if transactions.is_empty() { [0, 0] } else { transactions[at % transactions.len()].ids }
        };
        match tx {
            Tx::Outside => [0, 0],
            Tx::Open(at) => open(on, at),
            Tx::Foreign(at) => match open(on + 1, at) {
                [0, 0] => [0, 0],
                // The same number may be open here too; a number that is open nowhere stands for it then.
                ids if self.transactions[on].iter().any(|own| own.ids[0] == ids[0] || own.ids[1] == ids[1]) => {
                    [9999, 9999]
                }
                ids => ids,
            },
            Tx::Invented => [4_000_000_000, 4_000_000_000],
        }
    }

    fn requests(&mut self, on: usize, requests: &[Request], course: &mut Course) -> Result<(), String> {
        let ids: Vec<Both<u32>> = requests.iter().map(|request| self.ids(on, request.tx)).collect();
        for (side, clients) in self.clients.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            for (number, (request, ids)) in (1000u32..).zip(requests.iter().zip(&ids)) {
                if side == 1 && !rules::c_survives(request.op, &request.payload) {
                    continue;
                }
                put_message(&mut bytes, request.op, number, ids[side], &request.payload);
            }
            clients[on].send_raw(&bytes).map_err(|e| format!("sending: {e}"))?;
        }
        for (number, (request, ids)) in (1000u32..).zip(requests.iter().zip(&ids)) {
            let mut replies = Vec::new();
            for side in [0, 1] {
                let reply =
                    self.clients[side][on].reply().map_err(|e| format!("{request:?}: {}: {e}", side_name(side)))?;
                if (reply.header.req_id, reply.header.tx_id) != (number, ids[side]) {
                    return Err(format!("{request:?}: {} answers with other ids: {:?}", side_name(side), reply.header));
                }
                if reply.error().is_some_and(|name| XsError::from_name(name.as_bytes()).is_none()) {
                    return Err(format!("{request:?}: {} sends an unknown error: {reply:?}", side_name(side)));
                }
                replies.push(reply);
                if !rules::c_survives(request.op, &request.payload) {
                    break;
                }
            }
            if replies.len() == 1 {
                self.meet(OWN_ERRORS);
                match replies[0].error().as_deref() {
                    Some("EINVAL" | "ENOENT") => continue,
                    _ => return Err(format!("{request:?}\n  ours, alone: {}", shown(&replies[0]))),
                }
            }
            self.answered(on, request, *ids, &replies[0], &replies[1], course)?;
        }
        Ok(())
    }

    /// Compares the two replies to a request and follows what it did.
    fn answered(
        &mut self,
        on: usize,
        request: &Request,
        ids: Both<u32>,
        ours: &Reply,
        theirs: &Reply,
        course: &mut Course,
    ) -> Result<(), String> {
        let different = || format!("{request:?}\n  ours: {}\n  C:    {}", shown(ours), shown(theirs));
        let op = Op::from_number(request.op);
        let at = self.transactions[on].iter().position(|open| ids[0] != 0 && open.ids == ids);
        if let Some(op) = op
            && let Some(at) = at
        {
            let footprint = self.shadow.footprint(op, &request.payload);
            let transaction = &mut self.transactions[on][at];
            if changes(op) {
                transaction.changed.add(footprint.clone());
            }
            transaction.touched.add(footprint);
        }
        let contested = at.is_some_and(|at| self.transactions[on][at].contested());
        match rules::judge(request.op, &request.payload, ours, theirs) {
            Verdict::Same => {}
            // The stores have parted already: no more can be asked of this step.
            _ if course.split => {}
            Verdict::Split(rule) => {
                self.meet(rule);
                course.split = true;
            }
            _ if contested => self.meet(CONFLICTS),
            Verdict::Allowed(rule) => self.meet(rule),
            Verdict::Wrong => return Err(different()),
        }
        let succeeded = ours.error().is_none() || theirs.error().is_none();
        match op {
            Some(Op::TransactionStart) => {
                if let [Some(ours), Some(theirs)] = [ours, theirs].map(transaction_id) {
                    self.transactions[on].push(Transaction {
                        ids: [ours, theirs],
                        touched: Footprint::default(),
                        outside: Footprint::default(),
                        changed: Footprint::default(),
                    });
                }
            }
            Some(Op::TransactionEnd) => {
                if let Some(at) = at {
                    self.ended(on, at, request, [ours, theirs], contested, course)?;
                }
            }
            Some(Op::ResetWatches) if succeeded => {
                self.transactions[on].clear();
                self.tokens[on].clear();
            }
            Some(op @ (Op::Watch | Op::Unwatch)) if succeeded => {
                let token = payload::strings(&request.payload).nth(1).unwrap_or_default();
                let count = self.tokens[on].entry(token.into()).or_default();
                if op == Op::Watch { *count += 1 } else { *count = count.saturating_sub(1) }
            }
            Some(op) if changes(op) && succeeded && at.is_none() => {
                self.changed_outside(&self.shadow.footprint(op, &request.payload));
                self.shadow.follow(op, &request.payload);
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows the end of a transaction.
    fn ended(
        &mut self,
        on: usize,
        at: usize,
        request: &Request,
        replies: Both<&Reply>,
        contested: bool,
        course: &mut Course,
    ) -> Result<(), String> {
        if replies.iter().all(|reply| reply.error().as_deref() == Some("EINVAL")) {
            return Ok(());
        }
        let ended = self.transactions[on].remove(at);
        if request.payload != b"T\0" || course.split {
            return Ok(());
        }
        self.changed_outside(&ended.changed);
        let lists = [self.list(0)?, self.list(1)?];
        if contested {
            course.loose_events = true;
            course.split |= lists[0] != lists[1];
        } else if lists[0] != lists[1] {
            return Err(format!("{request:?}: after the commit\n{}", differences(&lists)));
        }
        let [ours, _] = lists;
        self.shadow.set(ours.into_keys());
        Ok(())
    }

    /// Tells every open transaction what was changed beside it.
    fn changed_outside(&mut self, footprint: &Footprint) {
        for open in self.transactions.iter_mut().flatten() {
            open.outside.add(footprint.clone());
        }
    }

    fn meet(&mut self, rule: Rule) {
        *self.met.entry(rule.0).or_default() += 1;
    }

    /// Compares what each connection was told, now that nothing is under way. C lets equal events of one request fall
    /// together; ours may tell of each watch that has the token. In a pipeline the bounds of a request are lost.
    fn compare_events(&mut self, pipelined: bool, loose: bool) -> Result<(), String> {
        for on in 0..CONNECTIONS {
            let mut sides = [Vec::new(), Vec::new()];
            for (side, events) in sides.iter_mut().enumerate() {
                self.clients[side][on].fence().map_err(|e| format!("connection {on}: {}: {e}", side_name(side)))?;
                *events = self.clients[side][on].settled_events();
                events.sort();
            }
            let [mut ours, mut theirs] = sides;
            if loose || ours == theirs {
                continue;
            }
            let different = format!("events on connection {on}\n  ours: {}\n  C:    {}", told(&ours), told(&theirs));
            let too_often = ours
                .chunk_by(Event::eq)
                .any(|equal| equal.len() > self.tokens[on].get(equal[0].token.as_bytes()).copied().unwrap_or(0).max(1));
            ours.dedup();
            theirs.dedup();
            if ours != theirs || (too_often && !pipelined) {
                return Err(different);
            }
            self.meet(EQUAL_EVENTS);
        }
        Ok(())
    }

    /// Compares the whole stores and checks that both daemons still serve.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        let lists = [self.list(0)?, self.list(1)?];
        if lists[0] != lists[1] {
            return Err(format!("at the end\n{}", differences(&lists)));
        }
        for daemon in &mut self.daemons {
            if let Some(status) = daemon.exit_status() {
                return Err(format!("{:?} ended: {status}\n{}", daemon.backend(), daemon.log()));
            }
        }
        Ok(())
    }
}

fn side_name(side: usize) -> &'static str {
    ["ours", "C"][side]
}

fn transaction_id(reply: &Reply) -> Option<u32> {
    payload::number(payload::one_string(reply.result().ok()?).ok()?).ok()
}

fn shown(reply: &Reply) -> String {
    let name = Op::from_number(reply.header.op).map_or("unknown type", Op::name);
    format!("{name} \"{}\"", reply.payload[..reply.payload.len().min(200)].escape_ascii())
}

fn told(events: &[Event]) -> String {
    let pairs: Vec<String> = events.iter().map(|event| format!("({}, {})", event.path, event.token)).collect();
    pairs.join(" ")
}

/// The nodes that the two stores do not share.
fn differences(lists: &Both<Listing>) -> String {
    let mut text = String::new();
    for (side, other) in [(0, 1), (1, 0)] {
        for (path, (value, permissions)) in &lists[side] {
            if lists[other].get(path) != Some(&(value.clone(), permissions.clone())) {
                text += &format!(
                    "  {}: {} = \"{}\" ({})\n",
                    side_name(side),
                    path.escape_ascii(),
                    value[..value.len().min(60)].escape_ascii(),
                    permissions.escape_ascii(),
                );
            }
        }
    }
    text
}
