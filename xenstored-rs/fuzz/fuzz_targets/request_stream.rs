#![no_main]
//! Requests of several sockets and domains in any order, with domains coming and going: the engine never fails, answers
//! each request once, and its accounts are right. Now and then another goes on from its image.

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use xenstore_core::{Config, DomId, DomainEvent, Existence};
use xenstore_wire::PAYLOAD_MAX;
use xenstored_fuzz::{Closed, Driver, Request};

/// Steps after which the engine is saved and another restored.
const RESTART: u32 = 16;

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
    ShutDown([u8; 2]),
    Gone([u8; 2]),
}

fuzz_target!(|input: (bool, u8, bool, Vec<Step>)| {
    let (keep_orphans, existence, trace, steps) = input;
    let existence = [Existence::Assumed, Existence::Told, Existence::Asked][usize::from(existence % 3)];
    let mut driver = Driver::new(Config { keep_orphans, existence, ..Config::default() });
    driver.engine().set_tracing(trace);
    let admin = driver.open().expect("the first is let in");
    (1..4).map(DomId).for_each(|domid| _ = driver.introduce(domid));
    for (number, step) in (1..).zip(steps.into_iter().take(400)) {
        if number % RESTART == 0 {
            driver.restart();
            driver.engine().set_tracing(trace);
        }
        let connections = driver.connections();
        let at = |who: u8| connections[usize::from(who) % connections.len()];
        let domid = |domid: u8| DomId(1 + u16::from(domid % 5));
        match step {
            Step::Ask { who, in_transaction, wait, request } => {
                let (conn, (op, mut payload)) = (at(who), request.message());
                payload.truncate(if conn == admin { PAYLOAD_MAX } else { usize::MAX }); // It must stay to the end.
                driver.send_request(conn, op, number, in_transaction, &payload);
                if !wait {
                    continue;
                }
            }
            Step::Open => drop(driver.open()),
            Step::Close(who) if at(who) != admin && driver.is_socket(at(who)) => driver.close(at(who), Closed::Client),
            Step::Close(_) => {}
            Step::Deaf(who, deaf) => driver.set_deaf(at(who), deaf && at(who) != admin),
            Step::Appeared(who) => driver.engine().domain_event(DomainEvent::Appeared(domid(who))),
            Step::ShutDown(some) => driver.engine().domain_event(DomainEvent::ShutDown(some.map(domid).into())),
            Step::Gone(some) => driver.engine().domain_event(DomainEvent::Gone(some.map(domid).into())),
        }
        driver.settle();
        driver.check_answered();
    }
    driver.end(admin);
});
