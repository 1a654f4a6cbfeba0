//! Facts about the store that were seen on real daemons, or that the protocol's documents state outright, played by
//! hand: so the model is not only consistent with itself.

mod domains;
mod quotas;
mod requests;
mod transactions;
mod watches;

use crate::{adapter::Store, engine::EngineStore, model::Model};

/// The stores that every fact must hold for.
type Make = fn() -> Box<dyn Store>;

fn model() -> Box<dyn Store> {
    Box::new(Model::new())
}

fn engine() -> Box<dyn Store> {
    Box::new(EngineStore::new())
}
