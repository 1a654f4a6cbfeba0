//! The daemon dies and comes back: what it had promised holds.

mod guests;
mod sockets;
mod take_over;
