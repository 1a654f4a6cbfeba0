//! Requests on a small store: plain, in flight, beside idle connections, and on one wide node.

use xenstore_wire::{Op, PAYLOAD_MAX};

use super::Stage;
use crate::client::{Failure, Outcome};
use crate::daemon::Kind;

/// The node that READ reads, in every scene.
pub(super) const PATH: &str = "/bench/value";
/// Its value.
pub(super) const VALUE: &[u8] = b"12345678";

/// Children of the wide nodes.
const CHILDREN: usize = 1000;
/// Requests in flight.
const IN_FLIGHT: usize = 16;

/// One connection, one request at a time; and sixteen.
pub(super) fn small(stage: &mut Stage<'_>) -> Outcome<()> {
    let mut client = stage.daemon.connect()?;
    client.write(0, PATH, VALUE)?;
    stage.measure("read", 1, || client.read(PATH, VALUE.len()).map(drop))?;
    let mut odd = false;
    stage.measure("write", 1, || {
        odd = !odd;
        client.write(0, "/bench/written", if odd { b"12345679" } else { VALUE })
    })?;
    stage.measure("read-16", IN_FLIGHT, || {
        let body = [PATH.as_bytes(), b"\0"].concat();
        for _ in 0..IN_FLIGHT {
            client.queue(Op::Read, 0, &body, VALUE.len());
        }
        client.send()?;
        (0..IN_FLIGHT).try_for_each(|_| client.answer(Op::Read).map(drop))
    })?;
    stage.measure("tx-empty", 1, || {
        let tx_id = client.start()?;
        client.end(tx_id, true)
    })
}

/// READ on one connection while `count` others are open and silent.
pub(super) fn idle(stage: &mut Stage<'_>, count: usize) -> Outcome<()> {
    if stage.options.quick && count > 1000 && matches!(stage.daemon.kind, Kind::C | Kind::O) {
        return Err(Failure::Unusable(format!("too slow with {count} connections for --quick")));
    }
    let id = match count {
        100 => "idle-100",
        1000 => "idle-1000",
        _ => "idle-4000",
    };
    let mut client = stage.daemon.connect()?;
    client.write(0, PATH, VALUE)?;
    let _silent = stage.daemon.connect_many(count)?;
    stage.measure(id, 1, || client.read(PATH, VALUE.len()).map(drop))
}

/// DIRECTORY of names that just fit a message, and DIRECTORY_PART of names that need three.
pub(super) fn wide(stage: &mut Stage<'_>) -> Outcome<()> {
    let mut client = stage.daemon.connect()?;
    let mut size = 0;
    for child in 0..CHILDREN {
        client.write(0, &format!("/short/{child}"), b"")?;
        client.write(0, &format!("/long/child-{child:04}"), b"")?;
        size += child.to_string().len() + 1;
    }
    stage.measure("directory", 1, || {
        let len = client.with_path(Op::Directory, 0, "/short", b"", size)?.len();
        if len == size { Ok(()) } else { Err(Failure::Unusable(format!("a listing of {len} bytes, not {size}"))) }
    })?;
    let floor = !stage.has_store();
    let (mut offset, mut total) = (0, 0);
    stage.measure("directory-part", 1, || {
        let tail = format!("{offset}\0");
        let body = client.with_path(Op::DirectoryPart, 0, "/long", tail.as_bytes(), PAYLOAD_MAX - 400)?;
        if floor {
            return Ok(());
        }
        let names = body.iter().position(|&byte| byte == 0).map_or(0, |end| body.len() - end - 1);
        total += names;
        // The last part ends with one more NUL.
        if body.ends_with(b"\0\0") || names == 0 {
            let want = CHILDREN * "child-0000\0".len();
            if !(want..=want + 1).contains(&total) {
                return Err(Failure::Unusable(format!("parts of {total} bytes together, not {want}")));
            }
            (offset, total) = (0, 0);
        } else {
            offset += names;
        }
        Ok(())
    })
}
