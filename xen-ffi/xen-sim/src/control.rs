//! What `xen-sim ctl` can do to a host.

use crate::domains::{DomainOptions, ShutdownReason, no_domain};
use crate::guest::Guest;
use crate::host::Inner;
use crate::ring::Word;
use crate::{bridge, toolstack};
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use xen_sim_switchboard::PAGE_SIZE;

/// What the commands are.
pub const HELP: &str = "\
  list                            all domains
  create [DOMID] [--no-grant] [--no-introduce]
                                  a new domain, introduced to the daemon; its id is printed
  introduce DOMID [--new-port]    INTRODUCE, over the daemon's socket; with a port of its own, as after kexec
  release DOMID                   RELEASE, over the daemon's socket
  shutdown DOMID [REASON]         poweroff (the usual), reboot, suspend, crash
  suspend DOMID                   shutdown with that reason
  resume DOMID                    the domain runs again, and the daemon is told by RESUME
  dying DOMID                     the domain is destroyed, but somebody still holds its memory
  destroy DOMID                   the domain is gone
  ring DOMID                      the words of its ring page
  corrupt DOMID WORD VALUE        sets a word of its ring page and sends an event
  corrupt DOMID at OFFSET HEX     the same for bytes
  notify DOMID                    sends an event as the guest
";

/// Has the broker of the host in `dir` carry out a command; gives what it prints.
///
/// # Errors
/// When no broker is there, and what the command failed by.
pub fn ask(dir: &Path, words: &[String]) -> io::Result<String> {
    let mut stream = UnixStream::connect(dir.join("host.sock"))?;
    stream.write_all(format!("ctl {}\n", words.join(" ")).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => Err(io::Error::other(text.trim_end().to_owned())),
        _ => Err(io::Error::other("the broker gave no answer")),
    }
}

fn wrong(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}

fn number(word: &str) -> io::Result<u32> {
    let parsed = word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok());
    parsed.ok_or_else(|| wrong(format!("{word} is no number")))
}

fn domid(word: &str) -> io::Result<u16> {
    u16::try_from(number(word)?).map_err(|_| wrong(format!("{word} is no domain id")))
}

/// Carries out a command; gives what is to be printed.
pub(crate) fn act(inner: &Arc<Inner>, words: &[&str]) -> io::Result<String> {
    let mut text = String::new();
    match *words {
        ["list"] => {
            for domain in inner.domains() {
                let _ = writeln!(text, "{domain}");
            }
        }
        ["create", ref rest @ ..] => {
            let _ = writeln!(text, "{}", create(inner, rest)?);
        }
        ["introduce", id] => toolstack::introduce(inner, &[domid(id)?])?,
        ["introduce", id, "--new-port"] => {
            inner.renew_port(domid(id)?)?;
            toolstack::introduce(inner, &[domid(id)?])?;
        }
        ["release", id] => toolstack::release(inner, domid(id)?)?,
        ["shutdown", id] => inner.shutdown(domid(id)?, ShutdownReason::Poweroff)?,
        ["shutdown", id, reason] => {
            let reason = ShutdownReason::from_name(reason).ok_or_else(|| wrong(format!("no reason {reason}")))?;
            inner.shutdown(domid(id)?, reason)?;
        }
        ["suspend", id] => inner.shutdown(domid(id)?, ShutdownReason::Suspend)?,
        ["resume", id] => {
            inner.resume(domid(id)?)?;
            toolstack::resume(inner, domid(id)?)?;
        }
        ["dying", id] => inner.begin_destroy(domid(id)?)?,
        ["destroy", id] => inner.destroy(domid(id)?)?,
        ["ring", id] => {
            let guest = Guest::new(inner, domid(id)?)?;
            for word in Word::ALL {
                let _ = writeln!(text, "{} {}", word.name(), guest.word(word));
            }
            let _ = writeln!(text, "bound {}", guest.is_bound());
        }
        ["corrupt", id, "at", offset, hex] => {
            let guest = Guest::new(inner, domid(id)?)?;
            let (offset, bytes) = (number(offset)? as usize, from_hex(hex)?);
            if offset + bytes.len() > PAGE_SIZE {
                return Err(wrong("that is outside of the page"));
            }
            guest.page().copy_in(offset, &bytes);
            guest.notify();
        }
        ["corrupt", id, word, value] => {
            let guest = Guest::new(inner, domid(id)?)?;
            let word = Word::from_name(word).ok_or_else(|| wrong(format!("no word {word}")))?;
            guest.set_word(word, number(value)?);
            guest.notify();
        }
        ["notify", id] => Guest::new(inner, domid(id)?)?.notify(),
        _ => return Err(wrong(format!("no such command; these are:\n{HELP}"))),
    }
    Ok(text)
}

fn create(inner: &Arc<Inner>, words: &[&str]) -> io::Result<u16> {
    let mut options = DomainOptions::default();
    let mut introduced = true;
    let mut wanted = None;
    for &word in words {
        match word {
            "--no-grant" => options.granted = false,
            "--no-introduce" => introduced = false,
            _ => wanted = Some(domid(word)?),
        }
    }
    let id = match wanted {
        Some(id) => id,
        None => (1..).find(|&id| inner.domain(id).is_none()).ok_or_else(|| no_domain(u16::MAX))?,
    };
    inner.create(id, &options)?;
    if introduced && let Err(error) = toolstack::introduce(inner, &[id]) {
        // A domain that could not be introduced is not there: the command has failed as a whole.
        inner.destroy(id)?;
        return Err(error);
    }
    bridge::offer(inner, id)?;
    Ok(id)
}

fn from_hex(text: &str) -> io::Result<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(wrong("hex digits come in pairs")) };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(|pair| byte(pair).ok_or_else(|| wrong(format!("{text} is not hex")))).collect()
}
