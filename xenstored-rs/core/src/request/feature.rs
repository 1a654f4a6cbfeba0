//! GET_FEATURE and SET_FEATURE.

use xenstore_wire::{XsError, payload};

use super::{Outcome, Request, domid, know, ok};
use crate::{decimal, domain::feature, engine::Engine};

/// GET_FEATURE, or `domid|`: the feature bits offered to the caller, or to another domain.
pub(super) fn get_feature(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let features = if request.payload.is_empty() {
        engine.domains.features(request.caller.domid)
    } else {
        if !request.caller.privileged {
            return Err(XsError::Access.into());
        }
        let domid = domid(payload::one_string(request.payload)?)?;
        know(engine, request, &[domid])?;
        if !engine.domains.exists(domid) {
            return Err(XsError::NoEnt.into());
        }
        engine.domains.features(domid)
    };
    decimal::put(out, u64::from(features));
    out.push(0);
    Ok(())
}

/// SET_FEATURE `domid|bits|`: what a domain will be offered, to be set before it is introduced.
pub(super) fn set_feature(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let [domain, bits] = payload::exactly::<2>(request.payload)?;
    let (domid, bits) = (domid(domain)?, payload::number::<u32>(bits)?);
    if bits & !feature::OFFERED != 0 {
        return Err(XsError::Inval.into());
    }
    know(engine, request, &[domid])?;
    if !engine.domains.exists(domid) {
        return Err(XsError::NoEnt.into());
    }
    if engine.domains.is_introduced(domid) {
        return Err(XsError::Busy.into());
    }
    engine.domains.entry(domid).features = bits;
    ok(out)
}
