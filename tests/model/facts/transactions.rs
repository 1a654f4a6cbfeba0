//! Transactions: what conflicts, what does not, and who is told.

use super::{Make, engine, model};
use crate::{
    adapter::HostEvent,
    talk::{A, B, G3, G4, Talk},
};
use rstest::rstest;
use xenstore_wire::{Op, XsError};

#[rstest]
fn ids_belong_to_a_connection_and_start_at_one(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    assert_eq!((talk.start(A), talk.start(A), talk.start(B)), (1, 2, 1));
    assert_eq!(talk.ask_in(B, 2, Op::Read, "/|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask_in(A, 2, Op::TransactionStart, "|"), Err(XsError::Busy));
}

/// What happens outside between a transaction's own request and its commit, and what comes of it.
#[rstest]
#[case::read_then_written(Op::Read, "/p/a|", Op::Write, "/p/a|2", Err(XsError::Again))]
#[case::read_then_same_value(Op::Read, "/p/a|", Op::Write, "/p/a|1", Err(XsError::Again))]
#[case::read_then_permissions(Op::Read, "/p/a|", Op::SetPerms, "/p/a|r0|", Err(XsError::Again))]
#[case::read_then_removed(Op::Read, "/p/a|", Op::Rm, "/p/a|", Err(XsError::Again))]
#[case::read_then_sibling(Op::Read, "/p/a|", Op::Write, "/p/b|2", Ok(()))]
#[case::read_then_child(Op::Read, "/p/a|", Op::Write, "/p/a/x|2", Ok(()))]
#[case::read_missing_then_made(Op::Read, "/p/none|", Op::Write, "/p/none|2", Err(XsError::Again))]
#[case::list_then_child(Op::Directory, "/p|", Op::Write, "/p/b|2", Err(XsError::Again))]
#[case::list_then_removed_child(Op::Directory, "/p|", Op::Rm, "/p/a|", Err(XsError::Again))]
#[case::list_then_childs_value(Op::Directory, "/p|", Op::Write, "/p/a|2", Ok(()))]
#[case::list_then_grandchild(Op::Directory, "/p|", Op::Write, "/p/a/x|2", Ok(()))]
#[case::permissions_then_value(Op::GetPerms, "/p/a|", Op::Write, "/p/a|2", Err(XsError::Again))]
#[case::blind_overwrite_then_written(Op::Write, "/p/a|9", Op::Write, "/p/a|2", Ok(()))]
#[case::blind_overwrite_then_permissions(Op::Write, "/p/a|9", Op::SetPerms, "/p/a|r0|", Ok(()))]
#[case::blind_overwrite_then_removed(Op::Write, "/p/a|9", Op::Rm, "/p/a|", Err(XsError::Again))]
#[case::made_then_made(Op::Write, "/p/b|9", Op::Write, "/p/b|2", Err(XsError::Again))]
#[case::made_then_sibling(Op::Write, "/p/b|9", Op::Write, "/p/c|2", Ok(()))]
#[case::made_then_parents_permissions(Op::Write, "/p/b|9", Op::SetPerms, "/p|r0|", Err(XsError::Again))]
#[case::made_then_parents_value(Op::Write, "/p/b|9", Op::Write, "/p|2", Ok(()))]
#[case::made_then_parent_removed(Op::Write, "/p/b|9", Op::Rm, "/p|", Err(XsError::Again))]
#[case::list_then_permissions(Op::Directory, "/p|", Op::SetPerms, "/p|r0|", Ok(()))]
#[case::removed_then_parents_permissions(Op::Rm, "/p/a|", Op::SetPerms, "/p|r0|", Ok(()))]
#[case::removed_then_parents_value(Op::Rm, "/p/a|", Op::Write, "/p|2", Ok(()))]
#[case::removed_then_grown(Op::Rm, "/p|", Op::Write, "/p/new|2", Err(XsError::Again))]
#[case::removed_then_written(Op::Rm, "/p|", Op::Write, "/p/a|2", Err(XsError::Again))]
#[case::removed_then_removed(Op::Rm, "/p/a|", Op::Rm, "/p/a|", Err(XsError::Again))]
#[case::removed_then_sibling(Op::Rm, "/p/a|", Op::Write, "/p/b|2", Ok(()))]
fn what_conflicts(
    #[case] inside: Op,
    #[case] inside_payload: &str,
    #[case] outside: Op,
    #[case] outside_payload: &str,
    #[case] want: Result<(), XsError>,
    #[values(model, engine)] make: Make,
) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/p/a|1");
    let transaction = talk.start(A);
    let _ = talk.ask_in(A, transaction, inside, inside_payload);
    talk.ok_in(A, transaction, Op::Write, "/mark|1");
    talk.ok(B, outside, outside_payload);
    assert_eq!(talk.commit(A, transaction).map(|_| ()), want);
    let marked = talk.ask(A, Op::Read, "/mark|").is_ok();
    assert_eq!(marked, want.is_ok(), "all of it or nothing");
    assert_eq!(talk.commit(A, transaction), Err(XsError::NoEnt), "it is gone either way");
}

#[rstest]
fn a_transaction_that_only_read_always_commits(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/a|1");
    let transaction = talk.start(A);
    talk.ok(B, Op::Write, "/a|2");
    assert_eq!(talk.ok_in(A, transaction, Op::Read, "/a|"), "1", "it reads the moment of its start");
    assert_eq!(talk.commit(A, transaction), Ok("OK|".to_owned()));
}

#[rstest]
fn events_come_at_the_commit_a_node_once_in_order_of_first_write(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/b|1");
    talk.ok(B, Op::Watch, "/|t|");
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Read, "/b|");
    for path in ["/z|", "/b|", "/a/x|", "/z|", "/a|"] {
        talk.ok_in(A, transaction, Op::Write, path);
    }
    assert_eq!(talk.paths(B), ["/"]);
    talk.commit(A, transaction).unwrap();
    assert_eq!(talk.paths(B), ["/z", "/b", "/a/x", "/a"]);
}

#[rstest]
fn what_is_made_and_removed_in_one_transaction_was_never_there(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(B, Op::Watch, "/|t|");
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Write, "/a/b|1");
    talk.ok_in(A, transaction, Op::Write, "/c|1");
    talk.ok_in(A, transaction, Op::Rm, "/a|");
    talk.commit(A, transaction).unwrap();
    assert_eq!(talk.paths(B), ["/", "/c"]);
}

#[rstest]
fn the_rule_for_the_subtree_wins_over_the_exact_one(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/a/b|1");
    talk.ok(B, Op::Watch, "/|t|");
    talk.paths(B);
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Rm, "/a|");
    talk.ok_in(A, transaction, Op::Write, "/a/b|2");
    talk.commit(A, transaction).unwrap();
    assert_eq!(talk.paths(B), ["/a", "/a/b"]);
}

#[rstest]
fn a_create_that_a_quota_stops_poisons_the_transaction(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|nodes|3|");
    let transaction = talk.start(G3);
    talk.ok_in(G3, transaction, Op::Write, "x/1|1");
    assert_eq!(talk.ask_in(G3, transaction, Op::Write, "x/2|1"), Err(XsError::NoSpc));
    assert_eq!(talk.commit(G3, transaction), Err(XsError::NoMem));
    assert_eq!(talk.store.quota_counts(3).nodes, 1);
}

#[rstest]
fn the_node_quota_within_a_transaction_counts_what_it_removed(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|nodes|3|");
    talk.ok(G3, Op::Write, "a|");
    talk.ok(G3, Op::Write, "b|");
    let transaction = talk.start(G3);
    talk.ok_in(G3, transaction, Op::Rm, "a|");
    talk.ok_in(G3, transaction, Op::Write, "c|");
    talk.commit(G3, transaction).unwrap();
    assert_eq!(talk.store.quota_counts(3).nodes, 3);
}

#[rstest]
fn growth_inside_and_outside_counts_together_at_the_commit(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::SetQuota, "3|nodes|4|");
    let (grows, shrinks) = (talk.start(G3), talk.start(G3));
    talk.ok_in(G3, grows, Op::Write, "a|");
    talk.ok_in(G3, grows, Op::Write, "b|");
    talk.ok(G3, Op::Write, "c|");
    talk.ok(G3, Op::Write, "d|");
    assert_eq!(talk.commit(G3, grows), Err(XsError::NoSpc));
    talk.ok(A, Op::SetQuota, "3|nodes|1|");
    talk.ok_in(G3, shrinks, Op::SetPerms, "/local/domain/3|n3|r4|");
    talk.commit(G3, shrinks).unwrap();
}

#[rstest]
fn a_node_that_was_removed_and_made_again_along_the_way_changed(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/a/b|1");
    talk.ok(B, Op::Watch, "/a/b|t|");
    talk.paths(B);
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Rm, "/a|");
    talk.ok_in(A, transaction, Op::Write, "/a/b/c|1");
    talk.commit(A, transaction).unwrap();
    assert_eq!(talk.ok(A, Op::Read, "/a/b|"), "", "its value is gone");
    assert_eq!(talk.paths(B), ["/a/b", "/a/b/c"]);
}

#[rstest]
fn a_tree_removed_piece_by_piece_tells_of_each_node_once(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/a/b/c|1");
    talk.ok(B, Op::Watch, "/a/b/c|t|");
    talk.paths(B);
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Rm, "/a/b|");
    talk.ok_in(A, transaction, Op::Rm, "/a|");
    talk.commit(A, transaction).unwrap();
    assert_eq!(talk.paths(B), ["/a/b/c"]);
}

#[rstest]
fn a_right_lost_before_the_commit_shows_nothing_of_it(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/a|1");
    talk.ok(A, Op::SetPerms, "/a|r0|");
    talk.ok(G3, Op::Watch, "/a|t|");
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::Write, "/a|2");
    talk.ok(A, Op::SetPerms, "/a|n0|");
    assert_eq!(talk.paths(G3), ["/a", "/a"], "the first event, and the loss of the right");
    talk.commit(A, transaction).unwrap();
    assert!(talk.paths(G3).is_empty());
}

#[rstest]
fn rights_given_in_a_transaction_to_a_domain_that_died_do_not_pass_to_the_next(#[values(model, engine)] make: Make) {
    for list in ["/x|n0|r4|", "/x|n4|"] {
        let mut talk = Talk::on(make());
        talk.ok(A, Op::Write, "/x|1");
        let transaction = talk.start(A);
        talk.ok_in(A, transaction, Op::SetPerms, list);
        talk.host(HostEvent::Destroyed(4));
        talk.host(HostEvent::Exists(4));
        talk.ok(A, Op::Introduce, "4|1|1|");
        let _ = talk.commit(A, transaction);
        assert_eq!(talk.ask(G4, Op::Read, "/x|"), Err(XsError::Access), "{list}");
        assert_eq!(talk.store.quota_counts(4).nodes, 0, "{list}");
    }
}
