//! Unmodified daemons on a simulated host.

mod command_line;
mod domains;
mod restart;
mod rings;
mod running;
mod sockets;
