//! Journals with anything in them, for the fuzz targets only: built with `--cfg fuzzing`, as cargo-fuzz does.

use std::path::Path;

use crate::journal::sample;

/// The content of a log that has a record of every kind; `directory` is made for it.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn sample_log(directory: &Path) -> Vec<u8> {
    sample::sample(directory)
}

/// Goes through what may be a log, as a daemon that starts does, and gives the number of its records.
///
/// # Errors
/// Why a daemon would refuse it.
///
/// # Panics
/// Where it is not refused, and the store that it tells of is not sound.
pub fn recover(log: &[u8]) -> Result<usize, String> {
    sample::recover_bytes(log)
}
