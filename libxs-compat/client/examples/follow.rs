//! Prints what changes below a path, with the values: `follow PATH [COUNT]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use xenstore_client::{Client, Nodes};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let path = words.next().ok_or("which path?")?;
    let count = words.next().map_or(Ok(usize::MAX), |count| count.parse())?;
    let store = Client::open()?;
    let mut out = io::stdout();
    for event in store.watch(&path)?.take(count) {
        let changed = event?;
        match store.read(changed.path()) {
            Ok(value) => writeln!(out, "{} = {:?}", changed.path_text(), String::from_utf8_lossy(&value))?,
            Err(error) => writeln!(out, "{}: {}", changed.path_text(), error.name())?,
        }
    }
    Ok(())
}
