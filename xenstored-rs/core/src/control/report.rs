//! `memreport`: where the memory is.

use std::fmt::Write;

use crate::engine::{Engine, OUTPUT_CAP, OUTPUT_LIMIT, OUTPUT_PATIENCE, OUTPUT_PAUSE};

impl Engine {
    /// Where the memory is, for a person: the answer to [`crate::Question::Report`].
    #[must_use]
    pub fn memory_report(&self) -> String {
        report(self)
    }
}

fn report(engine: &Engine) -> String {
    let (held, peak, free, buffers) = engine.pool.figures();
    let cap = engine.pool.cap();
    let (mut nodes, mut bytes, mut owners) = (0u64, 0u64, 0);
    for (_, usage) in engine.store.accounts.iter() {
        nodes += u64::from(usage.nodes);
        bytes += usage.bytes;
        owners += 1;
    }
    let connections = &engine.connections;
    let waiting = connections.iter().filter(|(_, connection)| !connection.output.unsent().is_empty()).count();
    let unsent: usize = connections.iter().map(|(_, connection)| connection.output.unsent().len()).sum();
    let unserved: usize = connections.iter().map(|(_, connection)| connection.input.len()).sum();
    let transactions: usize = connections.iter().map(|(_, connection)| connection.transactions.len()).sum();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<17}: {value}");
    };
    line("nodes", format!("{nodes} of {owners} domains, {bytes} bytes accounted"));
    let (kept, in_memory) = (engine.store.snapshots.kept(), engine.store.nodes.len());
    let earlier = engine.store.snapshots.bytes();
    line("nodes in memory", format!("{in_memory}, with {kept} earlier states for open transactions, {earlier} bytes"));
    line("watches", engine.watches.len().to_string());
    line("transactions", transactions.to_string());
    line("connections", format!("{}, {waiting} with unsent output", connections.len()));
    let patience = OUTPUT_PATIENCE.as_secs();
    let caps = format!(
        "requests pause at {OUTPUT_PAUSE}; closed above {OUTPUT_CAP} unread for {patience} s, or {OUTPUT_LIMIT}"
    );
    line("unsent output", format!("{unsent} bytes; a connection's {caps}"));
    line("unserved input", format!("{unserved} bytes"));
    line("buffers held", format!("{held} bytes (max {peak})"));
    line("pool", format!("{free} bytes free in {buffers} buffers"));
    line("pool cap", format!("{} bytes, from {}", cap.bytes, cap.source));
    text
}
