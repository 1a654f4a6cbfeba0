//! INTRODUCE, RELEASE, GET_DOMAIN_PATH, IS_DOMAIN_INTRODUCED, RESUME and SET_TARGET.

use xenstore_wire::{XsError, payload};

use super::{Failure, Outcome, Request, ask, domid, know, ok, settled};
use crate::{domain::Existence, effect::Question, engine::Engine, id::DomId, path::home};

/// INTRODUCE `domid|gfn|port|`: makes a domain and its ring known.
pub(super) fn introduce(engine: &mut Engine, request: &Request<'_>, _out: &mut Vec<u8>) -> Outcome {
    let mut strings = payload::strings(request.payload);
    let (Some(domain), Some(gfn), Some(port)) = (strings.next(), strings.next(), strings.next()) else {
        return Err(XsError::Inval.into());
    };
    let domid = domid(domain)?;
    let (gfn, port) = (payload::number(gfn)?, payload::number(port)?);
    // Introducing the store's own domain would wipe the ring that its kernel uses.
    if port == 0 || !domid.is_ordinary() || domid == engine.config.store_domid {
        return Err(XsError::Inval.into());
    }
    settled(engine, request, &[domid])?;
    engine.domains.introducing.insert(domid);
    ask(engine, request, Question::Introduce { domid, gfn, port })
}

/// A domain that may be released or resumed.
fn released(engine: &mut Engine, request: &Request<'_>) -> Result<DomId, Failure> {
    let domid = domid(payload::one_string(request.payload)?)?;
    if !domid.is_ordinary() || domid == engine.config.priv_domid || domid == engine.config.store_domid {
        return Err(XsError::Inval.into());
    }
    settled(engine, request, &[domid])?;
    if engine.domains.is_introduced(domid) { Ok(domid) } else { Err(XsError::NoEnt.into()) }
}

/// RELEASE `domid|`: forgets a domain, its watches, its nodes and its rights.
pub(super) fn release(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let domid = released(engine, request)?;
    engine.changes.push(crate::event::Change::Released(domid));
    ok(out)
}

/// GET_DOMAIN_PATH `domid|`: the home of a domain, whether it exists or not.
pub(super) fn get_domain_path(_engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    out.extend_from_slice(&home(domid(payload::one_string(request.payload)?)?));
    out.push(0);
    Ok(())
}

/// IS_DOMAIN_INTRODUCED `domid|`: `T` or `F`; the caller's own domain (`DOMID_SELF`) always is.
pub(super) fn is_domain_introduced(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let domid = domid(payload::one_string(request.payload)?)?;
    settled(engine, request, &[domid])?;
    let introduced = domid == DomId::FIRST_RESERVED || engine.domains.is_introduced(domid);
    out.extend_from_slice(if introduced { b"T\0" } else { b"F\0" });
    Ok(())
}

/// RESUME `domid|`: the domain's next shutdown is news again.
pub(super) fn resume(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let domid = released(engine, request)?;
    engine.domains.entry(domid).shutdown_reported = false;
    ok(out)
}

/// SET_TARGET `domid|tdomid|`: the first domain has the rights of the second from now on, beside its own.
pub(super) fn set_target(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let [source, target] = payload::exactly::<2>(request.payload)?;
    let (source, target) = (domid(source)?, domid(target)?);
    know(engine, request, &[source, target])?;
    for domid in [source, target] {
        if !engine.domains.is_introduced(domid) {
            // Where no hypervisor can be asked, a domain that is not introduced is none.
            let there = engine.config.existence != Existence::Assumed && engine.domains.exists(domid);
            return Err(if there { XsError::Inval } else { XsError::NoEnt }.into());
        }
        // Without a ring there is nobody to have or to lend rights.
        if engine.domains.get(domid).is_none_or(|domain| domain.connection.is_none()) {
            return Err(XsError::Inval.into());
        }
    }
    engine.domains.entry(source).target = Some(target);
    ok(out)
}
