//! Domains in an image.

use std::collections::BTreeMap;

use super::{Domain, Domains};
use crate::{
    config::Config,
    image::{ImageError, Reader, Stored, Tag, Writer},
};

impl Stored for Domain {
    fn save(&self, out: &mut Writer<'_>) {
        let Self {
            exists,
            introduced,
            connection,
            features,
            target,
            shutdown_reported,
            limits,
            over_soft_memory,
            peak,
        } = self;
        exists.save(out);
        introduced.save(out);
        connection.save(out);
        features.save(out);
        target.save(out);
        shutdown_reported.save(out);
        limits.save(out);
        over_soft_memory.save(out);
        peak.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self {
            exists: input.get()?,
            introduced: input.get()?,
            connection: input.get()?,
            features: input.get()?,
            target: input.get()?,
            shutdown_reported: input.get()?,
            limits: input.get()?,
            over_soft_memory: input.get()?,
            peak: input.get()?,
        })
    }
}

impl Domains {
    /// Writes all that is known of domains.
    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        // The settings have two of these, and between calls no domain is absent.
        let Self { known, existence: _, store_domid: _, absent: _, introducing, limits, peak } = self;
        out.section(Tag::Domains);
        limits.save(out);
        peak.save(out);
        introducing.save(out);
        out.count(known.len());
        for (domid, domain) in known {
            out.record();
            domid.save(out);
            domain.save(out);
        }
    }

    /// Reads all that is known of domains.
    pub(crate) fn restore(input: &mut Reader<'_>, config: &Config) -> Result<Self, ImageError> {
        input.section(Tag::Domains)?;
        let (limits, peak, introducing) = (input.get()?, input.get()?, input.get()?);
        let mut known: BTreeMap<_, Domain> = BTreeMap::new();
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            known.insert(input.get()?, input.get()?);
        }
        let Config { existence, store_domid, .. } = *config;
        Ok(Self { known, existence, store_domid, absent: Vec::new(), introducing, limits, peak })
    }
}
