//! Our daemon against malformed input, misuse and scale, and the ways of starting and ending it.

mod directories;
mod flooding;
mod parsing;
mod permissions;
mod scale;
mod signals;
mod start_up;
mod transactions;
mod watches;
