//! GET_QUOTA and SET_QUOTA.

use xenstore_wire::{XsError, payload};

use super::{Outcome, Request, domid, know, ok};
use crate::{decimal, engine::Engine, quota::Limit};

/// GET_QUOTA, `name|` or `domid|name|`: the names, a common limit, or a domain's limit.
pub(super) fn get_quota(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let strings: Vec<&[u8]> = payload::strings(request.payload).collect();
    let value = match strings.as_slice() {
        [] if request.payload.is_empty() => {
            let names: Vec<_> = Limit::all().map(Limit::name).collect();
            out.extend_from_slice(names.join(" ").as_bytes());
            out.push(0);
            return Ok(());
        }
        [name] => engine.domains.limits.get(limit(name)?),
        [domain, name] => {
            let (domid, limit) = (domid(domain)?, limit(name)?);
            know(engine, request, &[domid])?;
            if !engine.domains.exists(domid) {
                return Err(XsError::NoEnt.into());
            }
            let all = &engine.domains.limits;
            engine.domains.get(domid).map_or_else(|| all.get(limit), |domain| domain.limits.get(limit, all))
        }
        _ => return Err(XsError::Inval.into()),
    };
    decimal::put(out, u64::from(value));
    out.push(0);
    Ok(())
}

/// SET_QUOTA `name|value|` or `domid|name|value|`: 0 is no limit. A common limit counts at once for every domain that
/// has none of its own.
pub(super) fn set_quota(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let strings: Vec<&[u8]> = payload::strings(request.payload).collect();
    match strings.as_slice() {
        [name, new] => {
            let limit = limit(name)?;
            engine.domains.limits.set(limit, value(limit, new)?);
        }
        [domain, name, new] => {
            let (domid, limit) = (domid(domain)?, limit(name)?);
            know(engine, request, &[domid])?;
            let value = value(limit, new)?;
            if !engine.domains.exists(domid) {
                return Err(XsError::NoEnt.into());
            }
            engine.domains.entry(domid).limits.set(limit, value);
        }
        _ => return Err(XsError::Inval.into()),
    }
    ok(out)
}

fn limit(name: &[u8]) -> Result<Limit, XsError> {
    Limit::from_name(name).ok_or(XsError::Inval)
}

/// A limit's value.
fn value(limit: Limit, text: &[u8]) -> Result<u32, XsError> {
    Some(payload::number(text)?).filter(|&value| limit.may_be(value)).ok_or(XsError::Inval)
}
