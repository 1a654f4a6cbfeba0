#![forbid(unsafe_code)]
//! What the fuzz targets share: a shell around the engine that checks every message, requests made of fuzz input, and
//! the whole daemon on a simulated host with guests that do what they like.

mod asked;
mod driver;
mod honest;
mod request;
mod ring_step;
mod rogue;
mod scene;
mod simulation;

pub use asked::{Ask, Change};
pub use driver::{Closed, Driver, image};
pub use request::{Number, Place, Request};
pub use ring_step::{Index, RingStep, Who};
pub use scene::Scene;
pub use simulation::preload;
