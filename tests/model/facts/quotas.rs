//! Quotas: "N" means N, for whom it holds, and what it counts.

use super::{Make, engine, model};
use crate::talk::{A, G3, G4, Talk};
use rstest::rstest;
use xenstore_wire::{Op, XsError};

#[rstest]
fn child_names_share_the_size_of_their_directory(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for number in 0..=532 {
        talk.ok(G3, Op::Mkdir, &format!("{number}|"));
    }
    assert_eq!(talk.ask(G3, Op::Mkdir, "533|"), Err(XsError::NoSpc));
    talk.ok(G3, Op::Rm, "532|");
    talk.ok(G3, Op::Mkdir, "533|");
}

#[rstest]
fn a_node_size_of_n_bytes_is_n_bytes(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Write, &format!("x|{}", "v".repeat(2048 - 24)));
    assert_eq!(talk.ask(G3, Op::Write, &format!("x|{}", "v".repeat(2048 - 23))), Err(XsError::NoSpc));
    talk.ok(A, Op::Write, &format!("/local/domain/3/x|{}", "v".repeat(3000)));
}

#[rstest]
fn a_global_value_holds_for_domains_without_one_of_their_own(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|watches|2|");
    talk.ok(A, Op::SetQuota, "watches|1|");
    assert_eq!(talk.ok(A, Op::GetQuota, "3|watches|"), "2|");
    assert_eq!(talk.ok(A, Op::GetQuota, "4|watches|"), "1|");
    assert_eq!(talk.ok(A, Op::GetQuota, "watches|"), "1|");
    for (conn, most) in [(G3, 2), (G4, 1)] {
        for number in 0..most {
            talk.ok(conn, Op::Watch, &format!("w{number}|t|"));
        }
        assert_eq!(talk.ask(conn, Op::Watch, "more|t|"), Err(XsError::NoSpc));
    }
    talk.ok(A, Op::Control, "quota|set|watches|2|");
    talk.ok(G4, Op::Watch, "more|t|");
}

#[rstest]
fn nought_is_no_limit_and_the_highest_number_is_refused(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|nodes|1|");
    assert_eq!(talk.ask(G3, Op::Mkdir, "x|"), Err(XsError::NoSpc));
    talk.ok(A, Op::SetQuota, "3|nodes|0|");
    talk.ok(G3, Op::Mkdir, "x|");
    for bad in ["nodes|4294967295|", "nodes|x|", "nodes||", "none|1|", "nodes|", "3|nodes|1|1|", "x|nodes|1|"] {
        assert_eq!(talk.ask(A, Op::SetQuota, bad), Err(XsError::Inval), "{bad}");
    }
    assert_eq!(talk.ask(A, Op::SetQuota, "1234|nodes|1|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::GetQuota, "1234|nodes|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::GetQuota, "1|nodes|x|"), Err(XsError::Inval));
    assert_eq!(talk.ask(A, Op::Control, "quota|set|nodes|0|"), Err(XsError::Inval));
}

#[rstest]
fn overwriting_at_the_limit_is_fine_and_one_request_counts_as_a_whole(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|nodes|3|");
    assert_eq!(talk.ask(G3, Op::Write, "a/b/c|1"), Err(XsError::NoSpc));
    assert_eq!(talk.store.quota_counts(3).nodes, 1);
    talk.ok(G3, Op::Write, "a/b|1");
    talk.ok(G3, Op::Write, "a|1");
    talk.ok(A, Op::Write, "/local/domain/3/control/shutdown|");
    assert_eq!(talk.store.quota_counts(3).nodes, 5, "the privileged make more");
    talk.ok(G3, Op::Write, "a|2");
}

#[rstest]
fn a_transaction_touches_so_many_nodes_and_no_more(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|transaction-nodes|20|");
    let transaction = talk.start(G3);
    for _ in 0..100 {
        let _ = talk.ask_in(G3, transaction, Op::Read, "one|");
    }
    for number in 1..20 {
        assert_eq!(talk.ask_in(G3, transaction, Op::Read, &format!("n{number}|")), Err(XsError::NoEnt));
    }
    assert_eq!(talk.ask_in(G3, transaction, Op::Read, "n20|"), Err(XsError::NoSpc));
    talk.ok_in(G3, transaction, Op::TransactionEnd, "F|");
}

#[rstest]
fn no_child_of_memory_grows_over_its_quota(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    let home = "/local/domain/3".len() + 24;
    talk.ok(A, Op::SetQuota, &format!("3|memory|{}|", home + 200));
    assert_eq!(talk.ask(G3, Op::Write, &format!("x|{}", "v".repeat(300))), Err(XsError::Io));
    talk.ok(G3, Op::Write, &format!("x|{}", "v".repeat(50)));
    assert_eq!(talk.ask(G3, Op::Write, &format!("x|{}", "v".repeat(300))), Err(XsError::NoMem));
    assert_eq!(talk.ask(G3, Op::Watch, &format!("x|{}|", "t".repeat(200))), Err(XsError::NoMem));
    assert_eq!(talk.ok(A, Op::Read, "/local/domain/3/x|"), "v".repeat(50));
}

#[rstest]
fn a_node_made_along_the_way_is_no_larger_than_any_other(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    let name = "n".repeat(2030);
    assert_eq!(talk.ask(G3, Op::Mkdir, &format!("d/{name}|")), Err(XsError::NoSpc), "d would be too large");
    assert_eq!(talk.ask(G3, Op::Mkdir, &format!("{name}/d|")), Err(XsError::NoSpc), "the home would be too large");
    assert_eq!(talk.store.quota_counts(3).nodes, 1);
}

#[rstest]
fn at_the_memory_limit_a_watch_still_has_its_first_event(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    let home = "/local/domain/3".len() + 24;
    talk.ok(A, Op::SetQuota, &format!("3|memory|{}|", home + "/local/domain/3/x".len() + 1));
    talk.ok(G3, Op::Watch, "x|t|");
    assert_eq!(talk.paths(G3), ["x"]);
    assert_eq!(talk.ask(G3, Op::Watch, "x|t|"), Err(XsError::Exist));
    assert_eq!(talk.ask(G3, Op::Watch, "x|u|"), Err(XsError::NoMem));
    talk.ok(A, Op::Write, "/local/domain/3/x|1");
    assert!(talk.paths(G3).is_empty(), "the node filled what was left");
}
