//! Parsing, paths, permissions, listings.

use super::{Make, engine, model};
use crate::talk::{A, B, G3, G4, Talk};
use rstest::rstest;
use xenstore_wire::{Op, PAYLOAD_MAX, XsError};

#[rstest]
fn privilege_is_checked_before_the_transaction_and_that_before_the_arguments(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    assert_eq!(talk.ask_in(G3, 99, Op::Introduce, "x"), Err(XsError::Access));
    assert_eq!(talk.ask_in(A, 99, Op::Introduce, "x"), Err(XsError::NoEnt));
    assert_eq!(talk.ask_in(A, 99, Op::GetDomainPath, "1|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask_in(A, 99, Op::Control, "help|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask_in(A, 99, Op::TransactionStart, "|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask_in(A, 99, Op::WatchEvent, "|"), Err(XsError::NoSys));
    assert_eq!(talk.ask(A, Op::Introduce, "x"), Err(XsError::Inval));
}

#[rstest]
fn one_string_is_one_nul_at_the_end(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for bad in ["", "/", "/|/|", "||", "/|x"] {
        assert_eq!(talk.ask(A, Op::Read, bad), Err(XsError::Inval), "{bad}");
    }
    assert_eq!(talk.ask(A, Op::Read, "/|"), Ok(String::new()));
}

#[rstest]
fn a_privileged_path_may_be_as_long_as_a_message(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    let long = format!("/{}", "a".repeat(4090));
    talk.ok(A, Op::Write, &format!("{long}|v"));
    assert_eq!(talk.ok(A, Op::Read, &format!("{long}|")), "v");
    assert_eq!(talk.ask(A, Op::Read, "/local/domain/|"), Err(XsError::Inval));
}

#[rstest]
fn a_guests_path_is_measured_behind_its_home(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    let longest = format!("{}/{}", "a".repeat(1000), "a".repeat(1047));
    talk.ok(G3, Op::Mkdir, &format!("{longest}|"));
    talk.ok(G3, Op::Mkdir, &format!("/local/domain/3/{longest}|"));
    assert_eq!(talk.ask(G3, Op::Mkdir, &format!("{longest}a|")), Err(XsError::Inval));
    assert_eq!(talk.ask(G3, Op::Read, &format!("/{longest}|")), Err(XsError::Inval));
}

#[rstest]
fn relative_paths_of_sockets_are_those_of_domain_0(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "rel/x|1");
    assert_eq!(talk.ok(B, Op::Read, "/local/domain/0/rel/x|"), "1");
}

#[rstest]
fn rm_of_nothing_is_fine_below_a_node_and_only_there(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Rm, "/none|");
    assert_eq!(talk.ask(A, Op::Rm, "/none/x|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::Rm, "/|"), Err(XsError::Inval));
}

#[rstest]
fn special_nodes_have_permissions_and_nothing_else(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    assert_eq!(talk.ok(A, Op::GetPerms, "@introduceDomain|"), "n0|");
    assert_eq!(talk.ok(A, Op::GetPerms, "@releaseDomain|"), "n0|r32757|");
    assert_eq!(talk.ask(A, Op::GetPerms, "@releaseDomain/5|"), Err(XsError::NoEnt));
    for op in [Op::Read, Op::Directory, Op::Mkdir, Op::Rm] {
        assert_eq!(talk.ask(A, op, "@releaseDomain|"), Err(XsError::Inval), "{}", op.name());
    }
    assert_eq!(talk.ok(A, Op::Directory, "/|"), "local|tool|");
}

#[rstest]
fn what_may_not_be_seen_is_denied_whether_it_is_there_or_not(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(A, Op::Write, "/s/x|1");
    for path in ["/s/x|", "/s/none|", "/none|", "/s/x/y/z|"] {
        assert_eq!(talk.ask(G3, Op::Read, path), Err(XsError::Access), "{path}");
    }
    talk.ok(A, Op::SetPerms, "/s|r0|");
    assert_eq!(talk.ask(G3, Op::Read, "/s/none|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(G3, Op::Read, "/s/x|"), Err(XsError::Access));
    assert_eq!(talk.ask(G3, Op::Rm, "/s/none|"), Err(XsError::Access));
    assert_eq!(talk.ask(G3, Op::Read, "none|"), Err(XsError::NoEnt));
    for op in [Op::Read, Op::GetPerms, Op::Directory, Op::Rm, Op::Mkdir, Op::Write] {
        assert_eq!(talk.ask(G3, op, "/|"), Err(XsError::Access), "{}", op.name());
        assert_eq!(talk.ask(G3, op, "/none/x|"), Err(XsError::Access), "{}", op.name());
    }
    assert_eq!(talk.ask(G3, Op::SetPerms, "/none|n3|"), Err(XsError::Access));
    assert_eq!(talk.ask(G3, Op::SetPerms, "none|n3|"), Err(XsError::NoEnt));
}

#[rstest]
fn only_the_privileged_give_nodes_away_and_only_to_domains_that_exist(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.ok(G3, Op::Write, "x|1");
    assert_eq!(talk.ask(G3, Op::SetPerms, "x|n4|"), Err(XsError::Perm));
    assert_eq!(talk.ask(G3, Op::SetPerms, "x|n1234|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(A, Op::SetPerms, "/local/domain/3/x|n1234|"), Err(XsError::NoEnt));
    assert_eq!(talk.ask(G4, Op::SetPerms, "/local/domain/3/x|n4|"), Err(XsError::Access));
    talk.ok(A, Op::SetPerms, "/local/domain/3/x|n4|");
    assert_eq!((talk.store.quota_counts(3).nodes, talk.store.quota_counts(4).nodes), (1, 2));
}

#[rstest]
fn malformed_permissions_are_refused_before_the_node_is_looked_at(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for bad in ["/none|x0|", "/none|n|", "/none|", "/none|n0|r0x1|", "/none|n0|r70000|"] {
        assert_eq!(talk.ask(A, Op::SetPerms, bad), Err(XsError::Inval), "{bad}");
    }
    assert_eq!(talk.ask(A, Op::SetPerms, "/none|n0|"), Err(XsError::NoEnt));
}

#[rstest]
fn rights_for_a_domain_that_does_not_exist_never_come_to_life(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    talk.store.host_event(crate::adapter::HostEvent::Destroyed(4));
    talk.ok(A, Op::Write, "/x|1");
    talk.ok(A, Op::SetPerms, "/x|n0|r4|");
    assert_eq!(talk.ok(A, Op::GetPerms, "/x|"), "n0|r4|");
    talk.store.host_event(crate::adapter::HostEvent::Exists(4));
    talk.ok(A, Op::Introduce, "4|1|1|");
    assert_eq!(talk.ask(G4, Op::Read, "/x|"), Err(XsError::Access));
    talk.ok(A, Op::SetPerms, "/x|n0|r4|");
    talk.ok(G4, Op::Read, "/x|");
}

#[rstest]
fn a_long_list_comes_in_parts_of_whole_names(#[values(model, engine)] make: Make) {
    let mut talk = Talk::on(make());
    for number in 0..700 {
        talk.ok(A, Op::Mkdir, &format!("/d/node{number:04}|"));
    }
    assert_eq!(talk.ask(A, Op::Directory, "/d|"), Err(XsError::TooBig));
    let mut names = Vec::new();
    let mut offset = 0;
    loop {
        let part = talk.ok(A, Op::DirectoryPart, &format!("/d|{offset}|"));
        let (_, list) = part.split_once('|').unwrap();
        let ends = list.ends_with("||");
        assert!(ends || (part.len() < PAYLOAD_MAX && part.len() + 9 >= PAYLOAD_MAX), "as many names as fit");
        let list = if ends { &list[..list.len() - 1] } else { list };
        names.extend(list.split_terminator('|').map(str::to_owned));
        offset += list.len();
        if ends {
            break;
        }
    }
    assert_eq!(names, (0..700).map(|number| format!("node{number:04}")).collect::<Vec<_>>());
    assert!(talk.ok(A, Op::DirectoryPart, &format!("/d|{offset}|")).ends_with("||"));
    for bad in ["/d|", "/d|0|x|", "/d|x|", "/d||"] {
        assert_eq!(talk.ask(A, Op::DirectoryPart, bad), Err(XsError::Inval), "{bad}");
    }
}
