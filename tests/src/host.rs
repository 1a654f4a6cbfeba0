//! What the tests know of a host. Here it is the simulated one; `tests/xen` compiles the same tests with a real one.

pub use xen_sim::{Guest, GuestClient, Host, Message};
