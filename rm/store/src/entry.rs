//! Entries of a database and ranges of their keys, as the backends take them.
//!
//! Bytes only; [`crate::scan`] interprets them.

use std::ops::Bound;

/// One entry to write; `None` removes it.
pub type Entry = (String, Option<Vec<u8>>);

/// A range of keys.
pub type Keys<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// All keys.
pub const ALL_KEYS: Keys<'static> = (Bound::Unbounded, Bound::Unbounded);
