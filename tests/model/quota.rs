//! Quotas: their names and values, and the counts they are held against.

use crate::{
    adapter::{Conn, Counts},
    model::{Connection, Model, Origin},
    store::Tree,
    transaction::Transaction,
};
use std::collections::BTreeMap;
use xenstore_wire::{OK, XsError, payload};

/// Every quota's name and its value at the start.
pub(crate) const DEFAULTS: [(&str, u32); 10] = [
    ("nodes", 1000),
    ("watches", 128),
    ("outstanding", 20),
    ("memory", 2_621_440),
    ("transactions", 10),
    ("transaction-nodes", 1024),
    ("node-permissions", 5),
    ("path-max", 2048),
    ("node-size", 2048),
    ("soft-memory", 2_097_152),
];

/// Values by name.
pub(crate) type Values = BTreeMap<&'static str, u32>;

/// The quota of that name, as the table spells it.
///
/// # Errors
/// `EINVAL` for an unknown name.
pub(crate) fn named(name: &[u8]) -> Result<&'static str, XsError> {
    DEFAULTS.iter().map(|(known, _)| *known).find(|known| known.as_bytes() == name).ok_or(XsError::Inval)
}

impl Model {
    /// The value that holds for a domain: its own, else the global one.
    pub(crate) fn quota_value(&self, domid: u16, name: &'static str) -> u32 {
        let own = self.domains.get(&domid).and_then(|domain| domain.quotas.get(name));
        *own.unwrap_or_else(|| &self.quotas[name])
    }

    /// The most that a domain may use, if there is a limit.
    pub(crate) fn limit(&self, domid: u16, name: &'static str) -> Option<u64> {
        let value = self.quota_value(domid, name);
        (value != 0).then_some(u64::from(value))
    }

    /// The most that the caller behind a connection may use; none for a privileged one.
    pub(crate) fn caller_limit(&self, conn: Conn, name: &'static str) -> Option<u64> {
        let caller = self.caller(conn);
        if caller.privileged { None } else { self.limit(caller.domid, name) }
    }

    /// What a domain uses. Sockets are no domain: their watches and transactions count for nobody.
    pub(crate) fn counts(&self, domid: u16) -> Counts {
        let ring = self.connections.get(&Conn::Domain(domid));
        Counts {
            nodes: self.tree.owned(domid),
            watches: ring.map_or(0, |ring| ring.watches.len() as u64),
            transactions: ring.map_or(0, |ring| ring.transactions.len() as u64),
            memory: self.memory(&self.tree, domid),
        }
    }

    /// Bytes that count against a domain's memory quota, with `tree` for the store: its nodes, and of its ring the
    /// watches, what transactions touched, and what waits to be read.
    pub(crate) fn memory(&self, tree: &Tree, domid: u16) -> u64 {
        let ring = self.connections.get(&Conn::Domain(domid));
        tree.bytes_owned(domid) + ring.map_or(0, Connection::bytes)
    }

    /// Whether a caller's change from one tree to another takes too much memory of a domain whose nodes grow by it. What a
    /// transaction holds is in those trees.
    pub(crate) fn memory_is_refused(&self, origin: Origin, before: &Tree, after: &Tree) -> bool {
        let caller = self.caller(origin.conn);
        let transactions = self.connections.get(&origin.conn).map(|connection| &connection.transactions);
        let values = transactions.and_then(|open| open.get(&origin.tx_id)).map_or(0, Transaction::values);
        let grows_too_much = |domid: u16| {
            let (old, new) = (self.memory(before, domid), self.memory(after, domid));
            let twice = if domid == caller.domid { values } else { 0 };
            new > old && self.limit(domid, "memory").is_some_and(|limit| new - twice > limit)
        };
        !caller.privileged && after.owners().into_iter().any(|owner| owner != 0 && grows_too_much(owner))
    }

    /// `GET_QUOTA`: the names, a global value, or a domain's.
    pub(crate) fn get_quota(&self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let strings: Vec<_> = payload::strings(args).collect();
        let value = match strings.as_slice() {
            [] if args.is_empty() => DEFAULTS.map(|(name, _)| name).join(" "),
            [name] => self.quotas[named(name)?].to_string(),
            [domid, name] => {
                let domid = payload::number(domid)?;
                let name = named(name)?;
                if !self.is_known(domid) {
                    return Err(XsError::NoEnt);
                }
                self.quota_value(domid, name).to_string()
            }
            _ => return Err(XsError::Inval),
        };
        Ok([value.as_bytes(), b"\0"].concat())
    }

    /// `SET_QUOTA`: a global value, or a domain's own.
    pub(crate) fn set_quota(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let strings: Vec<_> = payload::strings(args).collect();
        let (domid, name, value) = match strings.as_slice() {
            [name, value] => (None, name, value),
            [domid, name, value] => (Some(payload::number(domid)?), name, value),
            _ => return Err(XsError::Inval),
        };
        let (name, value) = (named(name)?, payload::number(value)?);
        if value == u32::MAX {
            return Err(XsError::Inval);
        }
        match domid {
            None => {
                self.quotas.insert(name, value);
            }
            Some(domid) if self.is_known(domid) => {
                self.record(domid).quotas.insert(name, value);
            }
            Some(_) => return Err(XsError::NoEnt),
        }
        Ok(OK.to_vec())
    }

    /// `CONTROL quota …`, as far as it does not only print.
    pub(crate) fn control_quota(&mut self, args: &[&[u8]]) -> Result<Vec<u8>, XsError> {
        match args {
            [] => Ok(b"Quota settings:\n\0".to_vec()),
            [b"set", name, value] => {
                let (name, value) = (named(name)?, payload::number(value)?);
                if value == 0 || value == u32::MAX || name.starts_with("soft-") {
                    return Err(XsError::Inval);
                }
                self.quotas.insert(name, value);
                Ok(OK.to_vec())
            }
            [b"max"] | [b"max", b"-r"] => Ok(b"Max. seen accounting values:\n\0".to_vec()),
            [domid] => {
                let domid: u16 = payload::number(domid)?;
                if self.is_known(domid) { Ok(format!("Domain {domid}:\n\0").into_bytes()) } else { Err(XsError::NoEnt) }
            }
            _ => Err(XsError::Inval),
        }
    }
}
