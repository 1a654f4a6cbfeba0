//! The guest on its own: it says hello, then does what nodes of its home ask for.
//!
//! It reads its number from `domid`, writes it to `data/hello`, and watches `data/command` and `control/shutdown`. A
//! command is answered in `data/answer` when it is done: `echo TEXT` by the text, `count NUMBER` by the number, after
//! so many writes of `data/counter`, and `crash` not at all. What `control/shutdown` asks for is acknowledged by
//! emptying it, as toolstacks expect.

use crate::hypercall::{self, Reason};
use crate::machine::Machine;
use crate::store::{READ, Store, WATCH, WRITE};
use core::fmt::Write as _;

const COMMAND: &[u8] = b"data/command";
const SHUTDOWN: &[u8] = b"control/shutdown";
const NUL: &[u8] = &[0];

pub(crate) fn run(machine: &mut Machine) -> ! {
    let mut store = Store::new();
    let kind = machine.kind;
    let mut domid = [0; 16];
    let len = read(&mut store, machine, b"domid", &mut domid);
    let domid = &domid[..len];
    let _ = writeln!(machine, "guest kernel: a {kind} guest, domain {}", domid.escape_ascii());
    let hello = store.request(machine, WRITE, &[b"data/hello", NUL, kind.as_bytes(), b" guest, domain ", domid]);
    assert!(hello.is_some(), "data/hello cannot be written");
    for (path, token) in [(COMMAND, b"c".as_slice()), (SHUTDOWN, b"s")] {
        let watched = store.request(machine, WATCH, &[path, NUL, token, NUL]);
        assert!(watched.is_some(), "{} cannot be watched", path.escape_ascii());
    }
    let mut text = [0; 512];
    loop {
        match store.event(machine) {
            b'c' => {
                let len = read(&mut store, machine, COMMAND, &mut text);
                obey(&mut store, machine, &text[..len]);
            }
            b's' => {
                let len = read(&mut store, machine, SHUTDOWN, &mut text);
                shut_down(&mut store, machine, &text[..len]);
            }
            _ => {}
        }
    }
}

/// Reads a value, as much of it as there is room for; nothing where there is no such node.
fn read(store: &mut Store, machine: &Machine, path: &[u8], out: &mut [u8]) -> usize {
    let value = store.request(machine, READ, &[path, NUL]).unwrap_or_default();
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    len
}

fn obey(store: &mut Store, machine: &mut Machine, command: &[u8]) {
    let (verb, rest) = match command.iter().position(|&byte| byte == b' ') {
        Some(at) => (&command[..at], &command[at + 1..]),
        None => (command, &[][..]),
    };
    match verb {
        b"" => return,
        b"echo" => {}
        b"count" => {
            let number = rest
                .iter()
                .fold(0_u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0'))));
            for round in 1..=number {
                let mut value = Decimal::default();
                let _ = write!(value, "{round}");
                let written = store.request(machine, WRITE, &[b"data/counter", NUL, value.bytes()]);
                assert!(written.is_some(), "data/counter cannot be written");
            }
        }
        b"crash" => panic!("as asked"),
        _ => {
            let _ = writeln!(machine, "guest kernel: what is {}?", command.escape_ascii());
            return;
        }
    }
    store.request(machine, WRITE, &[b"data/answer", NUL, rest]);
}

fn shut_down(store: &mut Store, machine: &mut Machine, how: &[u8]) {
    let reason = match how {
        b"poweroff" | b"halt" => Reason::Poweroff,
        b"reboot" => Reason::Reboot,
        b"suspend" => Reason::Suspend,
        _ => return,
    };
    store.request(machine, WRITE, &[SHUTDOWN, NUL]);
    let _ = writeln!(machine, "guest kernel: {} as asked", how.escape_ascii());
    hypercall::shutdown(reason);
}

/// A number in decimal.
#[derive(Default)]
struct Decimal {
    bytes: [u8; 10],
    len: usize,
}

impl Decimal {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl core::fmt::Write for Decimal {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(core::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
