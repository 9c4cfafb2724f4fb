//! The check record of every batch: it counts commits and records, so that missing parts are
//! detected.

use serde::{Deserialize, Serialize};

/// Key of the [`BatchSeal`].
pub const SEAL: &str = "seal";
/// The latest layout of keys and values.
pub const FORMAT: u32 = 1;

/// The check record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSeal {
    /// The layout of keys and values.
    pub format: u32,
    /// The number of the commit.
    pub commit: u64,
    /// The number of records in the database.
    pub records: u64,
}
