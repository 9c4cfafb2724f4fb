//! Entries of a database and ranges of their keys, as the backends take them.
//!
//! Bytes only; [`crate::scan`] interprets them.

use std::ops::Bound;

/// One entry to write; `None` removes it.
pub type RecordEntry = (String, Option<Vec<u8>>);

/// A range of keys.
pub type KeyRange<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// All keys.
pub const ALL_KEYS: KeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

/// When a batch is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the write returns.
    Immediate,
    /// With the next durable batch.
    Deferred,
}
