//! The same work given to our daemon and to Debian's C xenstored 4.17, and what both answer.
//!
//! What they may differ in is named in `docs/divergence.md`; everything else must be equal.

mod footprint;
mod pair;
mod random;
mod requests;
mod rules;
mod stream;
mod tools;
