//! Random steps: few names, few domains and few tokens, so that requests meet each other.

use crate::adapter::{Conn, HostEvent};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use std::{fmt, ops::Range};
use xenstore_wire::Op;

/// The transaction that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within {
    /// None.
    Nothing,
    /// One of those that the connection has open, if it has any; a TRANSACTION_END goes to whoever has one.
    Open(u8),
    /// An id that nobody has.
    Unknown,
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request arrives.
    Request {
        /// From whom.
        conn: Conn,
        /// In which transaction.
        within: Within,
        /// Message type.
        op: Op,
        /// All of it, spelled with `|` for NUL.
        payload: String,
    },
    /// The same for many children of one node, so that it becomes a wide directory or a narrow one again.
    Many {
        /// From whom.
        conn: Conn,
        /// In which transaction.
        within: Within,
        /// WRITE or RM.
        op: Op,
        /// Numbers in the children's names.
        numbers: Range<u8>,
    },
    /// A socket client goes and comes again.
    Reconnect(u16),
    /// The host reports on a domain.
    Host(HostEvent),
    /// The engine is saved, and another restored.
    Restart,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { conn, within, op, payload } => {
                write!(f, "{conn:?} {} {payload}", op.name())?;
                if matches!(within, Within::Nothing) { Ok(()) } else { write!(f, " within {within:?}") }
            }
            Self::Many { conn, within, op, numbers } => {
                write!(f, "{conn:?} {} /w/n{numbers:?} within {within:?}", op.name())
            }
            Self::Reconnect(number) => write!(f, "socket {number} reconnects"),
            Self::Host(event) => write!(f, "{event:?}"),
            Self::Restart => write!(f, "restart"),
        }
    }
}

/// The domains that steps are about: three that are introduced at the start, and one that is not.
pub(crate) const DOMAINS: [u16; 4] = [1, 2, 3, 4];

fn conn() -> BoxedStrategy<Conn> {
    prop_oneof![
        4 => Just(Conn::Socket(0)),
        2 => Just(Conn::Socket(1)),
        4 => Just(Conn::Domain(1)),
        3 => Just(Conn::Domain(2)),
        1 => Just(Conn::Domain(3)),
        1 => Just(Conn::Domain(4)),
    ]
    .boxed()
}

fn within() -> BoxedStrategy<Within> {
    prop_oneof![
        10 => Just(Within::Nothing),
        12 => any::<u8>().prop_map(Within::Open),
        1 => Just(Within::Unknown),
    ]
    .boxed()
}

/// For what makes sense in a transaction only.
fn within_one() -> BoxedStrategy<Within> {
    prop_oneof![30 => any::<u8>().prop_map(Within::Open), 1 => Just(Within::Nothing), 1 => Just(Within::Unknown)]
        .boxed()
}

/// A path of a node, now and then an ill-formed or a special one.
fn path() -> BoxedStrategy<String> {
    let absolute = select(vec![
        "/",
        "/w",
        "/w/n7",
        "/a",
        "/a",
        "/a/b",
        "/a/b",
        "/a/b/c",
        "/a/b-",
        "/a/d",
        "/s",
        "/s/x",
        "/s/x/y",
        "/tool",
        "/local/domain",
    ]);
    let home = (select(vec![1u16, 1, 2, 2, 3, 4]), select(vec!["", "", "/d", "/d/x", "/d/x/y", "/e"]))
        .prop_map(|(domid, rest)| format!("/local/domain/{domid}{rest}"));
    let relative = select(vec!["d", "d/x", "d/x/y", "e", "f"]);
    let odd = select(vec![
        "",
        "//",
        "/a/",
        "/a//b",
        "/a b",
        "@introduceDomain",
        "@releaseDomain",
        "@releaseDomain/1",
        "@other",
        "/local/domain/",
        "/a/long-name-that-a-low-path-quota-stops",
    ]);
    let hot = select(vec!["/a/b", "/a/b", "/a/b/c", "/a/d", "/w/n7", "/local/domain/1/d", "/local/domain/2/d/x"]);
    prop_oneof![
        12 => hot.prop_map(str::to_owned),
        8 => absolute.prop_map(str::to_owned),
        6 => home,
        5 => relative.prop_map(str::to_owned),
        1 => odd.prop_map(str::to_owned),
    ]
    .boxed()
}

/// A path to remove: seldom one near the root, for little is left then.
fn removed() -> BoxedStrategy<String> {
    let small = select(vec!["/a/b", "/a/b/c", "/a/d", "/a/b-", "/w/n7", "/s/x", "d/x", "d", "/local/domain/2/d"]);
    prop_oneof![4 => small.prop_map(str::to_owned), 1 => path()].boxed()
}

fn permission() -> BoxedStrategy<String> {
    let domid =
        select(vec!["0", "1", "1", "2", "2", "3", "4", "9", "32757", "32752", "65535", "001", "65536", "-1", "x"]);
    let domid = prop_oneof![20 => select(vec!["0", "1", "2", "3", "4"]), 3 => domid];
    (select(vec!["n", "r", "w", "b", "b", "b", "r"]), domid)
        .prop_map(|(letter, domid)| format!("{letter}{domid}|"))
        .boxed()
}

fn permissions() -> BoxedStrategy<String> {
    let few = proptest::collection::vec(permission(), 1..4);
    let many = proptest::collection::vec(permission(), 4..8);
    prop_oneof![8 => few, 1 => many].prop_map(|entries| entries.concat()).boxed()
}

fn value() -> BoxedStrategy<String> {
    prop_oneof![
        6 => select(vec!["", "1", "2", "3"]).prop_map(str::to_owned),
        2 => (20usize..120).prop_map(|len| "v".repeat(len)),
    ]
    .boxed()
}

/// A request on nodes.
fn on_nodes() -> BoxedStrategy<(Op, String)> {
    prop_oneof![
        8 => (path(), value()).prop_map(|(path, value)| (Op::Write, format!("{path}|{value}"))),
        3 => path().prop_map(|path| (Op::Mkdir, format!("{path}|"))),
        4 => removed().prop_map(|path| (Op::Rm, format!("{path}|"))),
        4 => path().prop_map(|path| (Op::Read, format!("{path}|"))),
        2 => path().prop_map(|path| (Op::Directory, format!("{path}|"))),
        1 => (path(), select(vec!["0", "0", "2", "100", "x"]))
            .prop_map(|(path, offset)| (Op::DirectoryPart, format!("{path}|{offset}|"))),
        2 => path().prop_map(|path| (Op::GetPerms, format!("{path}|"))),
        4 => (path(), permissions()).prop_map(|(path, list)| (Op::SetPerms, format!("{path}|{list}"))),
    ]
    .boxed()
}

/// A request on watches.
fn on_watches() -> BoxedStrategy<(Op, String)> {
    let special = select(vec![
        "@introduceDomain",
        "@releaseDomain",
        "@releaseDomain/1",
        "@introduceDomain/4",
        "@releaseDomain/2",
        "@other",
    ]);
    let few = select(vec!["/", "/a", "/a/b", "/a/b/c", "/w", "d", "/local/domain/1", "/local/domain/2"]);
    let watched = prop_oneof![
        6 => few.prop_map(str::to_owned),
        2 => path(),
        2 => special.prop_map(str::to_owned),
    ]
    .boxed();
    let token = select(vec!["t", "t", "u", ""]);
    let depth = prop_oneof![4 => Just(""), 1 => select(vec!["0|", "1|", "1|", "2|", "x|", "65535|", "1|1|"])];
    prop_oneof![
        3 => (watched.clone(), token.clone(), depth)
            .prop_map(|(path, token, depth)| (Op::Watch, format!("{path}|{token}|{depth}"))),
        1 => (watched, token).prop_map(|(path, token)| (Op::Unwatch, format!("{path}|{token}|"))),
    ]
    .boxed()
}

/// A request on domains or quotas, which only sockets may make.
fn on_domains() -> BoxedStrategy<(Op, String)> {
    let domid =
        || prop_oneof![16 => select(vec!["1", "1", "2", "2", "3", "4"]), 1 => select(vec!["0", "9", "x", "32752", ""])];
    let limited = select(vec![
        ("nodes", 1..6u32),
        ("nodes", 2..6),
        ("nodes", 3..6),
        ("watches", 1..4),
        ("transactions", 1..3),
        ("node-permissions", 1..4),
        ("node-size", 30..90),
        ("path-max", 3..20),
        ("transaction-nodes", 1..6),
        ("memory", 60..300),
        ("memory", 60..300),
    ]);
    let limit = limited.prop_flat_map(|(name, range)| range.prop_map(move |value| format!("{name}|{value}|")));
    let lifted = select(vec![
        "nodes|0|",
        "watches|1000|",
        "memory|0|",
        "memory|0|",
        "transaction-nodes|0|",
        "node-size|2048|",
        "path-max|2048|",
        "nodes|x|",
        "none|1|",
    ]);
    let quota = prop_oneof![4 => limit, 1 => lifted.prop_map(str::to_owned)].boxed();
    let name = select(vec!["nodes", "watches", "node-size", "none"]);
    prop_oneof![
        3 => domid().prop_map(|domid| (Op::Introduce, format!("{domid}|1|1|"))),
        2 => domid().prop_map(|domid| (Op::Release, format!("{domid}|"))),
        1 => domid().prop_map(|domid| (Op::IsDomainIntroduced, format!("{domid}|"))),
        1 => domid().prop_map(|domid| (Op::GetDomainPath, format!("{domid}|"))),
        1 => domid().prop_map(|domid| (Op::Resume, format!("{domid}|"))),
        2 => (domid(), domid()).prop_map(|(of, to)| (Op::SetTarget, format!("{of}|{to}|"))),
        1 => (domid(), select(vec!["0", "2", "4", "12", "14", "1", "x"]))
            .prop_map(|(domid, bits)| (Op::SetFeature, format!("{domid}|{bits}|"))),
        1 => domid().prop_map(|domid| (Op::GetFeature, format!("{domid}|"))),
        6 => (domid(), quota.clone()).prop_map(|(domid, quota)| (Op::SetQuota, format!("{domid}|{quota}"))),
        1 => quota.clone().prop_map(|quota| (Op::SetQuota, quota)),
        1 => quota.prop_map(|quota| (Op::Control, format!("quota|set|{quota}"))),
        1 => (domid(), name.clone()).prop_map(|(domid, name)| (Op::GetQuota, format!("{domid}|{name}|"))),
        1 => name.prop_map(|name| (Op::GetQuota, format!("{name}|"))),
        1 => Just((Op::GetQuota, String::new())),
    ]
    .boxed()
}

fn on_transactions() -> BoxedStrategy<(Op, String)> {
    prop_oneof![
        12 => Just((Op::TransactionEnd, "T|".to_owned())),
        1 => Just((Op::TransactionEnd, "F|".to_owned())),
        1 => select(vec!["", "X|", "T", "T||"]).prop_map(|flag| (Op::TransactionEnd, flag.to_owned())),
    ]
    .boxed()
}

/// Any step.
pub(crate) fn step() -> BoxedStrategy<Step> {
    let request = |conn: BoxedStrategy<Conn>, within: BoxedStrategy<Within>, what: BoxedStrategy<(Op, String)>| {
        (conn, within, what).prop_map(|(conn, within, (op, payload))| Step::Request { conn, within, op, payload })
    };
    let socket = || prop_oneof![10 => Just(Conn::Socket(0)), 1 => Just(Conn::Domain(1))].boxed();
    let rarely = || prop_oneof![20 => Just(Within::Nothing), 1 => Just(Within::Open(0))].boxed();
    let start = Just((Op::TransactionStart, "|".to_owned())).boxed();
    let own =
        prop_oneof![2 => Just((Op::GetFeature, String::new())), 1 => Just((Op::ResetWatches, "|".to_owned()))].boxed();
    let host = (select(DOMAINS.to_vec()), 0..3).prop_map(|(domid, what)| {
        Step::Host(match what {
            0 => HostEvent::Exists(domid),
            1 => HostEvent::Shutdown(domid),
            _ => HostEvent::Destroyed(domid),
        })
    });
    let many = (conn(), within(), select(vec![Op::Write, Op::Write, Op::Rm]), 0u8..60, 1u8..45)
        .prop_map(|(conn, within, op, from, count)| Step::Many { conn, within, op, numbers: from..from + count });
    prop_oneof![
        1 => many,
        40 => request(conn(), within(), on_nodes()),
        7 => request(conn(), rarely(), on_watches()),
        6 => request(conn(), rarely(), start),
        7 => request(conn(), within_one(), on_transactions()),
        6 => request(socket(), rarely(), on_domains()),
        1 => request(conn(), within(), own),
        1 => (0u16..2).prop_map(Step::Reconnect),
        2 => host,
        2 => Just(Step::Restart),
    ]
    .boxed()
}

/// Steps that bring a store where random steps have something to meet.
pub(crate) fn opening() -> Vec<Step> {
    let request =
        |op: Op, payload: String| Step::Request { conn: Conn::Socket(0), within: Within::Nothing, op, payload };
    let mut steps: Vec<_> = DOMAINS.map(|domid| Step::Host(HostEvent::Exists(domid))).into();
    for domid in [1, 2, 3] {
        steps.push(request(Op::Introduce, format!("{domid}|1|1|")));
        steps.push(request(Op::Mkdir, format!("/local/domain/{domid}|")));
        steps.push(request(Op::SetPerms, format!("/local/domain/{domid}|n{domid}|")));
    }
    steps.push(request(Op::Write, "/a/b|1".to_owned()));
    steps.push(request(Op::Write, "/w|".to_owned()));
    steps.push(request(Op::SetPerms, "/w|b0|".to_owned()));
    steps.push(request(Op::SetPerms, "/a|b0|".to_owned()));
    steps.push(request(Op::SetPerms, "/a/b|n0|b1|r2|".to_owned()));
    steps
}
