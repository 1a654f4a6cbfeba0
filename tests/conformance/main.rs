//! Scripted conversations with a daemon, and the answers that are right.
//!
//! The cases are data (`cases/`, format in [`case`]); each one that needs no guest is a test of its own, against our
//! daemon and against Debian's C xenstored. What the latter is known to get wrong is listed, so that the player itself
//! is tested: it must see exactly those.

mod case;
mod player;

use rstest::rstest;
use std::collections::BTreeSet;
use xenstored_tests::{Backend, Daemon};

/// Cases that C xenstored 4.17 fails: it has no features, no quota requests and no watch depth; it takes loose numbers,
/// refuses the longest path, lets siblings conflict, reads each node of a transaction at its own moment, and answers a
/// payload without its NUL by whatever error the last call left (right after its start, ENOENT).
const C_FAILS: &[&str] = &[
    "path_3072",
    "no_nul",
    "empty_payload",
    "f02_empty_body",
    "features",
    "quota_names",
    "quota_global",
    "watch_depth_0",
    "watch_depth_1",
    "f12_perm_domids",
    "f13_domids",
    "f13_domids_strict",
    "f50_siblings",
    "f52_read_only",
];

/// Makes one named test of every case of a file; `-` in a case's id is `_` here.
macro_rules! cases {
    ($file:ident $text:expr => $($id:ident)*) => {
        mod $file {
            use super::*;

            pub(super) const TEXT: &str = $text;
            pub(super) const IDS: &[&str] = &[$(stringify!($id)),*];

            #[rstest]
            $(#[case::$id(stringify!($id))])*
            fn conversation(#[case] id: &str, #[values(Backend::Ours, Backend::C)] backend: Backend) {
                hold(TEXT, id, backend);
            }
        }
    };
}

cases! {
    protocol include_str!("cases/protocol.json") =>
        basic_write_read basic_binary_value basic_empty_value basic_missing mkdir_keeps_value mkdir_makes_parents
        rm_recursive rm_missing_is_ok rm_missing_parent rm_root directory_lists_children directory_empty path_invalid_0
        path_invalid_1 path_invalid_2 path_invalid_3 path_invalid_4 path_invalid_5 path_invalid_6 path_invalid_7
        path_3072 path_at_sign_read no_nul empty_payload unknown_type reply_only_types payload_too_long payload_4096
        split_request unknown_tx perms_default perms_roundtrip perms_bad_letter perms_inherit_owner watch_initial
        watch_write watch_not_parent watch_rm_parent watch_two_tokens watch_duplicate unwatch watch_perms watch_mkdir
        watch_same_value watch_own_writes watch_special_unknown watch_introduce reset_watches tx_commit tx_abort
        tx_conflict tx_no_conflict tx_ended tx_not_mine tx_nested tx_events tx_end_bad_flag tx_end_without tx_read_only
        directory_part_small directory_too_big directory_part_beyond domain_path domain_not_introduced release_unknown
        resume_unknown introduce_malformed control_help control_unknown pipelined features quota_names quota_global
        watch_depth_0 watch_depth_1
}

cases! {
    field include_str!("cases/field.json") =>
        f01_trailing_read f01_trailing_directory f01_trailing_rm f01_trailing_mkdir f01_trailing_get_perms
        f01_write_watch f02_empty_body f03_zero_bytes f04_too_long_0 f04_too_long_1 f04_too_long_2 f04_too_long_3
        f06_type_15 f06_type_16 f06_type_20 f06_type_27 f06_type_1000 f06_type_65535 f09_paths f10_watch_paths
        f12_perm_strings f12_perm_domids f12_perm_duplicates f13_domids f13_domids_strict f14_ids f17_write_bodies
        f31_initial f33_tokens f34_unwatch_gone f36_implicit_parents f38_commit_events f49_eagain f50_siblings
        f50_same_child f50_parent_deleted f52_read_only f57_reset_in_tx f58_ids f108_stable_listing
        tx_directory_then_sibling tx_rm_then_grandchild f109_part_offsets f169_many_connects
}

/// Plays a case and checks that it holds, or that it fails where the peer is known to fail.
fn hold(text: &str, id: &str, backend: Backend) {
    let cases = case::parse(text);
    let case = cases.iter().find(|case| name(case) == id).unwrap_or_else(|| panic!("no case {id}"));
    let mut daemon = Daemon::start(backend);
    let played = player::play(case, &|_| daemon.connect());
    match (backend == Backend::C && C_FAILS.contains(&id), played) {
        (false, played) => played.unwrap_or_else(|wrong| panic!("{wrong}")),
        (true, played) => assert!(played.is_err(), "the peer is not known to get this right"),
    }
    daemon.assert_alive();
}

fn name(case: &case::Case) -> String {
    case.id.replace('-', "_")
}

#[rstest]
#[case::protocol(protocol::TEXT, protocol::IDS)]
#[case::field(field::TEXT, field::IDS)]
fn every_case_of_the_file_is_a_test(#[case] text: &str, #[case] ids: &[&str]) {
    let in_file: BTreeSet<String> = case::parse(text).iter().map(name).collect();
    let tested: BTreeSet<String> = ids.iter().map(|&id| id.into()).collect();
    assert_eq!(in_file, tested);
}

#[test]
fn only_the_file_of_guests_needs_guests() {
    let needing = |text| case::parse(text).iter().filter(|case| case.needs_guest()).count();
    assert_eq!(needing(protocol::TEXT) + needing(field::TEXT), 0);
    assert_ne!(needing(include_str!("cases/guests.json")), 0);
}
