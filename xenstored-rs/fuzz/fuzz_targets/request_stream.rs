#![no_main]
//! Requests of several sockets and domains in any order, with domains coming and going: the engine never fails, answers
//! each request once, and its accounts are right.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use xenstore_core::{Config, DomId, DomainEvent, Existence};
use xenstore_wire::{PAYLOAD_MAX, put_message};
use xenstored_fuzz::{Closed, Driver, Request};

#[derive(Arbitrary, Debug)]
enum Step {
    /// A connection asks, in its last transaction or outside; the reply is waited for or not.
    Ask {
        who: u8,
        in_transaction: bool,
        wait: bool,
        request: Request,
    },
    Open,
    Close(u8),
    Deaf(u8, bool),
    Appeared(u8),
    ShutDown(u8, u8),
    Gone(u8, u8),
}

fuzz_target!(|input: (bool, bool, bool, Vec<Step>)| {
    let (keep_orphans, told, trace, steps) = input;
    let existence = if told { Existence::Told } else { Existence::Assumed };
    let mut driver = Driver::new(Config { keep_orphans, existence, ..Config::default() });
    driver.engine().set_tracing(trace);
    let admin = driver.open().expect("the first is let in");
    for domid in 1..4 {
        driver.introduce(DomId(domid));
    }
    for (number, step) in (1..).zip(steps.into_iter().take(400)) {
        let connections = driver.connections();
        let at = |who: u8| connections[usize::from(who) % connections.len()];
        let domid = |domid: u8| DomId(1 + u16::from(domid % 5));
        match step {
            Step::Ask { who, in_transaction, wait, request } => {
                let (conn, (op, mut payload)) = (at(who), request.message());
                // The last one must stay connected to see what is left.
                payload.truncate(if conn == admin { PAYLOAD_MAX } else { usize::MAX });
                let tx_id = if in_transaction { driver.tx_id(conn) } else { 0 };
                let mut bytes = Vec::new();
                put_message(&mut bytes, op, number, tx_id, &payload);
                driver.send(conn, &bytes);
                if !wait {
                    continue;
                }
            }
            Step::Open => {
                driver.open();
            }
            Step::Close(who) if at(who) != admin && driver.is_socket(at(who)) => driver.close(at(who), Closed::Client),
            Step::Close(_) => {}
            Step::Deaf(who, deaf) => driver.set_deaf(at(who), deaf && at(who) != admin),
            Step::Appeared(who) => driver.engine().domain_event(DomainEvent::Appeared(domid(who))),
            Step::ShutDown(one, two) => {
                driver.engine().domain_event(DomainEvent::ShutDown(vec![domid(one), domid(two)]))
            }
            Step::Gone(one, two) => driver.engine().domain_event(DomainEvent::Gone(vec![domid(one), domid(two)])),
        }
        driver.settle();
        driver.check_answered();
    }
    driver.end(admin);
});
