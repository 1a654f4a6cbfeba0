//! Who watches requests being executed.

use std::fmt;

/// Is told of each request before it is executed and when that is over: with the number kept where it outlives the daemon,
/// the next one knows which request ended it.
///
/// Both are called for every request, so they should cost no more than a store.
pub trait Witness: fmt::Debug {
    /// The request of this number, as [`crate::Engine::executed`] counts, will now be executed.
    fn begins(&mut self, number: u64);

    /// It was executed, its events included, or failed.
    fn ends(&mut self);
}
