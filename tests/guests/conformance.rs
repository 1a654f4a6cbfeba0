//! The scripted conversations that need guests.

use crate::scene::Scene;
use crate::{case, player};
use rstest::rstest;
use std::collections::BTreeSet;
use xenstored_tests::Store;

/// Domains that the cases may speak as.
const DOMIDS: &[u16] = &[1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Cases that C xenstored 4.17 fails: it has no features and no quota requests, by which the cases of quotas set theirs;
/// special nodes have no permissions to read, and no entry stands for all domains.
const C_FAILS: &[&str] = &[
    "g29_priv_set_feature",
    "g29_priv_get_quota",
    "g29_priv_set_quota",
    "g29_priv_get_feature",
    "g29_own_features",
    "g66_tx_quota",
    "g79_node_quota",
    "g65_deep_write",
    "g_watch_quota",
    "g22_special_release",
    "g30_any_domain",
];

/// Makes one named test of every case; `-` in a case's id is `_` here.
macro_rules! cases {
    ($text:expr => $($id:ident)*) => {
        const TEXT: &str = $text;
        const IDS: &[&str] = &[$(stringify!($id)),*];

        #[rstest]
        $(#[case::$id(stringify!($id))])*
        fn conversation(#[case] id: &str, #[values(Store::Ours, Store::C)] store: Store) {
            hold(id, store);
        }
    };
}

cases! {
    include_str!("../conformance/cases/guests.json") =>
        g29_priv_introduce g29_priv_release g29_priv_is_domain_introduced g29_priv_resume g29_priv_set_target
        g29_priv_control g29_priv_set_feature g29_priv_get_quota g29_priv_set_quota g29_priv_get_feature
        g29_priv_malformed g29_own_features g_relative g18_owner g19_root g20_existence g21_events
        g21_lost_right g22_special g32_relative_watch g44_reset g_create_owner g_create_shared g_write_denied
        g_write_only g_neighbour g57_reset_in_tx g_tx g66_tx_quota g79_node_quota g65_deep_write g78_node_size
        g77_perm_count g_watch_quota g_split g_pipelined g_big_reply g22_special_release g30_any_domain
        g_introduced g28_target
}

/// Plays a case and checks that it holds, or that it fails where the peer is known to fail.
fn hold(id: &str, store: Store) {
    let cases = case::parse(TEXT);
    let case = cases.iter().find(|case| name(case) == id).unwrap_or_else(|| panic!("no case {id}"));
    assert!(case.needs_guest() || id == "g_introduced", "a case of sockets alone belongs to another file");
    let mut scene = Scene::of(store, DOMIDS);
    let played = player::play(case, &|name| match name.strip_prefix('g') {
        Some(domid) => scene.guest(domid.parse().expect("a guest's name is g and its domid")),
        None => scene.dom0(),
    });
    match (store == Store::C && C_FAILS.contains(&id), played) {
        (false, played) => played.unwrap_or_else(|wrong| panic!("{wrong}")),
        (true, played) => assert!(played.is_err(), "the peer is not known to get this right"),
    }
    scene.assert_alive();
}

fn name(case: &case::Case) -> String {
    case.id.replace('-', "_")
}

#[test]
fn every_case_of_the_file_is_a_test() {
    let in_file: BTreeSet<String> = case::parse(TEXT).iter().map(name).collect();
    let tested: BTreeSet<String> = IDS.iter().map(|&id| id.into()).collect();
    assert_eq!(in_file, tested);
}
