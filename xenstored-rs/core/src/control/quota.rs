//! `quota` and `quota-soft`.

use std::fmt::Write;

use xenstore_wire::{XsError, payload};

use super::finish;
use crate::{
    engine::Engine,
    id::DomId,
    quota::{Limit, QUOTAS, Quota},
    request::{Outcome, Request, domid, ok},
};

/// `quota`: the common limits; `set name value`; what a domain uses; the most that any domain used.
pub(super) fn quota(engine: &mut Engine, _request: &Request<'_>, arguments: &[&[u8]], out: &mut Vec<u8>) -> Outcome {
    match arguments {
        [] => finish(out, &settings(engine, Quota::ALL.into_iter().map(|quota| (Limit::Hard(quota), quota)))),
        [b"set", name, value] => {
            let quota = Quota::from_name(name).ok_or(XsError::Inval)?;
            set(engine, Limit::Hard(quota), value)?;
            ok(out)
        }
        [b"max"] => finish(out, &peaks(engine)),
        [b"max", b"-r"] => {
            engine.reset_peaks();
            finish(out, &peaks(engine))
        }
        [domain] => {
            let text = usage(engine, domid(domain)?)?;
            finish(out, &text)
        }
        _ => Err(XsError::Inval.into()),
    }
}

/// `quota-soft`: the limits over which a domain is written into the log; `set name value`.
pub(super) fn quota_soft(
    engine: &mut Engine,
    _request: &Request<'_>,
    arguments: &[&[u8]],
    out: &mut Vec<u8>,
) -> Outcome {
    match arguments {
        [] => finish(out, &settings(engine, [(Limit::SoftMemory, Quota::Memory)].into_iter())),
        [b"set", b"memory", value] => {
            set(engine, Limit::SoftMemory, value)?;
            ok(out)
        }
        _ => Err(XsError::Inval.into()),
    }
}

/// Sets a common limit; here 0 is refused, so that a slip does not take a limit away.
fn set(engine: &mut Engine, limit: Limit, value: &[u8]) -> Result<(), XsError> {
    match payload::number::<u32>(value)? {
        value if value == 0 || !limit.may_be(value) => Err(XsError::Inval),
        value => {
            engine.domains.limits.set(limit, value);
            Ok(())
        }
    }
}

fn settings(engine: &Engine, limits: impl Iterator<Item = (Limit, Quota)>) -> String {
    let mut text = "Quota settings:\n".to_owned();
    for (limit, quota) in limits {
        let _ = writeln!(text, "{:<17}: {:>8} {}", quota.name(), engine.domains.limits.get(limit), quota.description());
    }
    text
}

fn peaks(engine: &Engine) -> String {
    let mut text = "Max. seen accounting values:\n".to_owned();
    for quota in Quota::ALL {
        let _ = writeln!(text, "{:<17}: {:>8}", quota.name(), engine.domains.peak[quota.index()]);
    }
    text
}

fn usage(engine: &Engine, domid: DomId) -> Result<String, XsError> {
    let used = engine.quota_usage(domid).ok_or(XsError::NoEnt)?;
    let peak = engine.domains.get(domid).map_or([0; QUOTAS], |domain| domain.peak);
    let mut text = format!("Domain {domid}:\n");
    for quota in Quota::ALL {
        let (used, peak) = (used[quota.index()], peak[quota.index()]);
        let _ = writeln!(text, "{:<17}: {:>8} (max {:>8})", quota.name(), used, used.max(peak));
    }
    Ok(text)
}

impl Engine {
    /// What a domain uses of each quota, in the order of [`Quota::ALL`]; `None` for a domain nothing is known of.
    #[must_use]
    pub fn quota_usage(&self, domid: DomId) -> Option<[u64; QUOTAS]> {
        let domain = self.domains.get(domid);
        let nodes = self.store.accounts.usage(domid);
        if domain.is_none() && nodes == crate::Usage::default() {
            return None;
        }
        let connection =
            domain.and_then(|domain| domain.connection).and_then(|conn| self.connections.get(conn.index()));
        let mut used = [0; QUOTAS];
        let mut set = |quota: Quota, value: u64| used[quota.index()] = value;
        set(Quota::Nodes, u64::from(nodes.nodes));
        set(Quota::Memory, nodes.bytes + connection.map_or(0, |connection| connection.bytes() as u64));
        if let Some(connection) = connection {
            set(Quota::Watches, u64::from(connection.watches));
            set(Quota::Outstanding, connection.outstanding.len() as u64);
            set(Quota::Transactions, connection.transactions.len() as u64);
            let most = connection.transactions.values().map(|transaction| transaction.touched_count()).max();
            set(Quota::TransactionNodes, most.unwrap_or(0) as u64);
        }
        Some(used)
    }

    fn reset_peaks(&mut self) {
        self.domains.peak = [0; QUOTAS];
        let known: Vec<DomId> = self.domains.iter().map(|(domid, _)| domid).collect();
        for domid in known {
            let used = self.quota_usage(domid).unwrap_or_default();
            if let Some(domain) = self.domains.get_mut(domid) {
                domain.peak = used;
            }
            if domid != self.config.priv_domid {
                for (peak, used) in self.domains.peak.iter_mut().zip(used) {
                    *peak = (*peak).max(used);
                }
            }
        }
    }
}
