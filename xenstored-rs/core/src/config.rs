//! What an engine is started with.

use std::time::Duration;

use crate::{domain::Existence, id::DomId, pool::BufferCap, quota::Limits};

/// Settings of an engine; the default is that of a host without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The domain that the store runs in; socket connections speak for it.
    pub store_domid: DomId,
    /// The domain that may do everything.
    pub priv_domid: DomId,
    /// Which domains count as existing.
    pub existence: Existence,
    /// Limits of domains without limits of their own.
    pub limits: Limits,
    /// Nodes of a dead domain go to the privileged one in place of being removed.
    pub keep_orphans: bool,
    /// How long an event waits for a guest that does not read; none is for ever.
    pub event_timeout: Option<Duration>,
    /// What connections may hold in buffers.
    pub buffers: BufferCap,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store_domid: DomId::DOM0,
            priv_domid: DomId::DOM0,
            existence: Existence::Assumed,
            limits: Limits::default(),
            keep_orphans: false,
            event_timeout: Some(Duration::from_secs(20)),
            buffers: BufferCap::default(),
        }
    }
}

mod image;
