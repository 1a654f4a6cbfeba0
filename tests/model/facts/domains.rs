//! Domains: their coming and going, targets, features.

use super::{Make, engine, model};
use crate::{
    adapter::{Counts, HostEvent},
    talk::{A, B, G3, G4, Talk},
};
use rstest::rstest;
use xenstore_wire::{Op, XsError};

#[rstest]
fn a_new_domain_is_told_of_once_to_each_kind_of_watcher(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(B, Op::Watch, "@introduceDomain|generic|");
    talk.ok(B, Op::Watch, "@introduceDomain|each|1|");
    talk.ok(G3, Op::Watch, "@introduceDomain|t|");
    talk.events(B);
    talk.ok(A, Op::Introduce, "5|1|1|");
    assert_eq!(talk.paths(B), ["@introduceDomain", "@introduceDomain/5"]);
    assert_eq!(talk.paths(G3), ["@introduceDomain"], "only the first event, for want of the right");
    talk.ok(A, Op::Introduce, "5|2|2|");
    assert!(talk.paths(B).is_empty(), "known already");
    talk.ok(A, Op::SetPerms, "@introduceDomain|n0|r3|");
    talk.ok(A, Op::Introduce, "6|1|1|");
    assert_eq!(talk.paths(G3), ["@introduceDomain"]);
}

#[rstest]
fn a_shutdown_is_told_of_once_until_resume(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(B, Op::Watch, "@releaseDomain|generic|");
    talk.ok(B, Op::Watch, "@releaseDomain|each|1|");
    talk.ok(B, Op::Watch, "@releaseDomain/3|three|");
    talk.ok(B, Op::Watch, "@releaseDomain/4|four|");
    talk.events(B);
    talk.host(HostEvent::Shutdown(3));
    talk.host(HostEvent::Shutdown(3));
    let pair = |path: &str, token: &str| (path.to_owned(), token.to_owned());
    assert_eq!(
        talk.events(B),
        [pair("@releaseDomain/3", "each"), pair("@releaseDomain/3", "three"), pair("@releaseDomain", "generic")]
    );
    talk.ok(A, Op::Resume, "3|");
    talk.host(HostEvent::Shutdown(3));
    assert_eq!(talk.events(B).len(), 3);
    talk.host(HostEvent::Destroyed(3));
    assert_eq!(
        talk.events(B),
        [pair("@releaseDomain", "generic"), pair("@releaseDomain/3", "each"), pair("@releaseDomain/3", "three")]
    );
    talk.host(HostEvent::Shutdown(9));
    talk.host(HostEvent::Destroyed(9));
    assert!(talk.events(B).is_empty(), "it was never introduced");
}

#[rstest]
fn a_dead_domains_nodes_go_before_its_end_is_told(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Write, "x/y|1");
    talk.ok(A, Op::Write, "/shared|1");
    talk.ok(A, Op::SetPerms, "/shared|n0|r4|r3|w3|");
    talk.ok(A, Op::SetPerms, "@introduceDomain|n0|r3|");
    talk.ok(A, Op::Write, "/local/domain/3/of4|1");
    talk.ok(A, Op::SetPerms, "/local/domain/3/of4|n4|");
    talk.ok(B, Op::Watch, "/|t|");
    talk.ok(B, Op::Watch, "/local/domain/3/x|u|");
    talk.ok(B, Op::Watch, "@releaseDomain|t|");
    talk.events(B);
    talk.host(HostEvent::Destroyed(3));
    assert_eq!(talk.paths(B), ["/local/domain/3/x", "/local/domain/3", "@releaseDomain"]);
    assert_eq!(talk.ok(A, Op::GetPerms, "/shared|"), "n0|r4|");
    assert_eq!(talk.ok(A, Op::GetPerms, "@introduceDomain|"), "n0|");
    assert_eq!((talk.store.quota_counts(3).nodes, talk.store.quota_counts(4).nodes), (0, 1));
    assert_eq!(talk.ok(A, Op::IsDomainIntroduced, "3|"), "F|");
    assert_eq!(talk.ok(A, Op::GetDomainPath, "3|"), "/local/domain/3|");
}

#[rstest]
fn release_forgets_a_domain_and_introduce_starts_it_afresh(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Watch, "/x|t|");
    talk.ok(A, Op::SetQuota, "3|nodes|5|");
    talk.ok(A, Op::Release, "3|");
    assert_eq!(talk.ask(A, Op::Release, "3|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::Release, "0|"), Err(XsError::Inval));
    assert_eq!(talk.ask(A, Op::Resume, "3|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::Directory, "/local/domain/3|"), Err(XsError::NoEnt));
    talk.ok(A, Op::Introduce, "3|1|1|");
    assert_eq!(talk.ok(A, Op::GetQuota, "3|nodes|"), "1000|");
    assert_eq!(talk.store.quota_counts(3), Counts::default());
    assert_eq!(talk.ask(A, Op::Introduce, "3|1|0|"), Err(XsError::Inval));
    assert_eq!(talk.ask(A, Op::Introduce, "3|1|x|"), Err(XsError::Inval));
}

#[rstest]
fn a_second_introduce_drops_watches_and_transactions(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Watch, "/x|t|");
    let transaction = talk.start(G3);
    talk.ok(A, Op::Introduce, "3|1|9|");
    assert_eq!(talk.ask_in(G3, transaction, Op::Read, "x|"), Err(XsError::NoEnt));
    let counts = talk.store.quota_counts(3);
    assert_eq!((counts.watches, counts.transactions, counts.nodes), (0, 0, 1));
}

#[rstest]
fn a_target_gives_rights_until_it_goes(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Write, "x|1");
    assert_eq!(talk.ask(G4, Op::Read, "/local/domain/3/x|"), Err(XsError::Access));
    talk.ok(A, Op::SetTarget, "4|3|");
    talk.ok(G4, Op::Write, "/local/domain/3/mine|1");
    assert_eq!(talk.ok(A, Op::GetPerms, "/local/domain/3/mine|"), "n4|");
    talk.ok(G4, Op::SetPerms, "/local/domain/3/x|n3|r4|");
    assert_eq!(talk.ask(G3, Op::Read, "/local/domain/4|"), Err(XsError::Access), "not the other way round");
    assert_eq!(talk.ask(A, Op::SetTarget, "4|9|"), Err(XsError::Inval), "it has no ring");
    assert_eq!(talk.ask(A, Op::SetTarget, "4|1234|"), Err(XsError::NoEnt), "there is no such domain");
    talk.ok(A, Op::Release, "3|");
    talk.ok(A, Op::Introduce, "3|1|1|");
    talk.ok(A, Op::Write, "/new|1");
    talk.ok(A, Op::SetPerms, "/new|n3|");
    assert_eq!(talk.ask(G4, Op::Read, "/new|"), Err(XsError::Access));
}

#[rstest]
fn features_are_set_before_introduction_and_hold(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    assert_eq!(talk.ok(A, Op::GetFeature, ""), "15|");
    assert_eq!(talk.ok(A, Op::GetFeature, "9|"), "15|", "known to the host is enough");
    assert_eq!(talk.ask(A, Op::GetFeature, "1234|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::GetFeature, "3|x|"), Err(XsError::Inval));
    assert_eq!(talk.ask(A, Op::SetFeature, "3|2|"), Err(XsError::Busy));
    assert_eq!(talk.ask(A, Op::SetFeature, "9|16|"), Err(XsError::Inval));
    assert_eq!(talk.ask(A, Op::SetFeature, "1234|2|"), Err(XsError::NoEnt));
    talk.ok(A, Op::Release, "3|");
    talk.ok(A, Op::SetFeature, "3|2|");
    talk.ok(A, Op::Introduce, "3|1|1|");
    assert_eq!(talk.ok(G3, Op::GetFeature, ""), "2|");
    assert_eq!(talk.ask(G3, Op::Watch, "x|t|1|"), Err(XsError::Inval));
    talk.ok(A, Op::Mkdir, "/local/domain/3|");
    talk.ok(A, Op::SetPerms, "/local/domain/3|n3|");
    assert_eq!(talk.ask(G3, Op::SetPerms, "/local/domain/3|n3|r32757|"), Err(XsError::Inval));
    talk.ok(A, Op::SetPerms, "/local/domain/3|n3|r32757|");
    talk.ok(G4, Op::Read, "/local/domain/3|");
}

#[rstest]
fn rights_from_before_introduction_stay_and_those_of_the_dead_do_not_return(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/x|1");
    talk.ok(A, Op::SetPerms, "/x|n0|r4|");
    talk.host(HostEvent::Destroyed(4));
    talk.host(HostEvent::Exists(4));
    talk.ok(A, Op::Write, "/y|1");
    talk.ok(A, Op::SetPerms, "/y|n0|r4|");
    talk.ok(A, Op::Introduce, "4|1|1|");
    assert_eq!(talk.ask(G4, Op::Read, "/x|"), Err(XsError::Access));
    talk.ok(G4, Op::Read, "/y|");
}

#[rstest]
fn numbers_that_no_domain_has_are_malformed(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for op in [Op::Release, Op::Resume] {
        assert_eq!(talk.ask(A, op, "65535|"), Err(XsError::Inval), "{}", op.name());
        assert_eq!(talk.ask(A, op, "1234|"), Err(XsError::NoEnt), "{}", op.name());
    }
}

#[rstest]
fn rights_given_between_release_and_introduce_hold(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Release, "4|");
    talk.ok(A, Op::Write, "/x|1");
    talk.ok(A, Op::SetPerms, "/x|n0|r4|");
    talk.ok(A, Op::Introduce, "4|1|1|");
    talk.ok(G4, Op::Read, "/x|");
}
