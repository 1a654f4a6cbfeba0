//! A guest that does what a kernel does, always the same: its replies are always the same too.

use xen_sim::{Guest, RING_SIZE};
use xenstore_wire::{Op, put_message};

use crate::simulation::host;

/// Its domain.
pub(crate) const DOMID: u16 = 4;

/// A guest that asks in rounds.
#[derive(Debug)]
pub(crate) struct Honest {
    guest: Guest,
    round: u32,
}

impl Honest {
    /// The kernel of its domain, which is there, with a page of zeroes.
    pub(crate) fn new() -> Self {
        let guest = host().guest(DOMID).expect("the domain exists");
        guest.page().copy_in(0, &[0; 4096]);
        Self { guest, round: 0 }
    }

    pub(crate) fn gfn(&self) -> u64 {
        self.guest.gfn()
    }

    /// Puts the requests of its next round into the ring, and signals.
    pub(crate) fn ask(&mut self) {
        let requests = requests(self.round);
        self.round += 1;
        let sent = self.guest.try_send(&requests).expect("its indices are right");
        assert_eq!(sent, requests.len(), "the daemon took what came before");
    }

    /// The replies and events of the round: all that there are.
    pub(crate) fn replies(&mut self) -> Vec<u8> {
        let mut replies = vec![0; RING_SIZE];
        let len = self.guest.try_receive(&mut replies).expect("the daemon keeps the indices right");
        replies.truncate(len);
        replies
    }
}

/// What a round asks for: values, lists, watches, a transaction, nodes that come and go.
fn requests(round: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = round * 16;
    let mut ask = |op: Op, tx_id: u32, payload: &str| {
        number += 1;
        put_message(&mut bytes, op.number(), number, tx_id, payload.as_bytes());
    };
    ask(Op::Write, 0, &format!("data/value\0round {round}"));
    ask(Op::Read, 0, "data/value\0");
    let watch = if round.is_multiple_of(2) { Op::Watch } else { Op::Unwatch };
    ask(watch, 0, "data\0token\0");
    // A connection counts its transactions from 1 on.
    let tx_id = round + 1;
    ask(Op::TransactionStart, 0, "\0");
    ask(Op::Read, tx_id, "data/value\0");
    ask(Op::Write, tx_id, &format!("data/{}\0{round}", round % 3));
    ask(Op::TransactionEnd, tx_id, "T\0");
    ask(Op::Directory, 0, "data\0");
    ask(Op::Mkdir, 0, "passing\0");
    ask(Op::Rm, 0, "passing\0");
    bytes
}
