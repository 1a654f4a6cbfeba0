//! Watches: who hears what, in which order.

use super::{Make, engine, model};
use crate::talk::{A, B, G3, Talk};
use rstest::rstest;
use xenstore_wire::{Op, XsError};

#[rstest]
fn the_depth_is_no_part_of_a_watchs_identity(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Watch, "/a|t|1|");
    assert_eq!(talk.ask(A, Op::Watch, "/a|t|"), Err(XsError::Exist));
    for bad in ["/b|t|-1|", "/b|t|x|", "/b|t||", "/b|t|65535|", "/b|t|1|1|", "/b|"] {
        assert_eq!(talk.ask(A, Op::Watch, bad), Err(XsError::Inval), "{bad}");
    }
}

#[rstest]
fn a_relative_watch_goes_by_its_absolute_name_too(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Watch, "device|t|");
    assert_eq!(talk.ask(G3, Op::Watch, "/local/domain/3/device|t|"), Err(XsError::Exist));
    talk.ok(A, Op::Write, "/local/domain/3/device/x|1");
    assert_eq!(talk.paths(G3), ["device", "device/x"]);
    talk.ok(G3, Op::Unwatch, "/local/domain/3/device|t|");
    assert_eq!(talk.ask(G3, Op::Unwatch, "device|t|"), Err(XsError::NoEnt));
}

#[rstest]
fn any_special_name_may_be_watched_and_tells_once(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Watch, "@foo|t|");
    talk.ok(A, Op::Introduce, "5|1|1|");
    talk.ok(A, Op::Release, "5|");
    assert_eq!(talk.paths(A), ["@foo"]);
}

#[rstest]
fn a_removed_tree_tells_each_watch_once(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(B, Op::Write, "/a/b/c|1");
    talk.ok(B, Op::Write, "/a/b/d|1");
    for path in ["/", "/a", "/a/b", "/a/b/c", "/a/b/none"] {
        talk.ok(A, Op::Watch, &format!("{path}|{path}|"));
    }
    talk.paths(A);
    talk.ok(B, Op::Rm, "/a|");
    let pair = |path: &str, token: &str| (path.to_owned(), token.to_owned());
    assert_eq!(talk.events(A), [pair("/a/b/c", "/a/b/c"), pair("/a/b", "/a/b"), pair("/a", "/"), pair("/a", "/a")]);
}

#[rstest]
fn a_depth_limits_how_far_below_a_watch_hears(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for depth in 0..3 {
        talk.ok(A, Op::Watch, &format!("/|{depth}|{depth}|"));
    }
    talk.events(A);
    for path in ["/|", "/a|", "/a/b|", "/a/b/c|"] {
        talk.ok(B, Op::Write, path);
    }
    let heard: Vec<_> = talk.events(A).into_iter().map(|(path, token)| format!("{token}:{path}")).collect();
    assert_eq!(heard, ["0:/", "1:/", "2:/", "1:/a", "2:/a", "2:/a/b"]);
}

#[rstest]
fn an_event_that_no_message_holds_is_lost_and_nothing_else(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Watch, &format!("/|{}|", "t".repeat(4090)));
    talk.ok(A, Op::Watch, "/|u|");
    talk.events(A);
    talk.ok(B, Op::Write, "/abcd|1");
    assert_eq!(talk.events(A), [("/abcd".to_owned(), "u".to_owned())]);
}

#[rstest]
fn special_watches_take_no_depth_but_one(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Watch, "@releaseDomain|t|1|");
    for depth in [0, 2] {
        assert_eq!(talk.ask(A, Op::Watch, &format!("@releaseDomain|u|{depth}|")), Err(XsError::Inval));
    }
}

#[rstest]
fn a_removed_node_is_judged_as_it_was(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Watch, "/|t|");
    talk.ok(A, Op::Write, "/s/open|1");
    talk.ok(A, Op::Write, "/s/shut|1");
    talk.ok(A, Op::SetPerms, "/s/open|r0|");
    assert_eq!(talk.paths(G3), ["/", "/s/open"]);
    talk.ok(A, Op::Rm, "/s/open|");
    talk.ok(A, Op::Rm, "/s/shut|");
    assert_eq!(talk.paths(G3), ["/s/open"]);
}

#[rstest]
fn reset_drops_the_callers_watches_and_transactions(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Watch, "/a|t|");
    talk.ok(B, Op::Watch, "/a|t|");
    let transaction = talk.start(A);
    talk.ok_in(A, transaction, Op::ResetWatches, "|");
    assert_eq!(talk.ask_in(A, transaction, Op::Read, "/|"), Err(XsError::NoEnt));
    talk.ok(B, Op::Write, "/a|1");
    assert_eq!(talk.paths(A), ["/a"]);
    assert_eq!(talk.paths(B), ["/a", "/a"]);
}
