//! The parts of `rmctl demo`: a skewed data set, its partitions, the job, and a reference for the
//! result.
//!
//! This module has no connection to a cluster; `cmd/demo.rs` combines the parts.

pub(crate) mod data;
pub(crate) mod generate;
pub(crate) mod job;
pub(crate) mod reference;
pub(crate) mod shape;
pub(crate) mod split;

use std::io;
use std::path::{Path, PathBuf};

use crate::groupby::csv::CsvFileError;

/// A failed step of the demonstration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// A file of the demonstration cannot be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The data set is invalid.
    #[error(transparent)]
    Csv(#[from] CsvFileError),
    /// The data set has no rows.
    #[error("{} has a header and no rows: there is nothing to group", path.display())]
    NoRows { path: PathBuf },
    /// No column contains numbers.
    #[error("{}:{line}: no column but the key's holds a number here; name one with --value", path.display())]
    NoNumbers { path: PathBuf, line: u64 },
}

/// Adds the path to an I/O error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> DemoError + '_ {
    move |source| DemoError::File {
        path: path.to_owned(),
        source,
    }
}

/// The partition of a key: FNV-1a, folded once so that the low bits are as well distributed as the
/// high ones.
pub(crate) fn partition(key: &[u8], partitions: u32) -> u32 {
    let fnv = key.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = (fnv ^ (fnv >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let folded = folded ^ (folded >> 32);
    u32::try_from(folded % u64::from(partitions.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_evenly_by_themselves() {
        let mut counts = [0u32; 20];
        for i in 0..20_000u32 {
            counts[partition(format!("{i:08x}").as_bytes(), 20) as usize] += 1;
        }
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
    }

    #[test]
    fn the_partition_of_a_key_never_changes() {
        assert_eq!(
            (
                partition(b"alpha", 20),
                partition(b"", 20),
                partition(b"x", 1)
            ),
            (partition(b"alpha", 20), partition(b"", 20), 0)
        );
    }
}
