//! Requests made of fuzz input: mostly sensible, about few nodes, so that they meet each other.

use arbitrary::Arbitrary;
use xenstore_wire::Op;

/// A small number, as text on the wire now and then odd.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Number(u8);

/// A path in the few nodes that all requests are about.
#[derive(Arbitrary, Clone, Debug)]
pub enum Place {
    /// Names below the root.
    Absolute([u8; 3]),
    /// Names below a domain's home.
    Home(Number, [u8; 2]),
    /// Names below the caller's home.
    Relative([u8; 2]),
    /// The root.
    Root,
    /// `@introduceDomain` or `@releaseDomain`, perhaps of one domain.
    Special(bool, Option<Number>),
    /// One long name.
    Long(u16),
    /// So many levels.
    Deep(u8),
    /// Any bytes.
    Raw(Vec<u8>),
}

/// A request and its arguments.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "named as the protocol names them")]
pub enum Request {
    Directory(Place),
    DirectoryPart(Place, u16),
    Read(Place),
    Write(Place, u16),
    Mkdir(Place),
    Rm(Place),
    GetPerms(Place),
    SetPerms(Place, (u8, Number), Vec<(u8, Number)>),
    Watch(Place, u8, Option<Number>),
    Unwatch(Place, u8),
    ResetWatches,
    Start,
    End(bool),
    Introduce(Number),
    Release(Number),
    Resume(Number),
    SetTarget(Number, Number),
    GetDomainPath(Number),
    IsDomainIntroduced(Number),
    GetFeature(Option<Number>),
    SetFeature(Number, u8),
    GetQuota(Option<Number>, u8),
    SetQuota(Option<Number>, u8, u16),
    Control(u8, Option<u8>, Option<u16>),
    Raw(u32, Vec<u8>),
}

const NAMES: [&str; 9] = ["a", "b", "c", "local", "domain", "1", "2", "tool", "xenstored"];
const QUOTAS: [&str; 11] = [
    "nodes",
    "watches",
    "transactions",
    "outstanding",
    "transaction-nodes",
    "memory",
    "node-size",
    "path-max",
    "node-permissions",
    "soft-memory",
    "none",
];
const COMMANDS: [&str; 10] =
    ["check", "check", "log", "logfile", "memreport", "print", "quota", "quota-soft", "turns", "help"];
const WORDS: [&str; 8] = ["set", "max", "-r", "1", "2", "nodes", "memory", "on"];

impl Number {
    fn text(self) -> String {
        match self.0 {
            250 => "32752".to_owned(),
            251 => "32757".to_owned(),
            252 => "65535".to_owned(),
            253 => String::new(),
            254 => "-1".to_owned(),
            255 => "65536".to_owned(),
            small => (small % 6).to_string(),
        }
    }
}

impl Place {
    /// The path's bytes, without a NUL.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let names = |names: &[u8]| -> String {
            let few = names.iter().take_while(|&&name| name < 200);
            few.map(|&name| format!("/{}", NAMES[usize::from(name) % NAMES.len()])).collect()
        };
        let text = match self {
            Self::Absolute(below) => names(below),
            Self::Home(domid, below) => format!("/local/domain/{}{}", domid.text(), names(below)),
            Self::Relative(below) => names(below).get(1..).unwrap_or_default().to_owned(),
            Self::Root => "/".to_owned(),
            Self::Special(introduce, domid) => {
                let name = if *introduce { "@introduceDomain" } else { "@releaseDomain" };
                name.to_owned() + &domid.map_or_else(String::new, |domid| "/".to_owned() + &domid.text())
            }
            Self::Long(len) => "/".to_owned() + &"x".repeat(usize::from(*len % 4200)),
            Self::Deep(levels) => "/a".repeat(usize::from(*levels) * 8),
            Self::Raw(bytes) => return bytes.clone(),
        };
        text.into_bytes()
    }
}

/// Strings, each with its NUL.
fn strings(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied().chain([0])).collect()
}

fn entry((letter, domid): &(u8, Number)) -> Vec<u8> {
    [&b"nrwbx"[usize::from(*letter) % 5..][..1], domid.text().as_bytes()].concat()
}

impl Request {
    /// Type number and payload.
    #[must_use]
    pub fn message(&self) -> (u32, Vec<u8>) {
        let quota = |at: &u8| QUOTAS[usize::from(*at) % QUOTAS.len()].as_bytes();
        let number = |number: &Number| strings(&[number.text().as_bytes()]);
        let path = |place: &Place| strings(&[&place.bytes()]);
        let (op, payload) = match self {
            Self::Directory(place) => (Op::Directory, path(place)),
            Self::DirectoryPart(place, offset) => {
                (Op::DirectoryPart, strings(&[&place.bytes(), offset.to_string().as_bytes()]))
            }
            Self::Read(place) => (Op::Read, path(place)),
            Self::Write(place, len) => (Op::Write, [path(place), vec![b'v'; usize::from(*len % 4096)]].concat()),
            Self::Mkdir(place) => (Op::Mkdir, path(place)),
            Self::Rm(place) => (Op::Rm, path(place)),
            Self::GetPerms(place) => (Op::GetPerms, path(place)),
            Self::SetPerms(place, owner, others) => {
                let entries: Vec<_> = std::iter::once(owner).chain(others.iter().take(8)).map(entry).collect();
                let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
                (Op::SetPerms, [path(place), strings(&entries)].concat())
            }
            Self::Watch(place, token, depth) => {
                let token = b"t".repeat(usize::from(*token) * 8);
                let depth = depth.map(|depth| number(&depth)).unwrap_or_default();
                (Op::Watch, [strings(&[&place.bytes(), &token]), depth].concat())
            }
            Self::Unwatch(place, token) => {
                (Op::Unwatch, strings(&[&place.bytes(), &b"t".repeat(usize::from(*token) * 8)]))
            }
            Self::ResetWatches => (Op::ResetWatches, vec![0]),
            Self::Start => (Op::TransactionStart, vec![0]),
            Self::End(commit) => (Op::TransactionEnd, strings(&[if *commit { b"T" } else { b"F" }])),
            Self::Introduce(domid) => (Op::Introduce, strings(&[domid.text().as_bytes(), b"1", b"1"])),
            Self::Release(domid) => (Op::Release, number(domid)),
            Self::Resume(domid) => (Op::Resume, number(domid)),
            Self::SetTarget(domid, target) => (Op::SetTarget, [number(domid), number(target)].concat()),
            Self::GetDomainPath(domid) => (Op::GetDomainPath, number(domid)),
            Self::IsDomainIntroduced(domid) => (Op::IsDomainIntroduced, number(domid)),
            Self::GetFeature(domid) => (Op::GetFeature, domid.as_ref().map(number).unwrap_or_default()),
            Self::SetFeature(domid, bits) => {
                (Op::SetFeature, [number(domid), strings(&[(bits % 20).to_string().as_bytes()])].concat())
            }
            Self::GetQuota(domid, name) => {
                (Op::GetQuota, [domid.as_ref().map(number).unwrap_or_default(), strings(&[quota(name)])].concat())
            }
            Self::SetQuota(domid, name, value) => {
                let domid = domid.as_ref().map(number).unwrap_or_default();
                (Op::SetQuota, [domid, strings(&[quota(name), value.to_string().as_bytes()])].concat())
            }
            Self::Control(command, word, value) => {
                let mut payload = strings(&[COMMANDS[usize::from(*command) % COMMANDS.len()].as_bytes()]);
                if let Some(word) = word {
                    payload.extend(strings(&[WORDS[usize::from(*word) % WORDS.len()].as_bytes()]));
                }
                if let Some(value) = value {
                    payload.extend(strings(&[quota(&value.to_le_bytes()[0]), value.to_string().as_bytes()]));
                }
                (Op::Control, payload)
            }
            Self::Raw(op, payload) => return (op % 30, payload.clone()),
        };
        (op.number(), payload)
    }
}
