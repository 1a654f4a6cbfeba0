//! The model itself: what it holds, how requests reach their handlers, and what goes out in which order.

use crate::{
    adapter::{Conn, Counts, HostEvent, Store},
    choice,
    domain::Domain,
    permission::Caller,
    quota::{DEFAULTS, Values},
    store::Tree,
    transaction::Transaction,
    watch::{Fired, Watch, may_know},
};
use std::collections::{BTreeMap, BTreeSet};
use xenstore_wire::{
    Decoder, HEADER_SIZE, Header, Op, PAYLOAD_MAX, XsError, payload, put_error, put_event, put_message,
};

/// One end that is served.
#[derive(Debug)]
pub(crate) struct Connection {
    /// In order of registration.
    pub(crate) watches: Vec<Watch>,
    /// By id.
    pub(crate) transactions: BTreeMap<u32, Transaction>,
    /// The next transaction's id, unless it is in use.
    pub(crate) next_transaction: u32,
    decoder: Decoder,
    output: Vec<u8>,
}

impl Connection {
    /// A connection that holds nothing.
    pub(crate) fn new() -> Self {
        Self {
            watches: Vec::new(),
            transactions: BTreeMap::new(),
            next_transaction: 1,
            decoder: Decoder::new(),
            output: Vec::new(),
        }
    }

    /// Bytes that the connection takes of its domain's memory.
    pub(crate) fn bytes(&self) -> u64 {
        let watches: usize = self.watches.iter().map(|watch| watch.path.len() + watch.token.len()).sum();
        let transactions: u64 = self.transactions.values().map(Transaction::bytes).sum();
        (watches + self.output.len()) as u64 + transactions
    }
}

/// A whole store, naive and obviously right.
#[derive(Debug)]
pub(crate) struct Model {
    /// The committed tree.
    pub(crate) tree: Tree,
    /// Every end that is served. Events of different connections have no order among each other.
    pub(crate) connections: BTreeMap<Conn, Connection>,
    /// What is known of domains, introduced or not.
    pub(crate) domains: BTreeMap<u16, Domain>,
    /// The domains that the host has.
    pub(crate) host: BTreeSet<u16>,
    /// The global quota values.
    pub(crate) quotas: Values,
    /// Events of the request being served, to go out behind its reply.
    events: Vec<(Conn, Vec<u8>, Vec<u8>)>,
}

/// The connection that asks, and the transaction it asks in (0 for none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Who.
    pub(crate) conn: Conn,
    /// In which transaction.
    pub(crate) tx_id: u32,
}

impl Model {
    /// A store that just started on a host that has domain 0 alone.
    pub(crate) fn new() -> Self {
        Self {
            tree: Tree::new(),
            connections: BTreeMap::new(),
            domains: BTreeMap::from([(0, Domain::default())]),
            host: BTreeSet::from([0]),
            quotas: Values::from(DEFAULTS),
            events: Vec::new(),
        }
    }

    /// Whose rights count for a connection.
    pub(crate) fn caller(&self, conn: Conn) -> Caller {
        match conn {
            Conn::Socket(_) => Caller { domid: 0, privileged: true, target: None },
            Conn::Domain(domid) => {
                let target = self.domains.get(&domid).and_then(|domain| domain.target);
                Caller { domid, privileged: domid == 0, target }
            }
        }
    }

    /// The tree that a request looks at.
    pub(crate) fn view(&self, origin: Origin) -> &Tree {
        if origin.tx_id == 0 { &self.tree } else { &self.connections[&origin.conn].transactions[&origin.tx_id].working }
    }

    /// Tells every watcher of a change who may know, in order of registration.
    pub(crate) fn fire(&mut self, fired: &[Fired], before: &Tree, after: &Tree) {
        for change in fired {
            for (&conn, connection) in &self.connections {
                let caller = self.caller(conn);
                for watch in connection.watches.iter().filter(|watch| watch.matches(change)) {
                    if may_know(&caller, &change.path, before, after) {
                        self.events.push((conn, watch.shown(&change.path), watch.token.clone()));
                    }
                }
            }
        }
    }

    /// Puts one event behind those that wait for the reply.
    pub(crate) fn tell(&mut self, conn: Conn, path: Vec<u8>, token: Vec<u8>) {
        self.events.push((conn, path, token));
    }

    /// Sends the events out, but for those that no message or no receiver can hold.
    fn flush(&mut self, first: bool) {
        for (conn, path, token) in std::mem::take(&mut self.events) {
            let size = path.len() + token.len() + 2;
            let holds = match conn {
                Conn::Socket(_) => true,
                Conn::Domain(_) if first && choice::FIRST_EVENT_IS_NEVER_LOST => true,
                // A domain that has shut down reads nothing, its own release included.
                Conn::Domain(domid) if self.domains.get(&domid).is_some_and(|domain| domain.shutdown_told) => false,
                Conn::Domain(domid) => {
                    let used = self.memory(&self.tree, domid) + (HEADER_SIZE + size) as u64;
                    self.limit(domid, "memory").is_none_or(|limit| used <= limit)
                }
            };
            if size <= PAYLOAD_MAX
                && holds
                && let Some(connection) = self.connections.get_mut(&conn)
            {
                put_event(&mut connection.output, &path, &token);
            }
        }
    }

    fn serve(&mut self, conn: Conn, header: &Header, body: &[u8]) {
        let answer = self.answer(Origin { conn, tx_id: header.tx_id }, header.op, body);
        let answer = answer.and_then(|reply| if reply.len() > PAYLOAD_MAX { Err(XsError::TooBig) } else { Ok(reply) });
        if let Some(connection) = self.connections.get_mut(&conn) {
            match answer {
                Ok(reply) => put_message(&mut connection.output, header.op, header.req_id, header.tx_id, &reply),
                Err(error) => put_error(&mut connection.output, header, error),
            }
        }
        self.flush(header.op == Op::Watch.number());
    }

    /// Serves one request: unknown types first, then privilege, then the transaction, then the request itself.
    fn answer(&mut self, origin: Origin, op: u32, body: &[u8]) -> Result<Vec<u8>, XsError> {
        let op = Op::from_number(op).ok_or(XsError::NoSys)?;
        let privileged_only = matches!(
            op,
            Op::Control
                | Op::Introduce
                | Op::Release
                | Op::IsDomainIntroduced
                | Op::Resume
                | Op::SetTarget
                | Op::SetFeature
                | Op::GetQuota
                | Op::SetQuota
        );
        if matches!(op, Op::WatchEvent | Op::Error) {
            return Err(XsError::NoSys);
        }
        if privileged_only && !self.caller(origin.conn).privileged {
            return Err(XsError::Access);
        }
        let knows = |connection: &Connection| connection.transactions.contains_key(&origin.tx_id);
        let outside = matches!(op, Op::Watch | Op::Unwatch) || origin.tx_id == 0;
        if !outside && !knows(&self.connections[&origin.conn]) {
            return Err(XsError::NoEnt);
        }
        match op {
            Op::Control => self.control(body),
            Op::Directory => self.directory(origin, body),
            Op::DirectoryPart => self.directory_part(origin, body),
            Op::Read => self.read(origin, body),
            Op::GetPerms => self.get_perms(origin, body),
            Op::Write => self.write(origin, body),
            Op::Mkdir => self.mkdir(origin, body),
            Op::Rm => self.rm(origin, body),
            Op::SetPerms => self.set_perms(origin, body),
            Op::Watch => self.watch(origin.conn, body),
            Op::Unwatch => self.unwatch(origin.conn, body),
            Op::ResetWatches => self.reset_watches(origin.conn),
            Op::TransactionStart => self.transaction_start(origin),
            Op::TransactionEnd => self.transaction_end(origin, body),
            Op::Introduce => self.introduce(body),
            Op::Release => self.release(body),
            Op::GetDomainPath => Self::get_domain_path(body),
            Op::IsDomainIntroduced => self.is_domain_introduced(body),
            Op::Resume => self.resume(body),
            Op::SetTarget => self.set_target(body),
            Op::GetFeature => self.get_feature(origin.conn, body),
            Op::SetFeature => self.set_feature(body),
            Op::GetQuota => self.get_quota(body),
            Op::SetQuota => self.set_quota(body),
            Op::WatchEvent | Op::Error => Err(XsError::NoSys),
        }
    }

    fn control(&mut self, body: &[u8]) -> Result<Vec<u8>, XsError> {
        let strings: Vec<_> = payload::strings(body).collect();
        match strings.split_first() {
            Some((&b"check", [])) | Some((&b"print", [_])) => Ok(xenstore_wire::OK.to_vec()),
            Some((&b"help", [])) => {
                Ok(b"check log live-update logfile memreport print quota quota-soft help\n\0".to_vec())
            }
            Some((&b"quota", args)) => self.control_quota(args),
            _ => Err(XsError::Inval),
        }
    }
}

impl Store for Model {
    fn open(&mut self, conn: Conn) {
        self.connections.insert(conn, Connection::new());
    }

    fn close(&mut self, conn: Conn) {
        self.connections.remove(&conn);
    }

    fn is_open(&self, conn: Conn) -> bool {
        self.connections.contains_key(&conn)
    }

    fn receive(&mut self, conn: Conn, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.decoder.push(bytes);
        loop {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            match connection.decoder.next_message() {
                Ok(Some(message)) => {
                    let (header, body) = (message.header, message.payload.to_vec());
                    self.serve(conn, &header, &body);
                }
                Ok(None) => return,
                Err(_) => {
                    self.close(conn);
                    return;
                }
            }
        }
    }

    fn take_output(&mut self, conn: Conn) -> Vec<u8> {
        self.connections.get_mut(&conn).map(|connection| std::mem::take(&mut connection.output)).unwrap_or_default()
    }

    fn host_event(&mut self, event: HostEvent) {
        self.host_reports(event);
        self.flush(false);
    }

    fn quota_counts(&mut self, domid: u16) -> Counts {
        self.counts(domid)
    }
}

/// The features that a domain without a record of its own is offered.
pub(crate) const ALL_FEATURES: u32 = choice::FEATURES;
