//! Side-by-side speed of xenstore daemons.
fn main() {}
