//! A log as text.

use std::io::{self, Write};

use crate::{log_file::LogFile, note::Note, record::Record};

/// Writes a log for a person to read: what it says of itself, and a line for each record, with what `describe` makes of
/// it (one line; line ends in it are made visible). Ends with the damage where there is some. Returns whether there was
/// none.
///
/// # Errors
/// That of `out`.
pub fn dump<B: AsRef<[u8]>>(
    log: &LogFile<B>,
    out: &mut impl Write,
    mut describe: impl FnMut(&Record<'_>) -> String,
) -> io::Result<bool> {
    let heading = log.heading();
    writeln!(out, "file     {}", log.path().display())?;
    writeln!(out, "writer   {}", one_line(&heading.writer))?;
    writeln!(out, "boot     {}", heading.boot)?;
    let place = if heading.begins { "the first" } else { "continues another" };
    writeln!(out, "history  {:016x}, log {}, {place}", heading.history, heading.number)?;
    writeln!(out, "records  {} bytes", log.len())?;
    if let Some(number) = log.in_execution() {
        writeln!(out, "executing request {number}")?;
    }
    if let Some(suspect) = log.suspect() {
        writeln!(out, "suspect  request {}, {} deaths", suspect.number, suspect.deaths)?;
    }
    for number in log.convicts() {
        writeln!(out, "refused  request {number}")?;
    }
    for (index, position) in log.positions() {
        writeln!(out, "position {index}: {:#018x} at {}", position.value, position.at)?;
    }
    let mut whole = true;
    for record in log.records() {
        match record {
            Ok(record) => line(out, &record, &describe(&record))?,
            Err(error) => {
                whole = false;
                writeln!(out, "{error}")?;
            }
        }
    }
    match log.note() {
        Some(Note::Received { conn, time, kind, count, .. }) => {
            writeln!(out, "under way: kind {kind} conn {conn} at {}: {count} bytes were received", seconds(time))?;
        }
        Some(Note::Sent { conn, time, kind, count }) => {
            writeln!(out, "under way: kind {kind} conn {conn} at {}: {count} bytes were sent", seconds(time))?;
        }
        None => {}
    }
    Ok(whole)
}

fn line(out: &mut impl Write, record: &Record<'_>, description: &str) -> io::Result<()> {
    let Record { offset, kind, conn, time, payload } = record;
    let (time, len) = (seconds(*time), payload.len());
    writeln!(out, "{offset:>10} {time} kind {kind} conn {conn} {len} bytes: {}", one_line(description))
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// A text without control characters, which a terminal would obey.
fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let (plain, escaped) =
                if character.is_control() { (None, Some(character.escape_default())) } else { (Some(character), None) };
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}
