#![forbid(unsafe_code)]
//! What the fuzz targets share: a shell around the engine that checks every message, and requests made of fuzz input.

mod driver;
mod request;

pub use driver::{Closed, Driver};
pub use request::{Number, Place, Request};
