#![forbid(unsafe_code)]
//! The xenstore engine.
//!
//! What a xenstore is, without how it is reached: bytes and events go in, bytes and effects come out. There is no
//! descriptor, no clock and no system call in here; the shell (`xenstored-rs`) has those.

mod accounts;
mod alteration;
mod children;
mod config;
mod connection;
mod control;
mod decimal;
mod domain;
mod effect;
mod ending;
mod engine;
mod event;
mod flow;
mod id;
mod image;
mod lifecycle;
pub mod migration;
mod node;
mod output;
mod outstanding;
mod path;
mod permission;
mod pool;
mod quota;
mod reliance;
mod request;
mod slots;
mod small_bytes;
mod snapshot;
mod store;
mod transaction;
mod view;
mod watch;
mod watched_paths;
mod witness;

pub use accounts::Usage;
pub use config::Config;
pub use connection::ConnectionKind;
pub use domain::{Existence, feature};
pub use effect::{CloseReason, Effect, Note, Question, Trace};
pub use engine::{Engine, Refused};
pub use event::DomainEvent;
pub use id::{ConnId, DomId, Time, TxId};
pub use image::{ImageError, ImageFault};
pub use permission::{Access, Permission, Permissions};
pub use pool::BufferCap;
pub use quota::{Limit, Limits, QUOTAS, Quota, QuotaHit};
pub use witness::Witness;
