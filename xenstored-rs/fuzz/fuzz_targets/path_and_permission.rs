#![no_main]
//! A path and a permission list in any bytes. The engine must take exactly the well-formed ones, and give back what it
//! took. Input: a byte (odd: domain 3 asks, else a socket), the path, a NUL, the list as SET_PERMS has it.

use libfuzzer_sys::fuzz_target;
use xenstore_core::{Config, DomId};
use xenstore_wire::{Op, payload};
use xenstored_fuzz::Driver;

fn names_are_right(path: &[u8]) -> bool {
    let right = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_@".contains(byte);
    path.split(|&byte| byte == b'/').all(|name| !name.is_empty() && name.iter().all(right))
}

/// Reads a list as the protocol's document has it; gives its plain form.
fn plain(list: &[u8]) -> Option<Vec<u8>> {
    let entries: Vec<&[u8]> = payload::strings(list).collect();
    let plain = entries.iter().map(|entry| {
        let (letter, digits) = entry.split_first().filter(|(letter, _)| b"nrwb".contains(letter))?;
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(format!("{}{}\0", char::from(*letter), digits.parse::<u16>().ok()?).into_bytes())
    });
    plain.collect::<Option<Vec<_>>>().filter(|entries| !entries.is_empty()).map(|entries| entries.concat())
}

fuzz_target!(|input: &[u8]| {
    let Some((&who, text)) = input.split_first() else { return };
    let (path, list) = payload::string_and_rest(text).unwrap_or((text, b""));
    if path.len() + list.len() > 4000 {
        return;
    }
    let mut driver = Driver::new(Config::default());
    let socket = driver.open().expect("the first is let in");
    let guest = driver.introduce(DomId(3));
    let asker = if who % 2 == 1 { guest } else { socket };
    let with_nul = [path, b"\0"].concat();

    let special = path.first() == Some(&b'@');
    let node = path == b"/" || (!special && names_are_right(path.strip_prefix(b"/").unwrap_or(path)));
    let bytes = path.strip_prefix(b"/local/domain/3/").unwrap_or(path).len();
    let refused = |reply: &(u32, Vec<u8>)| reply.1 == b"EINVAL\0" && reply.0 == Op::Error.number();
    let fits = asker == socket || bytes <= 2048 || path.starts_with(b"/local/domain/");
    if fits {
        assert_eq!(refused(&driver.ask(asker, Op::Read, 0, &with_nul)), !node);
        let watch = driver.ask(asker, Op::Watch, 0, &[&with_nul, &b"t\0"[..]].concat());
        assert_eq!(refused(&watch), !(node || (special && names_are_right(path))));
    }
    let set = driver.ask(socket, Op::SetPerms, 0, &[&with_nul, list].concat());
    assert!(refused(&set) || (plain(list).is_some() && (node || special)), "{set:?}");
    if node {
        assert_eq!(driver.ask(socket, Op::Write, 0, &[&with_nul, &b"value"[..]].concat()).1, b"OK\0");
        assert_eq!(driver.ask(socket, Op::Read, 0, &with_nul), (Op::Read.number(), b"value".to_vec()));
        let set = driver.ask(socket, Op::SetPerms, 0, &[&with_nul, list].concat());
        assert_eq!(refused(&set), plain(list).is_none());
        if set.1 == b"OK\0" {
            assert_eq!(Some(driver.ask(socket, Op::GetPerms, 0, &with_nul).1), plain(list));
        }
    }
});
